"""Which rules does the strict reader keep, and how does it say that one was broken?

One table for archives, folders and repositories: a rule's name is stable, its sentence is what
people read and what the reference page lists. A reader never mends what breaks a rule.
"""

from __future__ import annotations

from typing import NamedTuple

from satchel._language import say
from satchel.errors import Unsafe

RULES: dict[str, str] = {
    # Names, wherever they come from.
    "path-absolute": "a path must be relative",
    "path-escapes": "a path must not contain `..`",
    "path-parts": "a path must not have empty parts or `.` as a part",
    "path-backslash": "a path must be written with `/`, not with a backslash",
    "path-colon": "a name must not contain a colon",
    "path-characters": "a name must not contain control, invisible or text-reversing characters",
    "path-encoding": "a name must be valid UTF-8",
    "path-too-long": "a name has at most 255 bytes, a path at most 1,024",
    "path-too-deep": "folders are nested at most 64 deep",
    "windows-name": "a name must be usable on Windows too",
    "duplicate-name": "a name must occur only once",
    "case-conflict": "two names must not differ only in case or in how an accent is written",
    "file-and-folder": "a name must not be both a file and a folder",
    # What things are.
    "link": "an archive must not contain links",
    "link-escapes": "a link must lead to a file of the same skill",
    "link-loop": "a link must not lead back to itself",
    "link-broken": "a link must lead to something that is there",
    "special-file": "only regular files and folders are read",
    "submodule": "a skill must not contain a submodule",
    "type-differs": "a name and its attributes must agree on what is a file and what is a folder",
    # How much there is.
    "too-many-files": "there must not be more files than the limit",
    "too-large": "the content must not be larger than the limit",
    "names-too-large": "all names together must not be larger than the limit",
    "ratio": "content must not be more than 100 times as large as it is packed",
    "memory": "unpacking must not need more memory than the limit",
    # Whether an archive says the same everywhere.
    "not-an-archive": "it must be a zip or a tar archive",
    "unsupported-format": "only zip, tar, tar.gz, tar.bz2 and tar.xz are read",
    "truncated": "the archive must be complete",
    "trailing-data": "nothing may follow the end of the archive",
    "hidden-data": "nothing may lie before, between or under the entries",
    "overlap": "entries must not share bytes",
    "damaged": "the content must match its checksum and be packed correctly",
    "size-differs": "the content must be as large as declared",
    "header-differs": "the table of contents and the entry itself must say the same",
    "encrypted": "nothing may be encrypted",
    "method": "zip entries are stored or deflated, nothing else",
    "multi-part": "an archive must be in one part",
    "zip-end": "a zip must have one clear end record",
    "zip-count": "a zip must have as many entries as it declares",
    "zip-encoding": "a zip must mark names beyond ASCII as UTF-8",
    "zip-extra": "additional fields of a zip must be well formed",
    "zip-flags": "a zip must use known features only",
    "tar-header": "every header of a tar must be well formed and match its checksum",
    "tar-order": "an extended header of a tar must belong to exactly one entry",
    "tar-pax": "extended headers of a tar must be well formed and say each thing once",
    "tar-type": "a tar must contain only known kinds of entries",
    "sparse-file": "files with holes are not read",
    # Repositories.
    "git-address": "the address of a repository must be a plain one",
    "git-ref": "a branch, tag or commit must have a plain name",
    "git-objects": "the objects of a repository must pass git's own checks",
    "changed-while-read": "files must not change while they are read",
}
"""Rule -> what it asks for, in one sentence."""

HINT = "Ask whoever made it for a clean copy, or unpack it yourself and look"
HINTS: dict[str, str] = {
    "encrypted": "Do not unpack it: encryption is how malicious skills avoid being looked at",
    "unsupported-format": "Unpack it and pack it again as `.zip` or `.tar.gz`",
    "not-an-archive": "Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository",
    "zip-encoding": "Pack it again as `.tar.gz`",
    "link": "Pack it again with the files themselves in place of links",
    "link-escapes": "Put the file itself in place of the link",
    "link-loop": "Put the file itself in place of the link",
    "link-broken": "Remove the link, or put the file itself in its place",
    "submodule": "Import the submodule's own repository, or copy its files into the skill",
    "too-many-files": "Remove what the skill does not need",
    "too-large": "Remove what the skill does not need",
    "truncated": "Download it again",
    "damaged": "Download it again",
    "case-conflict": "Rename one of the two: on many systems they are the same file",
    "windows-name": "Rename it, so that everybody can install the skill",
    "git-address": "Use `https://…`, `ssh://…`, `git@host:path` or a path on this machine",
    "git-ref": "Give a branch, a tag or a whole commit id",
    "changed-while-read": "Wait until nobody writes to it, then try again",
}
_SHOWN = 120


class Bounds(NamedTuple):
    """How large an archive, or any other source with many skills in it, may be."""

    entries: int = 50_000
    """Enough for ten thousand ordinary skills, and looked through in a second."""
    size: int = 4 << 30
    """Bytes of all files together, unpacked."""
    names: int = 16 << 20
    """Bytes of all paths together, the folders they imply included."""
    ratio: int = 100
    """Unpacked bytes for one packed byte."""
    file_floor: int = 1 << 20
    """A file up to this size may be packed as tightly as it likes."""
    total_floor: int = 8 << 20
    """The same for everything together."""
    memory: int = 72 << 20
    """What one decompressor may ask for; `xz -9` needs 65 MiB."""


BOUNDS = Bounds()
"""For archives."""
WIDE = Bounds(entries=100_000)
"""For folders and repositories: there skills often lie beside much else."""


def refuse(rule: str, path: str = "", found: str = "") -> Unsafe:
    """The error for a broken rule.

    Args:
        rule: A key of `RULES`.
        path: What broke it: a name inside the source, or the source's own.
        found: What was there instead, when that helps.
    """
    why = say(RULES[rule])
    hint = say(HINTS.get(rule, HINT))
    name = shown(path)
    if name and found:
        text = say("`{path}` is refused: {why} ({found})", path=name, why=why, found=shown(found))
    elif name:
        text = say("`{path}` is refused: {why}", path=name, why=why)
    elif found:
        text = say("The source is refused: {why} ({found})", why=why, found=shown(found))
    else:
        text = say("The source is refused: {why}", why=why)
    return Unsafe(rule, text, hint)


def shown(text: str) -> str:
    """A name as it may be shown on a terminal: one short line without tricks."""
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if short.isascii() and short.isprintable() and "`" not in short:
        return short
    return "".join(
        mark if mark.isprintable() and mark != "`" else f"\\u{ord(mark):04x}" for mark in short
    )
