"""Trusted folders, blocked skills, accepted risks and granted tools of one user.

They are in one readable JSON file in the state folder. A skill of a project is offered when its
folder, with links resolved, lies in a trusted folder. A skill whose content the scan blocked is
neither offered nor loaded until that content is accepted.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import RACY_NS, is_inside, write_atomic
from satchel._fs import locked as file_lock
from satchel.errors import Refused, SettingsError
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_VERSION = 3
_MADE = " made"
_MAX_DIGESTS = 20


class TrustRecord(NamedTuple):
    """The decisions of one user. Immutable: a change creates a new record."""

    folders: Mapping[str, str]
    """Real path of a trusted folder -> when it was trusted, followed by ` made` for a skill that
    the user created. Folders below it are trusted too."""
    blocked: Mapping[str, str]
    """Real path of a skill's folder -> the digest of its blocked content."""
    accepted: Mapping[str, str]
    """Digest of a blocked content -> the user's reason to accept it."""
    declined: Mapping[str, str]
    """Real path of a folder that the user declined to trust -> when."""
    removed: Mapping[str, str]
    """Real path of a folder that a change replaced or removed -> the digests of its content that
    was trusted, newest last; an undo restores this trust."""
    granted: Mapping[str, str] = {}
    """Real path of a skill's folder -> the digest of the content whose requests the user granted,
    followed by what was granted: ` tools`. Missing in files of 0.2."""


_EMPTY = TrustRecord({}, {}, {}, {}, {})
_TOOLS = " tools"


class TrustStore:
    """The trust file of one user."""

    def __init__(
        self,
        path: str | None,
        *,
        locked: bool = False,
        grants: Mapping[str, Mapping[str, tuple[str, ...]]] = {},
    ) -> None:
        """Open the trust file.

        Args:
            path: The file; None keeps decisions in memory.
            locked: Skills must also be pinned by a lockfile.
            grants: The setting `grants`.
        """
        self._path = path
        self.locked = locked
        self._grants = grants
        self._record = _EMPTY
        self._stamp: tuple[int, int, int] | None = None

    @property
    def marks(self) -> str:
        """Path of the user's key for Satchel's own records."""
        from satchel.library.ownership import key_path

        return key_path(os.path.dirname(self._path) if self._path is not None else "")

    def read(self) -> TrustRecord:
        """Read the decisions; returns the same object while nothing changed.

        Raises:
            SettingsError: the file is damaged.
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
            found = _read(self._path)
            if found != self._record:
                self._record = found
            # A file that was just written may change again within the same timestamp.
            young = time.time_ns() - info.st_ctime_ns < RACY_NS
            self._stamp = None if young else stamp
        return self._record

    def trusts(self, path: str, project: str = "") -> bool:
        """Whether a folder, with links resolved, lies in a trusted folder.

        Args:
            path: The folder.
            project: Its project: trust in a folder around it does not count, since a clone may lie
                in a folder of the user's own.
        """
        folders = self.read().folders
        return bool(folders) and _is_below(os.path.realpath(path), folders, _real(project))

    def trust(self, *paths: str, made: bool = False) -> None:
        """Trust folders with their present and future content.

        Args:
            paths: The folders.
            made: The user created these skills; they were not installed.

        Raises:
            Refused: the decision cannot be saved.
        """
        reals = [os.path.realpath(path) for path in paths]
        now = _now() + (_MADE if made else "")

        def change(old: TrustRecord) -> TrustRecord:
            declined = {one: since for one, since in old.declined.items() if one not in reals}
            folders = {**old.folders, **dict.fromkeys(reals, now)}
            return old._replace(folders=folders, declined=declined)

        self._change(change)

    def is_authored(self, path: str) -> bool:
        """Whether the user created the skill in a folder."""
        return self.read().folders.get(os.path.realpath(path), "").endswith(_MADE)

    def decline(self, path: str) -> None:
        """Record that the user declined to trust a folder, to avoid asking again."""
        real = os.path.realpath(path)
        self._change(lambda old: old._replace(declined={**old.declined, real: _now()}))

    def declines(self, path: str) -> bool:
        """Whether the user declined to trust a folder."""
        return os.path.realpath(path) in self.read().declined

    def revoke(self, path: str) -> bool:
        """Revoke the trust in a folder and those below it; True when one of them was trusted."""
        real = os.path.realpath(path)
        before = self.read().folders
        if not any(is_inside(one, real) for one in before):
            return False

        def without(old: TrustRecord) -> TrustRecord:
            folders, removed, granted = (
                {path: text for path, text in table.items() if not is_inside(path, real)}
                for table in (old.folders, old.removed, old.granted)
            )
            return old._replace(folders=folders, removed=removed, granted=granted)

        self._change(without)
        return True

    def suspend(self, contents: Mapping[str, str], *, keep: Collection[str] = ()) -> None:
        """Revoke the trust in folders whose content was replaced, until it is restored.

        Args:
            contents: Folder -> the digest of its former content; empty when there was none.
            keep: Folders that stay trusted with their new content.
        """
        reals = {os.path.realpath(path): digest for path, digest in contents.items()}
        kept = set(map(os.path.realpath, keep))

        def change(old: TrustRecord) -> TrustRecord:
            folders, removed = dict(old.folders), dict(old.removed)
            for real in reals.keys() & folders.keys():
                made = _MADE if folders[real].endswith(_MADE) else ""
                if digest := reals[real]:
                    known = [one for one in _digests(removed.get(real, "")) if one != digest + made]
                    removed[real] = ",".join([*known[1 - _MAX_DIGESTS :], digest + made])
                if real not in kept:
                    del folders[real]
            return old._replace(folders=folders, removed=removed)

        if reals.keys() & self.read().folders.keys():
            self._change(change)

    def restore(self, path: str, digest: str) -> None:
        """Trust a folder again if it has a content that was trusted there."""
        known = _digests(self.read().removed.get(os.path.realpath(path), ""))
        if digest and any(one in known for one in (digest, digest + _MADE)):
            self.trust(path, made=digest + _MADE in known)

    def block(self, found: Mapping[str, str]) -> None:
        """Record scan results.

        Args:
            found: A skill's folder -> the digest of its blocked content; empty when its present
                content is not blocked.
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
        """Accept the risk of a blocked content.

        Raises:
            Refused: the decision cannot be saved.
        """
        said = f"{_now()[:10]}: {reason}"
        self._change(lambda old: old._replace(accepted={**old.accepted, digest: said}))

    def accepts(self, digest: str) -> bool:
        """Whether the user accepted the risk of a content."""
        return digest in self.read().accepted

    def grant_tools(self, contents: Mapping[str, str]) -> None:
        """Grant skills the tools that they request, as long as their content stays the same.

        Args:
            contents: A skill's folder -> the digest of its content.

        Raises:
            Refused: the decision cannot be saved.
        """
        rows = {os.path.realpath(path): digest + _TOOLS for path, digest in contents.items()}
        if rows:
            self._change(lambda old: old._replace(granted={**old.granted, **rows}))

    def has_tool_grant(self, path: str, digest: str) -> bool:
        """Whether the user granted the requests of a skill with this content."""
        granted = self.read().granted
        return bool(granted) and granted.get(os.path.realpath(path), "") == digest + _TOOLS

    def withdraw_grant(self, path: str) -> bool:
        """Withdraw what was granted to a skill; True when something was."""
        real = os.path.realpath(path)
        if real not in self.read().granted:
            return False
        self._change(
            lambda old: old._replace(
                granted={path: text for path, text in old.granted.items() if path != real}
            )
        )
        return True

    def configured_tools(self, name: str) -> tuple[str, ...]:
        """The tools that the setting `grants` allows a skill by name."""
        return self._grants.get(name, {}).get("tools", ())

    def location_trust(
        self, root: str, links: Mapping[str, str], *, own: bool | None = None, project: str = ""
    ) -> LocationTrust:
        """Return the trust of a location's skills.

        Args:
            root: The location's folder.
            links: Followed links below it: real target -> id of the link.
            own: Trust or distrust all of it; None applies the decisions.
            project: The project that the location belongs to, as for `trusts`.
        """
        return LocationTrust(os.path.realpath(root), self.read(), links, _real(project), own=own)

    def _change(self, change: Callable[[TrustRecord], TrustRecord]) -> None:
        if self._path is None:
            self._record = change(self._record)
            return
        import json

        try:
            with file_lock(self._path + ".lock"):
                self._stamp = None
                with suppress(FileNotFoundError):
                    os.stat(self._path)  # a file that cannot be read must not be replaced
                record = change(self.read())
                # ASCII only: preserves folder names that are not UTF-8.
                text = json.dumps({"version": _VERSION, **record._asdict()}, indent=2) + "\n"
                write_atomic(self._path, text.encode("ascii"), private=True)
                self._stamp = None
        except OSError as exc:
            raise Refused(
                Message(
                    "`{path}` cannot be written: {reason}",
                    path=self._path,
                    reason=exc.strerror or exc,
                ),
                "Check the permissions",
            ) from exc


class LocationTrust:
    """Trust for the skills of one location; fast for a hundred thousand lookups."""

    def __init__(
        self,
        root: str,
        record: TrustRecord,
        links: Mapping[str, str],
        project: str,
        *,
        own: bool | None = None,
    ) -> None:
        self._root = root
        self._project = project
        self._folders = record.folders
        self._blocked = record.blocked
        self._links = {via: target for target, via in links.items()}
        self._all = own
        """For all skills; None when each must be checked."""
        if own is None and not links and _is_below(root, record.folders, project):
            self._all = True

    @property
    def is_complete(self) -> bool:
        """Whether all skills are trusted and none is blocked."""
        return self._all is True and not self._blocked

    def trusts(self, skill_id: str) -> bool:
        """Whether a skill lies in a trusted folder, or its whole location is trusted."""
        if self._all is not None:
            return self._all
        return _is_below(self._real(skill_id), self._folders, self._project)

    def blocked(self, skill_id: str) -> str:
        """The digest of a skill's blocked content, or empty."""
        return self._blocked.get(self._real(skill_id), "") if self._blocked else ""

    def _real(self, skill_id: str) -> str:
        link = skill_id
        while link and self._links:
            target = self._links.get(link)
            if target is not None:
                return (target + skill_id[len(link) :]).replace("/", os.sep)
            link = link.rpartition("/")[0]
        return os.path.join(self._root, skill_id.replace("/", os.sep)) if skill_id else self._root


def _real(path: str) -> str:
    return os.path.realpath(path) if path else ""


def _is_below(real: str, folders: Mapping[str, str], project: str) -> bool:
    """Whether a real path lies in a trusted folder; in a project, in one that is not around it."""
    if not folders or (project and not is_inside(real, project)):
        return False
    while real not in folders:
        parent = str(os.path.dirname(real))
        if real in (project, parent):
            return False
        real = parent
    return True


def _digests(text: str) -> list[str]:
    return text.split(",") if text else []


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _read(path: str) -> TrustRecord:
    import json

    try:
        with open(path, encoding="utf-8") as stream:
            table = json.load(stream)
        version = table["version"]
        if version in (1, 2):
            return _EMPTY  # of 0.1: folders are asked about again
        if version == _VERSION:
            table.setdefault("granted", {})
            return TrustRecord(*(_texts(table[key]) for key in TrustRecord._fields))
        reason = f"its version is {version!r}"
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
        reason = str(exc)
    raise SettingsError(
        Message("`{path}` cannot be used: {reason}", path=path, reason=reason),
        Message("Correct it"),
    )


def _texts(value: Any) -> dict[str, str]:
    rows = cast("dict[object, object]", value) if isinstance(value, dict) else {None: None}
    if not all(isinstance(text, str) for row in rows.items() for text in row):
        raise TypeError("its parts are tables of texts")
    return cast("dict[str, str]", value)
