"""The lockfile: what was installed, from where, and what it looked like.

One file beside each folder that `satchel import` writes to. It is made for people who review a
change: one line a fact, sorted, so that two branches that add different skills merge. Every entry
carries a check sum, and the file has one way to be written, so a single changed byte is noticed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import locked, read_small
from satchel._language import Message, listed, say
from satchel.errors import InvalidInput, LockBroken
from satchel.library.trust import RECORD, is_sealed
from satchel.skill.problems import Problem
from satchel.skill.tree import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = "satchel.lock"
VERSION = 1
_MAX_FILE = 64 << 20
_MAX_NAME = 255  # bytes of one file name, on every common file system
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Place(NamedTuple):
    """Where a skill came from."""

    kind: str
    """`new`, `folder`, `archive`, `git`; `upload` came through a browser and cannot be fetched
    again; a hub's client adds its own."""
    url: str = ""
    """A path or address without any password; relative to the lockfile when it is near."""
    ref: str = ""
    """The branch or tag that was asked for."""
    commit: str = ""
    """What it meant then."""
    path: str = ""
    """The skill's folder within the source."""


class Verdict(NamedTuple):
    """What a scan said when the skill was installed."""

    verdict: str = ""
    """`blocked`, `review`, `no findings`, `incomplete`; empty when nothing was scanned."""
    rules: tuple[str, ...] = ()
    """The rules that fired, without notes."""
    engine: str = ""
    """Which rules were run, such as `satchel-1`."""
    accepted: str = ""
    """When somebody installed it all the same: the day, and why."""


class Locked(NamedTuple):
    """One installed skill."""

    id: str
    """Its folder."""
    name: str
    place: Place
    licence: str
    tree: str
    """Digest of what is installed."""
    files: dict[str, str]
    """As `skill.tree.Seal.files`."""
    scan: Verdict = Verdict()
    upstream: str = ""
    """Digest of what the source had, when the user's own edits make `tree` another."""
    signer: str = ""
    """Who signed it, when a signature was verified."""

    @property
    def edited(self) -> bool:
        """The user's own edits are part of what is locked."""
        return bool(self.upstream) and self.upstream != self.tree


Lock = dict[str, Locked]
"""Entries by id."""


def lock_path(skills_folder: str) -> str:
    """The lockfile that belongs to a folder with skills: beside it."""
    return os.path.join(os.path.dirname(os.path.abspath(skills_folder)), NAME)


def read_lock(path: str) -> Lock:
    """Read a lockfile; there is none: nothing is locked.

    Raises:
        LockBroken: it is damaged. A damaged lock never says yes.
    """
    try:
        data = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as exc:
        reason = "it is a link" if os.path.islink(path) else exc.strerror or str(exc)
        raise _broken(path, reason) from exc
    return parse_lock(data, path)


def read_bytes(path: str) -> bytes:
    """A lockfile's content. Of a stranger's project: no link to a key, no pipe to wait for.

    Raises:
        OSError: it cannot be read, is a link, is no regular file, or is too large.
    """
    if not _NOFOLLOW and os.path.islink(path):
        raise OSError(f"`{path}` is a link")
    descriptor = os.open(path, _OPEN | _NOFOLLOW)
    try:
        return read_small(descriptor, _MAX_FILE)
    finally:
        os.close(descriptor)


def interrupted(locks: Iterable[str], marks: str) -> list[Problem]:
    """Changes that a killed command left unfinished beside these lockfiles.

    A journal whose writer still holds the lock of the work area is a change under way, not one
    that was interrupted.
    """
    found: list[Problem] = []
    for root in dict.fromkeys(os.path.dirname(lock) for lock in locks if lock):
        work = os.path.join(root, ".satchel")
        path = os.path.join(work, "journal.json")
        names = pending(root, marks)
        if not names:
            continue
        try:
            with locked(os.path.join(work, "lock"), timeout=0, private=False):
                names = pending(root, marks)
        except TimeoutError:
            continue
        except OSError:
            pass  # nobody can write there now, and the journal says what is left
        if names:
            listing = listed(f"`{name}`" for name in names)
            found.append(Problem("change-interrupted", path, values={"names": listing}))
    return found


def pending(root: str, marks: str = "") -> dict[str, str]:
    """What a transaction under way puts in place: id -> the digest it will have.

    A reader takes no lock. A folder that is not what the lockfile says may be ahead of it: the
    journal is on the disk before the first folder changes, and goes after the lockfile did.

    Args:
        root: What holds the skills' folder and the lockfile.
        marks: The user's key: a journal that came with a project says nothing. Empty: not checked.
    """
    work = os.path.join(root, ".satchel")
    try:
        descriptor = os.open(os.path.join(work, "journal.json"), _OPEN | _NOFOLLOW)
    except OSError:
        return {}
    import json

    try:
        table = json.loads(read_small(descriptor, _MAX_FILE))
        if marks and not is_sealed(table, marks, work, RECORD):
            return {}
        return {str(row["id"]): str(row["after"]) for row in table["changes"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # damaged: it says nothing
    finally:
        os.close(descriptor)


def parse_lock(data: bytes, path: str = NAME) -> Lock:
    """The entries of a lockfile's content.

    Raises:
        LockBroken: it is damaged, or not as Satchel wrote it.
    """
    import json

    if len(data) > _MAX_FILE:
        raise _broken(path, "it is too large")
    try:
        table = json.loads(data.replace(b"\r\n", b"\n"))
        if table["version"] != VERSION:
            raise _broken(path, f"its version is {table['version']!r}, not {VERSION}")
        lock = {str(key): _entry(str(key), row) for key, row in table["skills"].items()}
        text = render_lock(lock)
    except InvalidInput as exc:
        raise _broken(path, exc.message) from exc
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise _broken(path, str(exc) or type(exc).__name__) from exc
    if text != data.replace(b"\r\n", b"\n"):
        for key, row in table["skills"].items():
            if row.get("check") != _check(lock[key]):
                raise _broken(path, f"the entry `{key}` does not match its check sum")
        raise _broken(path, "it was changed by hand")
    return lock


def salvage(path: str) -> Lock:
    """The sound entries of a lockfile that is damaged; none when nothing can be read.

    The file need not be JSON as a whole: it may be cut short, or hold conflict markers.
    """
    import json
    import re

    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return {}
    sound: Lock = {}
    decoder = json.JSONDecoder()
    for found in re.finditer(r'"((?:[^"\\\n]|\\.)+)": \{', text):
        try:
            row, _ = decoder.raw_decode(text, found.end() - 1)
            entry = _entry(json.loads(f'"{found[1]}"'), row)
            if row.get("check") == _check(entry) and not fault(entry):
                sound[entry.id] = entry
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return sound


def render_lock(lock: Mapping[str, Locked]) -> bytes:
    """The one way to write a lock.

    Raises:
        InvalidInput: an entry cannot be in one; it would not be read again.
    """
    import json

    for entry in lock.values():
        if reason := fault(entry):
            raise InvalidInput(reason, say("Rename it, then try again"))
    rows = {key: {**_row(lock[key]), "check": _check(lock[key])} for key in sorted(lock)}
    text = json.dumps({"version": VERSION, "skills": rows}, indent=1, ensure_ascii=True)
    return (text + "\n").encode()


def _row(entry: Locked) -> dict[str, Any]:
    """An entry as JSON, without what is empty."""
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


def _entry(key: str, row: dict[str, Any]) -> Locked:
    scan = dict(row.get("scan", {}))
    scan["rules"] = tuple(map(str, scan.get("rules", ())))
    return Locked(
        key,
        str(row["name"]),
        Place(**{name: str(value) for name, value in row["source"].items()}),
        str(row.get("licence", "")),
        str(row["tree"]),
        {str(path): str(mark) for path, mark in row["files"].items()},
        Verdict(**scan),
        str(row.get("upstream", "")),
        str(row.get("signer", "")),
    )


def _check(entry: Locked) -> str:
    """A short sum over everything an entry says, its id included."""
    import json
    from hashlib import sha256

    text = json.dumps([entry.id, _row(entry)], ensure_ascii=True, sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def fault(entry: Locked) -> str:
    """Why an entry cannot be in a lockfile; empty when it can.

    A lockfile may come with an untrusted project, and names folders that are read.
    """
    if not is_id(entry.id):
        return say("`{name}` cannot be the name of a skill's folder", name=ascii(entry.id)[1:-1])
    for path in entry.files:
        if not _is_plain(path):
            return say(
                "`{name}` lists `{path}`, which cannot be a file of a skill",
                name=entry.id,
                path=ascii(path)[1:-1],
            )
    if not matches(entry):
        return say("the digest of `{name}` is not that of its files", name=entry.id)
    return ""


def matches(entry: Locked) -> bool:
    """Whether an entry's own digest is the one of its files."""
    try:
        return digest_of(entry.files) == entry.tree
    except UnicodeEncodeError:  # half a character, which no file name has
        return False


def check_id(skill_id: str) -> str:
    """Return an id that can be the name of a skill's folder.

    Folders that are already there have all kinds of names, so this is wider than what a skill's
    name should be: one visible folder name that every system can hold.

    Raises:
        InvalidInput: it cannot.
    """
    if not is_id(skill_id):
        raise InvalidInput(
            say("`{name}` cannot be the name of a skill's folder", name=ascii(skill_id)[1:-1]),
            say("Use a-z, 0-9 and single hyphens"),
        )
    return skill_id


def is_id(skill_id: str) -> bool:
    """Whether an id can be the name of a skill's folder."""
    from satchel.skill.interpret import INVISIBLE

    try:
        length = len(os.fsencode(skill_id))
    except UnicodeEncodeError:
        return False
    return (
        0 < length <= _MAX_NAME
        and skill_id[0] not in ". "
        and skill_id[-1] not in ". "
        and not any(sign in "/\\:" or ord(sign) < 32 or ord(sign) == 127 for sign in skill_id)
        and not INVISIBLE.search(skill_id)
    )


def _is_plain(path: str) -> bool:
    """Whether a path stays below the folder it is relative to, on every system."""
    return (
        "\0" not in path and "\\" not in path and not {"", ".", ".."}.intersection(path.split("/"))
    )


def _broken(path: str, reason: str) -> LockBroken:
    return LockBroken(
        Message("The lockfile `{path}` cannot be used: {reason}", path=path, reason=reason),
        Message(
            "Take it from version control again, or run `satchel lock "
            "--rebuild` to write it anew from what is installed"
        ),
    )
