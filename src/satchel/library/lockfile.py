"""The lockfile: installed skills, their sources and the digests of their files.

There is one beside each folder that `satchel install` writes to. It is made for review: one fact
per line, sorted, so that branches that add different skills merge. Every entry has a checksum and
the file has one canonical form, so any changed byte is detected.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import locked, read_plain
from satchel._unicode import INVISIBLE
from satchel.errors import InvalidInput, LockBroken
from satchel.i18n import Message, join_names, say
from satchel.skill.file_tree import digest_of
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOCK_FILE = "satchel.lock"
VERSION = 1
_MAX_LOCK_BYTES = 64 << 20
_MAX_NAME_BYTES = 255
"""Of one file name, on every common file system."""


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
    """One installed skill, as the lockfile records it."""

    id: str
    """Name of its folder."""
    name: str
    """The name in its frontmatter."""
    place: LockedSource
    """Where it was installed from."""
    licence: str
    """The field `license` of its frontmatter."""
    tree: str
    """Digest of the installed files."""
    files: dict[str, str]
    """As `TreeDigest.files`."""
    scan: LockedVerdict = LockedVerdict()
    """The result of the scan at installation."""
    upstream: str = ""
    """Digest of the source's files, if `tree` includes edits of the user."""
    signer: str = ""
    """Recorded by 0.2; kept for the entry's checksum."""

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
        raise _broken_error(path, reason) from exc
    return parse_lock(data, path)


def interrupted_changes(lock_paths: Iterable[str], key_file: str) -> list[Problem]:
    """Problems of changes that a killed command left unfinished beside these lockfiles."""
    problems: list[Problem] = []
    for root in dict.fromkeys(os.path.dirname(path) for path in lock_paths if path):
        work = os.path.join(root, ".satchel")
        names = pending_changes(root, key_file)
        try:
            if names:
                with locked(os.path.join(work, "lock"), timeout=0, private=False):
                    names = pending_changes(root, key_file)
        except TimeoutError:
            continue  # it is in progress
        except OSError:
            pass  # not writable: it is reported
        if names:
            values = {"names": join_names(f"`{name}`" for name in names)}
            problems.append(Problem("change-interrupted", f"{work}/journal.json", values=values))
    return problems


def pending_changes(root: str, key_file: str = "") -> dict[str, str]:
    """The changes of a transaction in progress: id -> the new digest.

    Readers take no lock, so a folder may be ahead of the lockfile: the journal is written before
    the first folder changes, and deleted after the lockfile has changed.

    Args:
        root: The folder of the skills' folder and the lockfile.
        key_file: Path of the user's key, to ignore a journal that came with a project; empty to
            skip the check.
    """
    import json  # not on the way of `list`

    work = os.path.join(root, ".satchel")
    try:
        data = read_plain(os.path.join(work, "journal.json"), _MAX_LOCK_BYTES)
    except OSError:
        return {}
    from satchel.library.ownership import RECORD_KIND, verify_record

    try:
        table = json.loads(data)
        work_paths = (os.path.realpath(work),)
        if key_file and not verify_record(table, key_file, work_paths, RECORD_KIND):
            return {}
        return {str(change["id"]): str(change["after"]) for change in table["changes"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # damaged


def parse_lock(data: bytes, path: str = LOCK_FILE) -> Lock:
    """Parse the content of a lockfile.

    Raises:
        LockBroken: it is damaged or was edited.
    """
    import json  # not on the way of `list`

    if len(data) > _MAX_LOCK_BYTES:
        raise _broken_error(path, "it is too large")
    text = data.replace(b"\r\n", b"\n")
    try:
        table = json.loads(text)
        if table["version"] != VERSION:
            raise _broken_error(path, f"its version is {table['version']!r}, not {VERSION}")
        rows = table["skills"]
        lock = {str(skill_id): _parse_entry(str(skill_id), row) for skill_id, row in rows.items()}
        canonical_text = render_lock(lock)
    except InvalidInput as exc:
        raise _broken_error(path, exc.message) from exc
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        has_conflict = data.startswith(b"<<<<<<< ") or b"\n<<<<<<< " in data
        if has_conflict and isinstance(exc, ValueError):
            raise _conflict_error(path) from exc
        raise _broken_error(path, str(exc) or type(exc).__name__) from exc
    if text != canonical_text:
        for skill_id, row in rows.items():
            if row.get("check") != _checksum(lock[skill_id]):
                raise _broken_error(path, f"the entry `{skill_id}` does not match its check sum")
        raise _broken_error(path, "it was changed by hand")
    return lock


def render_lock(lock: Mapping[str, LockEntry]) -> bytes:
    """Write the canonical form of a lock.

    Raises:
        InvalidInput: an entry is invalid and could not be read again.
    """
    import json  # not on the way of `list`

    for entry in lock.values():
        if reason := entry_fault(entry):
            raise InvalidInput(reason, say("Rename it"))
    rows = {
        skill_id: {**_entry_values(lock[skill_id]), "check": _checksum(lock[skill_id])}
        for skill_id in sorted(lock)
    }
    text = json.dumps({"version": VERSION, "skills": rows}, indent=1, ensure_ascii=True)
    return (text + "\n").encode()


def _entry_values(entry: LockEntry) -> dict[str, Any]:
    """The JSON values of an entry, without empty ones."""
    source = {key: value for key, value in entry.place._asdict().items() if value}
    scan = {
        key: list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        for key, value in entry.scan._asdict().items()
        if value
    }
    values: dict[str, Any] = {
        "name": entry.name,
        "source": source,
        "licence": entry.licence,
        "scan": scan,
        "signer": entry.signer,
        "upstream": entry.upstream,
        "tree": entry.tree,
        "files": {path: entry.files[path] for path in sorted(entry.files)},
    }
    required_keys = {"name", "tree", "files"}
    return {key: value for key, value in values.items() if value or key in required_keys}


def _parse_entry(skill_id: str, values: dict[str, Any]) -> LockEntry:
    """The entry of JSON values, as `_entry_values` returned them."""
    scan = dict(values.get("scan", {}))
    scan["rules"] = tuple(map(str, scan.get("rules", ())))
    return LockEntry(
        id=skill_id,
        name=str(values["name"]),
        place=LockedSource(**{name: str(value) for name, value in values["source"].items()}),
        licence=str(values.get("licence", "")),
        tree=str(values["tree"]),
        files={str(path): str(digest) for path, digest in values["files"].items()},
        scan=LockedVerdict(**scan),
        upstream=str(values.get("upstream", "")),
        signer=str(values.get("signer", "")),
    )


def _checksum(entry: LockEntry) -> str:
    """Checksum over an entry and its id."""
    import json  # not on the way of `list`
    from hashlib import sha256

    text = json.dumps([entry.id, _entry_values(entry)], ensure_ascii=True, sort_keys=True)
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


def _relative_to_cwd(path: str) -> str:
    """A path as git finds it from the present folder."""
    try:
        return os.path.relpath(path)
    except (OSError, ValueError):  # the folder is gone, or it is on another drive
        return path


def _conflict_error(path: str) -> LockBroken:
    return LockBroken(
        Message(
            "`{path}` cannot be used: {reason}",
            path=path,
            reason=Message("it has an unresolved merge conflict"),
        ),
        Message(
            "Take one side with `git checkout --ours {path}` or `--theirs`, then run "
            "`satchel verify`, which names the skills that are not locked",
            path=_relative_to_cwd(path),
        ),
    )


def _broken_error(path: str, reason: str) -> LockBroken:
    return LockBroken(
        Message("`{path}` cannot be used: {reason}", path=path, reason=reason),
        Message("Restore it from version control, or delete it and install the skills again"),
    )
