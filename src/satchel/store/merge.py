"""Three-way merges of skills: the installed base, the user's version and the source's.

Each file is merged by itself. A file that only one side changed is taken from that side; of a text
that both changed, `git merge-file` merges the lines. What it cannot merge is a conflict, for which
the user keeps one side, or both with conflict marks. No file of either side is lost: a conflict is
never resolved without a choice.
"""

from __future__ import annotations

import os
import re
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import InvalidInput, Refused
from satchel.i18n import say
from satchel.skill.file_tree import MemoryTree, read_whole
from satchel.skill.frontmatter import find_conflict_line
from satchel.store.archive.rules import shown

if TYPE_CHECKING:
    from satchel.skill.file_tree import Tree
    from satchel.store.trees import HashedTree

Side = Literal["mine", "theirs", "both"]
SIDES: tuple[Side, ...] = ("mine", "theirs", "both")
MAX_MARKED_CHARS = 8_000
"""Of the conflicts of one skill that are shown."""
_MAX_TEXT_BYTES = 1 << 20
_MERGE_TIMEOUT_S = 60.0
_LABELS = ("your version", "before", "the source")
_MARKED_LINES = re.compile(rb"(?ms)^<{7} [^\n]*\n.*?^>{7} [^\n]*(?:\n|\Z)")
_MARK = re.compile(rb"(?m)^(<{7}|\|{7}|={7}|>{7})(?: [^\n]*)?\r?(?:\n|\Z)")


class Merge(NamedTuple):
    """The result of a merge."""

    tree: MemoryTree
    merged: tuple[str, ...] = ()
    """Paths that both sides changed."""
    conflicts: tuple[str, ...] = ()
    """Paths whose changes exclude each other."""
    marked: str = ""
    """The conflicts, for the user."""


def merge_trees(
    base: HashedTree, mine: HashedTree, theirs: HashedTree, keep: Side | None = None
) -> Merge:
    """Merge two versions of a skill.

    Args:
        base: What both began with.
        mine: The user's version.
        theirs: The source's version.
        keep: The side of each conflict; without it, conflicts keep the user's version.

    Raises:
        InvalidInput: both sides of a file that is not text cannot be kept.
        Refused: git cannot merge.
        MissingExtra: git is not installed.
    """
    trees = (base, mine, theirs)
    modes = [{file.path: file.mode for file in tree.files} for tree in trees]
    contents: dict[str, bytes] = {}
    programs: list[str] = []
    merged: list[str] = []
    conflicts: dict[str, str] = {}
    paths = {path for tree in trees for path in tree.fingerprint.files}
    for path in sorted(paths, key=os.fsencode):
        changed = _changed_tree(path, *trees)
        if changed is None:
            merged.append(path)
            file = merge_file(path, *(_read(tree, path) for tree in trees), keep=keep)
            if file.is_conflict:
                conflicts[path] = file.marked
            content = file.content
        else:
            content = _read(changed, path)
        if content is None:
            continue
        contents[path] = content
        if _merged_mode(*(mode.get(path) for mode in modes)) == "program":
            programs.append(path)
    tree = MemoryTree(contents, frozenset(programs))
    text = "\n".join(conflicts.values())
    return Merge(tree, tuple(merged), tuple(conflicts), text[:MAX_MARKED_CHARS])


def _changed_tree(
    path: str, base: HashedTree, mine: HashedTree, theirs: HashedTree
) -> HashedTree | None:
    """The version whose file is used whole; None when both sides changed it."""
    before, after, other = (tree.fingerprint.files.get(path) for tree in (base, mine, theirs))
    if other in (after, before):
        return mine
    return theirs if after == before else None


def _merged_mode(base: str | None, mine: str | None, theirs: str | None) -> str | None:
    """The mode of the side that changed it."""
    return (theirs if mine == base else mine) or mine or theirs


class MergedFile(NamedTuple):
    """The result for one file."""

    content: bytes | None
    """None for a file that is deleted."""
    is_conflict: bool = False
    marked: str = ""
    """The conflict, for the user."""


def merge_file(
    path: str,
    base: bytes | None,
    mine: bytes | None,
    theirs: bytes | None,
    *,
    keep: Side | None,
) -> MergedFile:
    """Merge one file that both sides changed; None stands for a missing one."""
    if mine == theirs:  # only the permission to execute differs
        return MergedFile(mine)
    if mine is None or theirs is None:
        return _choose_deleted(path, mine, theirs, keep)
    if any(b"\0" in (content or b"") for content in (base, mine, theirs)):
        return _choose_binary(path, mine, theirs, keep)
    content, is_conflict = _merge_texts(base or b"", mine, theirs)
    if not is_conflict:
        return MergedFile(content)
    lines = b"".join(_MARKED_LINES.findall(content)).decode("utf-8", "replace")
    if keep in ("mine", "theirs"):
        option = "--ours" if keep == "mine" else "--theirs"
        content, _ = _merge_texts(base or b"", mine, theirs, option)
    elif keep is None:
        content = mine
    return MergedFile(content, is_conflict=True, marked=f"{shown(path)}:\n{lines}")


def _choose_deleted(
    path: str, mine: bytes | None, theirs: bytes | None, keep: Side | None
) -> MergedFile:
    """One side of a file that one side changed and the other deleted."""
    deletion = say("you deleted it") if mine is None else say("the source deleted it")
    content = {"mine": mine, "theirs": theirs, "both": mine or theirs}.get(keep or "mine")
    return MergedFile(content, is_conflict=True, marked=f"{shown(path)}: {deletion}")


def _choose_binary(path: str, mine: bytes, theirs: bytes, keep: Side | None) -> MergedFile:
    """One side of a file that is not text."""
    if keep == "both":
        raise InvalidInput(
            say("Both versions of `{path}` cannot be kept: it is not text", path=shown(path)),
            say("Keep `mine` or `theirs`"),
        )
    marked = f"{shown(path)}: {len(mine)} / {len(theirs)} B"
    return MergedFile(theirs if keep == "theirs" else mine, is_conflict=True, marked=marked)


def _merge_texts(base: bytes, mine: bytes, theirs: bytes, *options: str) -> tuple[bytes, bool]:
    """Merge three texts with `git merge-file`; whether there are conflicts, which get marks."""
    import subprocess

    from satchel.store.sources.git import environment, find_git

    with TemporaryDirectory(prefix="satchel-merge-") as folder:
        names = ("mine", "base", "theirs")
        for name, text in zip(names, (mine, base, theirs), strict=True):
            with open(os.path.join(folder, name), "wb") as stream:
                stream.write(text)
        labels = [option for label in _LABELS for option in ("-L", label)]
        try:
            done = subprocess.run(  # noqa: S603 - the program is git; the arguments are ours
                [find_git(), "-c", "merge.conflictStyle=merge", "merge-file", "-p", "-q", *options,
                 *labels, *names],
                cwd=folder,
                env={**environment(), "GIT_CEILING_DIRECTORIES": os.path.dirname(folder)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_MERGE_TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as exc:
            raise Refused(say("git did not finish the merge"), say("Try again")) from exc
    if done.returncode > 127 or done.returncode < 0:
        reason = shown(done.stderr.decode("utf-8", "replace").strip()[:200])
        raise Refused(say("git cannot merge the files: {reason}", reason=reason))
    return done.stdout, done.returncode > 0


def take_side(text: bytes, side: Side) -> bytes:
    """The text with one side of every conflict, and without the marks."""
    return _MARKED_LINES.sub(lambda match: _side_of(match.group(), side), text)


def _side_of(part: bytes, side: Side) -> bytes:
    """One side of the lines from `<<<<<<<` to `>>>>>>>`."""
    current = b""
    sections: dict[bytes, bytes] = {b"<": b"", b"|": b"", b"=": b""}
    for line in part.splitlines(keepends=True):
        if _MARK.fullmatch(line):
            current = line[:1]
        elif current in sections:
            sections[current] += line
    return sections[b"<" if side == "mine" else b"="]


def find_marked_files(tree: Tree) -> tuple[str, ...]:
    """The paths of texts with conflict marks, other than in code blocks."""
    marked: list[str] = []
    for file in tree.files:
        if file.mode == "link" or file.size > _MAX_TEXT_BYTES:
            continue
        data = read_whole(tree, file.path)
        if _MARKED_LINES.search(data) and find_conflict_line(data.decode("utf-8", "replace")):
            marked.append(file.path)
    return tuple(marked)


def _read(tree: HashedTree, path: str) -> bytes | None:
    return read_whole(tree, path) if path in tree.fingerprint.files else None
