"""Trusted folders, blocked skills and accepted risks of one user, and the key of own records.

One JSON file in the state folder, readable by people. A skill of a project is offered when its
folder, with links resolved, lies in a trusted folder. A skill whose content the scan blocked is
neither offered nor loaded until that content is accepted.

A project may bring a `.satchel` of its own, and a `git pull` may put files into ours. So what is
believed later, the journal and the history, carries a seal: a keyed sum over its content and over
the real path of the work area. The key is in the user's state folder and nowhere else.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import RACY_NS, is_inside, read_plain, write_atomic
from satchel._fs import locked as file_lock
from satchel._language import Message
from satchel.errors import Refused, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

NAME = "work.key"
MEMORY = "(memory)"
"""Instead of a path: there is no state folder, so the key lives as long as the process."""
SEAL = "seal"
RECORD = "record"
_KEY = re.compile(rb"[0-9a-f]{64}")
_MAX_FILE = 1024
_NOT_KEPT = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
_memory: dict[str, bytes] = {}


def key_path(state: str) -> str:
    """Where the key of a user is, for the path of the state folder."""
    return os.path.join(state, NAME) if state else MEMORY


def read_key(path: str) -> bytes:
    """The key; empty when there is none yet.

    Raises:
        OSError: it cannot be read, or is damaged. That must not look as if there were none.
    """
    if path == MEMORY:
        return _memory.get(path, b"")
    try:
        data = read_plain(path, _MAX_FILE).strip()
    except (FileNotFoundError, NotADirectoryError):
        return _memory.get(path, b"")
    if not _KEY.fullmatch(data):
        raise OSError(errno.EINVAL, "it is damaged; delete it to begin with a new one", path)
    return bytes.fromhex(data.decode())


def own_key(path: str) -> tuple[bytes, str]:
    """The key, made at the first use; and why it cannot be kept, when it cannot.

    Raises:
        OSError: the disk says no, in a way that may be over soon.
    """
    key = read_key(path)
    if key and path not in _memory:
        return key, ""
    if path == MEMORY:
        return _memory.setdefault(path, os.urandom(32)), "there is no state folder"
    try:
        with file_lock(path + ".lock"):
            key = b"" if path in _memory else read_key(path)
            if not key:
                key = _memory.get(path) or os.urandom(32)
                write_atomic(path, key.hex().encode() + b"\n", private=True)
                _memory.pop(path, None)
    except OSError as exc:
        if exc.errno not in _NOT_KEPT:
            raise
        return _memory.setdefault(path, key or os.urandom(32)), exc.strerror or str(exc)
    return key, ""


def mark_of(key: bytes, work: str) -> str:
    """What stands in a work area so that its owner knows it again. It is no secret."""
    return _sum(key, b"owner", work, b"")[:32]


def seal_of(table: Mapping[str, Any], key: bytes, work: str, kind: str) -> str:
    """The seal of what is about to be written.

    Args:
        table: The content, as JSON knows it; a seal in it does not count.
        key: Whose.
        work: The work area that it belongs to.
        kind: What it is, so that nothing passes for something else.
    """
    import json

    bare = {name: value for name, value in table.items() if name != SEAL}
    return _sum(key, kind.encode(), work, json.dumps(bare, sort_keys=True).encode())


def is_sealed(table: Mapping[str, Any], path: str, work: str, kind: str) -> bool:
    """Whether something that was read carries the seal of the key at `path`.

    Raises:
        OSError: the key cannot be read.
    """
    from hmac import compare_digest

    key, given = read_key(path), table.get(SEAL)
    if not key or not isinstance(given, str) or not given.isascii():
        return False
    return compare_digest(seal_of(table, key, work, kind), given)


def _sum(key: bytes, kind: bytes, work: str, data: bytes) -> str:
    import hmac

    place = os.fsencode(os.path.realpath(work))
    framed = b"".join(b"%d:" % len(part) + part for part in (kind, place, data))
    return hmac.new(key, framed, "sha256").hexdigest()


_VERSION = 3
_FOLDER_KINDS = frozenset(("project", "own"))
"""Entries of versions 1 and 2 that held for a folder whatever it contained."""
_MADE = " made"


class TrustRecord(NamedTuple):
    """What one user decided. Never changed in place: another state is another record."""

    folders: Mapping[str, str]
    """Real path of a trusted folder -> when it was trusted, and ` made` for a skill that the user
    made there. It holds for all that is below it."""
    blocked: Mapping[str, str]
    """Real path of a skill's folder -> the digest of the content that the scan blocked."""
    accepted: Mapping[str, str]
    """Digest of a blocked content -> why the user accepts it."""
    declined: Mapping[str, str]
    """Real path of a folder that the user does not trust -> when they said so."""
    removed: Mapping[str, str]
    """Real path of a trusted skill's folder that was removed -> the digest of what it held."""


_EMPTY = TrustRecord({}, {}, {}, {}, {})


class TrustBook:
    """The trust file of one user."""

    def __init__(self, path: str | None, *, locked: bool = False) -> None:
        """Open the trust file.

        Args:
            path: The file; None keeps decisions in memory.
            locked: Only what a lockfile pins may be used, whatever is trusted.
        """
        self._path = path
        self.locked = locked
        self._record = _EMPTY
        self._stamp: tuple[int, int, int] | None = None

    @property
    def marks(self) -> str:
        """Path of the same user's key for files that Satchel wrote itself."""
        return key_path(os.path.dirname(self._path) if self._path is not None else "")

    def read(self) -> TrustRecord:
        """What was decided; the same object while nothing changed.

        Raises:
            SettingsError: the file is damaged. A damaged file is never a yes.
        """
        if self._path is None:
            return self._record
        try:
            info = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            self._record, self._stamp = _EMPTY, None
            return _EMPTY
        except OSError as exc:
            raise SettingsError(
                Message(
                    "`{path}` cannot be read: {reason}", path=self._path, reason=exc.strerror or exc
                ),
                "Look after the disk, then run the command again",
            ) from exc
        stamp = (info.st_ctime_ns, info.st_size, info.st_ino)
        if stamp != self._stamp:
            import time

            found = _read(self._path)
            if found != self._record:
                self._record = found
            # A file that was just written may be written again within one tick of the clock.
            young = time.time_ns() - info.st_ctime_ns < RACY_NS
            self._stamp = None if young else stamp
        return self._record

    def trusts(self, path: str, project: str = "") -> bool:
        """Whether a folder, with links resolved, lies in a trusted folder.

        Args:
            path: The folder.
            project: Its project: trust in a folder around that does not count, since a clone may
                lie in a folder of the user's own.
        """
        folders = _within(self.read().folders, project)
        return bool(folders) and _is_below(os.path.realpath(path), folders)

    def trust(self, *paths: str, made: bool = False) -> None:
        """Trust folders, with all that they hold now and later.

        Args:
            paths: The folders.
            made: They are skills that the user made here, not installed ones.

        Raises:
            Refused: the decision cannot be kept.
        """
        reals = [os.path.realpath(path) for path in paths]
        now = _now() + (_MADE if made else "")

        def change(old: TrustRecord) -> TrustRecord:
            declined = {one: since for one, since in old.declined.items() if one not in reals}
            removed = {one: digest for one, digest in old.removed.items() if one not in reals}
            folders = {**old.folders, **dict.fromkeys(reals, now)}
            return old._replace(folders=folders, declined=declined, removed=removed)

        self._change(change)

    def is_made(self, path: str) -> bool:
        """Whether the user made the skill in a folder here."""
        return self.read().folders.get(os.path.realpath(path), "").endswith(_MADE)

    def decline(self, path: str) -> None:
        """Remember that the user does not trust a folder, so that they are not asked again."""
        real = os.path.realpath(path)
        self._change(lambda old: old._replace(declined={**old.declined, real: _now()}))

    def declines(self, path: str) -> bool:
        """Whether the user said that they do not trust a folder."""
        return os.path.realpath(path) in self.read().declined

    def revoke(self, path: str) -> bool:
        """Trust a folder, and those below it, no more; True when one of them was trusted."""
        real = os.path.realpath(path)
        before = self.read().folders
        if not any(is_inside(one, real) for one in before):
            return False

        def without(old: TrustRecord) -> TrustRecord:
            left = {one: since for one, since in old.folders.items() if not is_inside(one, real)}
            return old._replace(folders=left)

        self._change(without)
        return True

    def set_aside(self, path: str, digest: str) -> None:
        """End the trust in a folder that was removed; the same content brought back is trusted."""
        real = os.path.realpath(path)
        if real not in self.read().folders:
            return

        def change(old: TrustRecord) -> TrustRecord:
            left = {one: since for one, since in old.folders.items() if one != real}
            made = _MADE if old.folders.get(real, "").endswith(_MADE) else ""
            return old._replace(folders=left, removed={**old.removed, real: digest + made})

        self._change(change)

    def bring_back(self, path: str, digest: str) -> None:
        """Trust a removed folder again when it holds what it held."""
        removed = self.read().removed.get(os.path.realpath(path), "")
        if digest and removed.removesuffix(_MADE) == digest:
            self.trust(path, made=removed.endswith(_MADE))

    def block(self, found: Mapping[str, str]) -> None:
        """Remember what the scan found in skills.

        Args:
            found: A skill's folder -> the digest of its blocked content; empty when what it holds
                now is not blocked.
        """
        rows = {os.path.realpath(path): digest for path, digest in found.items()}
        known = self.read().blocked
        if all(known.get(path, "") == digest for path, digest in rows.items()):
            return

        def change(old: TrustRecord) -> TrustRecord:
            merged = {**old.blocked, **rows}
            return old._replace(blocked={path: one for path, one in merged.items() if one})

        self._change(change)

    def accept(self, digest: str, reason: str) -> None:
        """Use a blocked content all the same.

        Raises:
            Refused: the decision cannot be kept.
        """
        said = f"{_now()[:10]}: {reason}"
        self._change(lambda old: old._replace(accepted={**old.accepted, digest: said}))

    def accepts(self, digest: str) -> bool:
        """Whether the user accepted a content that the scan blocked."""
        return digest in self.read().accepted

    def of_location(
        self, root: str, links: Mapping[str, str], *, own: bool | None = None, project: str = ""
    ) -> LocationTrust:
        """How the skills of a location stand.

        Args:
            root: The location's folder.
            links: Followed links below it: real target -> id of the link.
            own: Trust or distrust all of it, whatever was decided; None asks what was decided.
            project: The project that the location belongs to, as for `trusts`.
        """
        record = self.read()
        record = record._replace(folders=_within(record.folders, project))
        return LocationTrust(os.path.realpath(root), record, links, own=own)

    def _change(self, change: Callable[[TrustRecord], TrustRecord]) -> None:
        if self._path is None:
            self._record = change(self._record)
            return
        try:
            with file_lock(self._path + ".lock"):
                self._stamp = None
                with suppress(FileNotFoundError):
                    os.stat(self._path)  # one that is hidden for the moment must not be replaced
                record = change(self.read())
                # ASCII only: folder names that are not UTF-8 come back as they were.
                text = _dump({"version": _VERSION, **record._asdict()})
                write_atomic(self._path, text, private=True)
                self._stamp = None
        except OSError as exc:
            raise Refused(
                Message(
                    "Trust cannot be kept in `{path}`: {reason}",
                    path=self._path,
                    reason=exc.strerror or exc,
                ),
                "Make the folder writable, or set `SATCHEL_HOME` to one that is",
            ) from exc


class LocationTrust:
    """Trust for the skills of one location, cheap to ask a hundred thousand times."""

    def __init__(
        self, root: str, record: TrustRecord, links: Mapping[str, str], *, own: bool | None = None
    ) -> None:
        self._root = root
        self._folders = record.folders
        self._blocked = record.blocked
        self._links = {via: target for target, via in links.items()}
        self._all = own
        """For every skill alike; None when each is looked at."""
        if own is None and not links and _is_below(root, record.folders):
            self._all = True

    def trusts(self, skill_id: str) -> bool:
        """Whether a skill lies in a trusted folder, or its location needs none."""
        if self._all is not None:
            return self._all
        return bool(self._folders) and _is_below(self._real(skill_id), self._folders)

    def blocked(self, skill_id: str) -> str:
        """The digest of a skill's content that the scan blocked; empty when it blocked none."""
        return self._blocked.get(self._real(skill_id), "") if self._blocked else ""

    def _real(self, skill_id: str) -> str:
        """The folder of a skill with links resolved."""
        link = skill_id
        while link and self._links:
            target = self._links.get(link)
            if target is not None:
                return (target + skill_id[len(link) :]).replace("/", os.sep)
            link = link.rpartition("/")[0]
        return os.path.join(self._root, skill_id.replace("/", os.sep)) if skill_id else self._root


def _within(folders: Mapping[str, str], project: str) -> Mapping[str, str]:
    """The trusted folders that count for a project: it, and those below it."""
    if not project or not folders:
        return folders
    real = os.path.realpath(project)
    return {folder: since for folder, since in folders.items() if is_inside(folder, real)}


def _is_below(real: str, folders: Iterable[str]) -> bool:
    return any(is_inside(real, folder) for folder in folders)


def _now() -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _dump(table: Mapping[str, Any]) -> bytes:
    import json

    return (json.dumps(table, indent=2) + "\n").encode("ascii")


def _read(path: str) -> TrustRecord:
    import json

    try:
        with open(path, encoding="utf-8") as stream:
            table = json.load(stream)
        version = table["version"]
        if version in (1, 2):
            return _of_old(table["folders"])
        if version == _VERSION:
            return TrustRecord(*(_texts(table[key]) for key in TrustRecord._fields))
        reason = f"its version is {version!r}"
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
        reason = str(exc)
    raise SettingsError(
        Message("The trust file `{path}` cannot be read: {reason}", path=path, reason=reason),
        Message("Correct it, or delete it and trust again"),
    )


def _of_old(folders: Mapping[str, Mapping[str, Any]]) -> TrustRecord:
    """Folders that were trusted whatever they held. Entries for single contents lapse."""
    kept = {
        str(folder): str(row.get("since", ""))
        for folder, row in folders.items()
        if row["kind"] in _FOLDER_KINDS
    }
    return _EMPTY._replace(folders=kept)


def _texts(value: Any) -> dict[str, str]:
    rows = cast("dict[object, object]", value) if isinstance(value, dict) else {None: None}
    if not all(isinstance(text, str) for row in rows.items() for text in row):
        raise TypeError("its parts are tables of texts")
    return cast("dict[str, str]", value)
