"""The lockfile: installed skills, their sources and the digests of their files.

There is one beside each folder that `satchel install` writes to. It is made for review: one fact
per line, sorted, so that branches that add different skills merge. Every entry has a checksum and
the file has one canonical form, so any changed byte is detected.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import locked, read_plain
from satchel.errors import InvalidInput, LockBroken
from satchel.i18n import Message, join_names, say
from satchel.skill.file_tree import digest_of
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOCK_FILE = "satchel.lock"
VERSION = 1
_MAX_LOCK_BYTES = 64 << 20
_MAX_NAME_BYTES = 255  # of one file name, on every common file system


class LockedSource(NamedTuple):
    """The source of an installed skill."""

    kind: str
    """`new`, `folder`, `archive`, `git`, `hub`, `discovery`, or `upload`, which cannot be fetched
    again."""
    url: str = ""
    """A path or address without password; relative to the lockfile where possible."""
    ref: str = ""
    """The requested branch or tag; the requested versions of a hub's skill."""
    commit: str = ""
    """The commit, or the version, that it resolved to."""
    path: str = ""
    """The skill's folder within the source."""
    key: str = ""
    """The publisher's key of a hub's skill."""
    seen: str = ""
    """The number of commits that the hub had."""
    hub: str = ""
    """The name of the hub, which its mirrors share."""


class LockedVerdict(NamedTuple):
    """The scan result at installation."""

    verdict: str = ""
    """`blocked`, `review`, `no findings`, `incomplete`; empty when not scanned."""
    rules: tuple[str, ...] = ()
    """Rules with findings, without notes."""
    engine: str = ""
    """Version of the rules, such as `satchel-1`."""
    accepted: str = ""
    """Day and reason, when it was installed despite the verdict."""


class LockEntry(NamedTuple):
    """One installed skill."""

    id: str
    """Name of its folder."""
    name: str
    place: LockedSource
    licence: str
    tree: str
    """Digest of the installed files."""
    files: dict[str, str]
    """As `TreeDigest.files`."""
    scan: LockedVerdict = LockedVerdict()
    upstream: str = ""
    """Digest of the source's files, if `tree` includes edits of the user."""
    signer: str = ""
    """Signer of a verified signature."""

    @property
    def edited(self) -> bool:
        """Whether edits of the user are locked too."""
        return bool(self.upstream) and self.upstream != self.tree


Lock = dict[str, LockEntry]
"""Entries by id."""


def lock_path(skills_folder: str) -> str:
    """Path of the lockfile beside a folder with skills."""
    return os.path.join(os.path.dirname(os.path.abspath(skills_folder)), LOCK_FILE)


def read_lock(path: str) -> Lock:
    """Read a lockfile; empty when it does not exist.

    Raises:
        LockBroken: it is damaged.
    """
    try:
        data = read_plain(path, _MAX_LOCK_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as exc:
        reason = "it is a link" if os.path.islink(path) else exc.strerror or str(exc)
        raise _broken(path, reason) from exc
    return parse_lock(data, path)


def interrupted_changes(locks: Iterable[str], marks: str) -> list[Problem]:
    """Problems of changes that a killed command left unfinished beside these lockfiles."""
    found: list[Problem] = []
    for root in dict.fromkeys(os.path.dirname(lock) for lock in locks if lock):
        work = os.path.join(root, ".satchel")
        names = pending_changes(root, marks)
        try:
            if names:
                with locked(os.path.join(work, "lock"), timeout=0, private=False):
                    names = pending_changes(root, marks)
        except TimeoutError:
            continue  # it is in progress
        except OSError:
            pass  # not writable: it is reported
        if names:
            values = {"names": join_names(f"`{name}`" for name in names)}
            found.append(Problem("change-interrupted", f"{work}/journal.json", values=values))
    return found


def pending_changes(root: str, marks: str = "") -> dict[str, str]:
    """The changes of a transaction in progress: id -> the new digest.

    Readers take no lock, so a folder may be ahead of the lockfile: the journal is written before
    the first folder changes, and deleted after the lockfile has changed.

    Args:
        root: The folder of the skills' folder and the lockfile.
        marks: Path of the user's key, to ignore a journal that came with a project; empty to skip
            the check.
    """
    work = os.path.join(root, ".satchel")
    try:
        data = read_plain(os.path.join(work, "journal.json"), _MAX_LOCK_BYTES)
    except OSError:
        return {}
    import json

    from satchel.library.ownership import RECORD_KIND, verify_record

    try:
        table = json.loads(data)
        if marks and not verify_record(table, marks, (os.path.realpath(work),), RECORD_KIND):
            return {}
        return {str(row["id"]): str(row["after"]) for row in table["changes"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # damaged


def parse_lock(data: bytes, path: str = LOCK_FILE) -> Lock:
    """Parse the content of a lockfile.

    Raises:
        LockBroken: it is damaged or was edited.
    """
    import json

    if len(data) > _MAX_LOCK_BYTES:
        raise _broken(path, "it is too large")
    try:
        table = json.loads(data.replace(b"\r\n", b"\n"))
        if table["version"] != VERSION:
            raise _broken(path, f"its version is {table['version']!r}, not {VERSION}")
        lock = {str(key): _entry(str(key), row) for key, row in table["skills"].items()}
        text = render_lock(lock)
    except InvalidInput as exc:
        raise _broken(path, exc.message) from exc
    except ValueError as exc:
        if b"\n<<<<<<< " in data or data.startswith(b"<<<<<<< "):
            raise LockBroken(
                Message("`{path}` cannot be used: {reason}", path=path, reason="merge conflict"),
                Message(
                    "Take one side with `git checkout --ours {path}` or `--theirs`, then run "
                    "`satchel install`",
                    path=os.path.basename(path),
                ),
            ) from exc
        raise _broken(path, str(exc) or type(exc).__name__) from exc
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise _broken(path, str(exc) or type(exc).__name__) from exc
    if text != data.replace(b"\r\n", b"\n"):
        for key, row in table["skills"].items():
            if row.get("check") != _check(lock[key]):
                raise _broken(path, f"the entry `{key}` does not match its check sum")
        raise _broken(path, "it was changed by hand")
    return lock


def render_lock(lock: Mapping[str, LockEntry]) -> bytes:
    """Write the canonical form of a lock.

    Raises:
        InvalidInput: an entry is invalid and could not be read again.
    """
    import json

    for entry in lock.values():
        if reason := entry_fault(entry):
            raise InvalidInput(reason, say("Rename it"))
    rows = {key: {**_row(lock[key]), "check": _check(lock[key])} for key in sorted(lock)}
    text = json.dumps({"version": VERSION, "skills": rows}, indent=1, ensure_ascii=True)
    return (text + "\n").encode()


def _row(entry: LockEntry) -> dict[str, Any]:
    place = {key: value for key, value in entry.place._asdict().items() if value}
    scan = {
        key: list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        for key, value in entry.scan._asdict().items()
        if value
    }
    row: dict[str, Any] = {
        "name": entry.name,
        "source": place,
        "licence": entry.licence,
        "scan": scan,
        "signer": entry.signer,
        "upstream": entry.upstream,
        "tree": entry.tree,
        "files": {path: entry.files[path] for path in sorted(entry.files)},
    }
    return {key: value for key, value in row.items() if value or key in {"name", "tree", "files"}}


def _entry(key: str, row: dict[str, Any]) -> LockEntry:
    scan = dict(row.get("scan", {}))
    scan["rules"] = tuple(map(str, scan.get("rules", ())))
    return LockEntry(
        key,
        str(row["name"]),
        LockedSource(**{name: str(value) for name, value in row["source"].items()}),
        str(row.get("licence", "")),
        str(row["tree"]),
        {str(path): str(mark) for path, mark in row["files"].items()},
        LockedVerdict(**scan),
        str(row.get("upstream", "")),
        str(row.get("signer", "")),
    )


def _check(entry: LockEntry) -> str:
    """Checksum over an entry and its id."""
    import json
    from hashlib import sha256

    text = json.dumps([entry.id, _row(entry)], ensure_ascii=True, sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def entry_fault(entry: LockEntry) -> str:
    """Why an entry is invalid; empty when it is valid.

    A lockfile may come with an untrusted project, and its ids and paths are read from disk.
    """
    if not is_id(entry.id):
        return say("`{name}` is not a valid name", name=ascii(entry.id)[1:-1])
    for path in entry.files:
        if not _is_safe_path(path):
            return say(
                "`{name}` lists `{path}`, which cannot be a file of a skill",
                name=entry.id,
                path=ascii(path)[1:-1],
            )
    if not digest_matches(entry):
        return say("the digest of `{name}` is not that of its files", name=entry.id)
    return ""


def digest_matches(entry: LockEntry) -> bool:
    """Whether an entry's digest is that of its files."""
    try:
        return digest_of(entry.files) == entry.tree
    except UnicodeEncodeError:  # a lone surrogate
        return False


def check_id(skill_id: str) -> str:
    """Return an id that can be the name of a skill's folder.

    Existing folders have all kinds of names, so this accepts more than the recommended pattern: any
    visible folder name that is valid on every system.

    Raises:
        InvalidInput: it cannot be one.
    """
    if not is_id(skill_id):
        raise InvalidInput(
            say("`{name}` is not a valid name", name=ascii(skill_id)[1:-1]),
            say("Use a-z, 0-9 and single hyphens"),
        )
    return skill_id


def is_id(skill_id: str) -> bool:
    """Whether an id can be the name of a skill's folder."""
    from satchel._unicode import INVISIBLE

    try:
        length = len(os.fsencode(skill_id))
    except UnicodeEncodeError:
        return False
    return (
        0 < length <= _MAX_NAME_BYTES
        and skill_id[0] not in ". "
        and skill_id[-1] not in ". "
        and not any(sign in "/\\:" or ord(sign) < 32 or ord(sign) == 127 for sign in skill_id)
        and not INVISIBLE.search(skill_id)
    )


def _is_safe_path(path: str) -> bool:
    """Whether a relative path stays below its folder, on every system."""
    return (
        "\0" not in path and "\\" not in path and not {"", ".", ".."}.intersection(path.split("/"))
    )


def _broken(path: str, reason: str) -> LockBroken:
    return LockBroken(
        Message("`{path}` cannot be used: {reason}", path=path, reason=reason),
        Message("Restore it from version control, or delete it and install the skills again"),
    )
