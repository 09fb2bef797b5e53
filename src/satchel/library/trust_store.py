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
    from collections.abc import Callable, Collection, Mapping, Sequence

_VERSION = 3
_MAX_DIGESTS = 20
_AUTHORED_SUFFIX = " made"
"""Follows the time or the digest of a skill that the user created."""
_TOOLS, _NETWORK, _SECRET, _VARIABLE = "tools", "network", "secret:", "variable:"
"""What can be granted; the last two are followed by a name."""


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
    """Real path of a folder -> the digests of contents that are trusted there, newest last: those
    that a change replaced or removed, which an undo restores, and those that a change brings."""
    granted: Mapping[str, str] = {}
    """Real path of a skill's folder -> the digest of the content that the user granted something,
    followed by what was granted: ` tools`, ` network`, ` secret:NAME`, ` variable:NAME`. Missing in
    files of 0.2."""
    revoked: Mapping[str, str] = {}
    """Digest of a content that a hub revoked -> the hub's reason. Missing in files of 0.2."""


class ScriptGrant(NamedTuple):
    """What the user granted to the scripts of a skill."""

    network: bool = False
    secrets: tuple[str, ...] = ()
    """Names of variables whose values are replaced in the output."""
    variables: tuple[str, ...] = ()
    """Names of other variables."""


class FormerGrant(NamedTuple):
    """What was granted last to a skill, whose content may be another now."""

    digest: str
    """The digest of the content that it was granted to; empty when nothing was granted."""
    includes_tools: bool
    scripts: ScriptGrant


_EMPTY = TrustRecord({}, {}, {}, {}, {})


class TrustStore:
    """The trust file of one user."""

    def __init__(
        self,
        path: str | None,
        *,
        locked: bool = False,
        grants: Mapping[str, Mapping[str, Any]] = {},
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
    def key_path(self) -> str:
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
            record = _read(self._path)
            if record != self._record:
                self._record = record
            # A file that was just written may change again within the same timestamp.
            is_settled = time.time_ns() - info.st_ctime_ns >= RACY_NS
            self._stamp = stamp if is_settled else None
        return self._record

    def trusts(self, path: str, project: str = "") -> bool:
        """Whether a folder, with links resolved, lies in a trusted folder.

        Args:
            path: The folder.
            project: Its project: trust in a folder around it does not count, since a clone may lie
                in a folder of the user's own.
        """
        folders = self.read().folders
        return bool(folders) and _is_below(os.path.realpath(path), folders, _real_path(project))

    def trust(self, *paths: str, is_authored: bool = False) -> None:
        """Trust folders with their present and future content.

        Args:
            paths: The folders.
            is_authored: The user created these skills; they were not installed.

        Raises:
            Refused: the decision cannot be saved.
        """
        real_paths = [os.path.realpath(path) for path in paths]
        trusted_since = _now() + (_AUTHORED_SUFFIX if is_authored else "")

        def change(old: TrustRecord) -> TrustRecord:
            declined = {
                folder: since for folder, since in old.declined.items() if folder not in real_paths
            }
            folders = {**old.folders, **dict.fromkeys(real_paths, trusted_since)}
            return old._replace(folders=folders, declined=declined)

        self._change(change)

    def is_authored(self, path: str) -> bool:
        """Whether the user created the skill in a folder."""
        return self.read().folders.get(os.path.realpath(path), "").endswith(_AUTHORED_SUFFIX)

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
        if not any(is_inside(folder, real) for folder in before):
            return False

        def without_folder(table: Mapping[str, str]) -> dict[str, str]:
            return {path: text for path, text in table.items() if not is_inside(path, real)}

        def change(old: TrustRecord) -> TrustRecord:
            return old._replace(
                folders=without_folder(old.folders),
                removed=without_folder(old.removed),
                granted=without_folder(old.granted),
            )

        self._change(change)
        return True

    def expect_contents(
        self, contents: Mapping[str, str], *, trusted: Collection[str], authored: Collection[str]
    ) -> None:
        """Remember which contents of a change `follow_changes` trusts, and which it does not.

        Args:
            contents: Folder -> the digest of its new content.
            trusted: The folders among them that are trusted.
            authored: The trusted ones whose skills the user created.

        Raises:
            Refused: it cannot be saved.
        """

        def change(old: TrustRecord) -> TrustRecord:
            removed = dict(old.removed)
            for path, digest in contents.items():
                folder = os.path.realpath(path)
                known_digests = _split_digests(removed.pop(folder, ""))
                forms = (digest, digest + _AUTHORED_SUFFIX)
                text = ",".join(known for known in known_digests if known not in forms)
                if path in trusted:
                    text = _append_digest(text, forms[path in authored])
                if text:
                    removed[folder] = text
            return old._replace(removed=removed)

        self._change_if_needed(change)

    def follow_changes(self, changes: Mapping[str, tuple[str, str]]) -> None:
        """Trust folders whose content was replaced if the new content is known as trusted there.

        A second call with the same changes does nothing.

        Args:
            changes: Folder -> the digests of its content before and after; empty without one.

        Raises:
            Refused: it cannot be saved.
        """
        digests = {os.path.realpath(path): pair for path, pair in changes.items()}

        def change(old: TrustRecord) -> TrustRecord:
            folders, removed = dict(old.folders), dict(old.removed)
            for folder, (before, after) in digests.items():
                trusted_since = folders.pop(folder, "")
                if trusted_since and before:
                    suffix = _AUTHORED_SUFFIX * trusted_since.endswith(_AUTHORED_SUFFIX)
                    removed[folder] = _append_digest(removed.get(folder, ""), before + suffix)
                known_digests = _split_digests(removed.get(folder, ""))
                suffix = _AUTHORED_SUFFIX * (after + _AUTHORED_SUFFIX in known_digests)
                if after and after + suffix in known_digests:
                    is_same_kind = trusted_since.endswith(_AUTHORED_SUFFIX) is bool(suffix)
                    is_kept = bool(trusted_since) and is_same_kind
                    folders[folder] = trusted_since if is_kept else _now() + suffix
            return old._replace(folders=folders, removed=removed)

        self._change_if_needed(change)

    def block(self, verdicts: Mapping[str, str]) -> None:
        """Record scan results.

        Args:
            verdicts: A skill's folder -> the digest of its blocked content; empty when its present
                content is not blocked.
        """
        digests = {os.path.realpath(path): digest for path, digest in verdicts.items()}
        blocked = self.read().blocked
        if all(blocked.get(path, "") == digest for path, digest in digests.items()):
            return

        def change(old: TrustRecord) -> TrustRecord:
            merged = {**old.blocked, **digests}
            return old._replace(blocked={path: digest for path, digest in merged.items() if digest})

        self._change(change)

    def add_revoked(self, reasons: Mapping[str, str], folders: Mapping[str, str]) -> None:
        """Record what hubs revoked: it is treated as blocked contents are.

        Args:
            reasons: The digest of a content -> the reason.
            folders: A skill's folder -> the digest of its revoked content.

        Raises:
            Refused: it cannot be saved.
        """
        record = self.read()
        if reasons.items() <= record.revoked.items():
            return

        def change(old: TrustRecord) -> TrustRecord:
            blocked = {os.path.realpath(path): digest for path, digest in folders.items()}
            return old._replace(
                revoked={**old.revoked, **reasons}, blocked={**old.blocked, **blocked}
            )

        self._change(change)

    def accept(self, digest: str, reason: str) -> None:
        """Accept the risk of a blocked content.

        Raises:
            Refused: the decision cannot be saved.
        """
        acceptance = f"{_now()[:10]}: {reason}"
        self._change(lambda old: old._replace(accepted={**old.accepted, digest: acceptance}))

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
        self._grant(contents, (_TOOLS,))

    def has_tool_grant(self, path: str, digest: str) -> bool:
        """Whether the user granted the requests of a skill with this content."""
        return _TOOLS in _find_grants(self.read().granted, os.path.realpath(path), digest)

    def grant_scripts(self, path: str, digest: str, grant: ScriptGrant) -> None:
        """Grant the scripts of a skill something more, as long as its content stays the same.

        Raises:
            Refused: the decision cannot be saved.
        """
        network = (_NETWORK,) if grant.network else ()
        secrets = [_SECRET + name for name in grant.secrets]
        variables = [_VARIABLE + name for name in grant.variables]
        self._grant({path: digest}, (*network, *secrets, *variables))

    def script_grant(self, path: str, digest: str, name: str) -> ScriptGrant:
        """What the scripts of a skill may use: with this content, or by its name in the settings.

        Args:
            path: The skill's folder.
            digest: The digest of its content.
            name: Its name.
        """
        granted = _parse_script_grant(
            _find_grants(self.read().granted, os.path.realpath(path), digest)
        )
        configured = self._grants.get(name, {})
        return ScriptGrant(
            granted.network or configured.get("network") is True,
            tuple(dict.fromkeys((*granted.secrets, *configured.get("secrets", ())))),
            tuple(dict.fromkeys((*granted.variables, *configured.get("variables", ())))),
        )

    def former_grant(self, path: str) -> FormerGrant:
        """What was granted last to the skill in a folder."""
        digest, *grants = self.read().granted.get(os.path.realpath(path), "").split() or ("",)
        return FormerGrant(digest, _TOOLS in grants, _parse_script_grant(grants))

    def _grant(self, contents: Mapping[str, str], grants: tuple[str, ...]) -> None:
        digests = {os.path.realpath(path): digest for path, digest in contents.items()}

        def change(old: TrustRecord) -> TrustRecord:
            granted = dict(old.granted)
            for path, digest in digests.items():
                old_grants = _find_grants(granted, path, digest)
                granted[path] = " ".join(dict.fromkeys((digest, *old_grants, *grants)))
            return old._replace(granted=granted)

        if digests and grants:
            self._change(change)

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
        self, root: str, links: Mapping[str, str], *, trusted: bool | None = None, project: str = ""
    ) -> LocationTrust:
        """Return the trust of a location's skills.

        Args:
            root: The location's folder.
            links: Followed links below it: real target -> id of the link.
            trusted: Trust or distrust all of it; None applies the decisions.
            project: The project that the location belongs to, as for `trusts`.
        """
        return LocationTrust(
            os.path.realpath(root), self.read(), links, _real_path(project), trusted=trusted
        )

    def _change_if_needed(self, change: Callable[[TrustRecord], TrustRecord]) -> None:
        if change(self.read()) != self.read():
            self._change(change)

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
        trusted: bool | None = None,
    ) -> None:
        self._root = root
        self._project = project
        self._folders = record.folders
        self._blocked = record.blocked
        self._target_by_link = {link: target for target, link in links.items()}
        self._trusts_all = trusted
        """Whether all skills are trusted or none; None when each must be checked."""
        if trusted is None and not links and _is_below(root, record.folders, project):
            self._trusts_all = True

    @property
    def is_complete(self) -> bool:
        """Whether all skills are trusted and none is blocked."""
        return self._trusts_all is True and not self._blocked

    def trusts(self, skill_id: str) -> bool:
        """Whether a skill lies in a trusted folder, or its whole location is trusted."""
        if self._trusts_all is not None:
            return self._trusts_all
        return _is_below(self._real_path(skill_id), self._folders, self._project)

    def blocked(self, skill_id: str) -> str:
        """The digest of a skill's blocked content, or empty."""
        return self._blocked.get(self._real_path(skill_id), "") if self._blocked else ""

    def _real_path(self, skill_id: str) -> str:
        """The folder of a skill, with the links that the scan followed resolved."""
        link = skill_id
        while link and self._target_by_link:
            target = self._target_by_link.get(link)
            if target is not None:
                return (target + skill_id[len(link) :]).replace("/", os.sep)
            link = link.rpartition("/")[0]
        return os.path.join(self._root, skill_id.replace("/", os.sep)) if skill_id else self._root


def _real_path(path: str) -> str:
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


def _find_grants(granted: Mapping[str, str], folder: str, digest: str) -> list[str]:
    """What was granted to a folder with this content."""
    granted_digest, *grants = granted.get(folder, "").split() or ("",)
    return grants if granted_digest == digest else []


def _parse_script_grant(grants: Sequence[str]) -> ScriptGrant:
    return ScriptGrant(
        _NETWORK in grants, _names_after(_SECRET, grants), _names_after(_VARIABLE, grants)
    )


def _names_after(prefix: str, grants: Sequence[str]) -> tuple[str, ...]:
    return tuple(grant.removeprefix(prefix) for grant in grants if grant.startswith(prefix))


def _split_digests(text: str) -> list[str]:
    return text.split(",") if text else []


def _append_digest(text: str, digest: str) -> str:
    """Put a digest at the end of a list, and remove the oldest ones that are too many."""
    digests = [earlier for earlier in _split_digests(text) if earlier != digest]
    return ",".join([*digests[1 - _MAX_DIGESTS :], digest])


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
            table.setdefault("revoked", {})
            return TrustRecord(*(_check_texts(table[key]) for key in TrustRecord._fields))
        reason = f"its version is {version!r}"
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
        reason = str(exc)
    raise SettingsError(
        Message("`{path}` cannot be used: {reason}", path=path, reason=reason),
        Message("Correct it"),
    )


def _check_texts(value: Any) -> dict[str, str]:
    """Return a table of texts.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        if all(isinstance(text, str) for text in (*table, *table.values())):
            return cast("dict[str, str]", table)
    raise TypeError("its parts are tables of texts")
