"""The ledger of a hub: its commits, and the content that follows from them.

A commit is one create-only file that names the digest of the commit before it, so that history
cannot be changed unseen. Two writers cannot both create `commits/N`: the slower one reads the new
commit, checks again that its changes are still needed, and tries N + 1.

A change counts only with the signature of the key that has the right to it, so write access to the
storage is not enough to forge one. A change that breaks a rule is ignored and reported; its commit
stays. A ledger continues from the index of the last `state` and reads only the bins that it needs.
"""

from __future__ import annotations

import random
import re
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from satchel.errors import Changed, Conflict, InvalidInput, NotFound, SkillBroken, Unsafe
from satchel.i18n import say
from satchel.store.download import is_address
from satchel.store.hub_client import format as hub_format
from satchel.store.hub_client.format import Commit, HubRelease, HubTable, PublisherKey
from satchel.store.hub_client.signatures import CHANGE_NAMESPACE, change_statement, signed_by
from satchel.store.hub_client.versions import is_publisher, parse_name, parse_version
from satchel.store.signing import plain_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.hub.storage import Storage
    from satchel.store.hub_client.format import HubState, Row
    from satchel.store.signing import SshKey

    Inspector = Callable[[HubRelease], Row]  # description, license and scan; raises for other files

_MAX_COMMIT_CHANGES = 1_000
TREE = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MAX_ATTEMPTS = 1_000
_Item = TypeVar("_Item")


class IgnoredChange(NamedTuple):
    """A change that broke a rule."""

    commit: int
    change: str
    """Type and object, such as `release acme/x@1.0.0`."""
    reason: str


class HubLedger:
    """Releases, keys and revocations of a hub after some number of commits."""

    def __init__(
        self,
        storage: Storage,
        state: HubState | None = None,
        inspect: Inspector | None = None,
        until: int | None = None,
    ) -> None:
        """Read the commits after `state`, or all of them, up to the number `until`."""
        self.storage = storage
        self.state = state
        self.hub, self.key, self.count, self.head = state[:4] if state else ("", "", 0, "")
        self.skills, self.repairs = (state.skills, state.repairs) if state else (0, 0)
        self.rotations = list(state.rotations) if state else []
        self.index = HubTable(storage, "index", state.index if state else "")
        rows = storage.rows("revoked", state.revoked) if state else []
        self.revoked = {str(row.get("tree")): str(row.get("reason")) for row in rows}
        """Digest of a tree -> reason."""
        self.touched: set[str] = set()
        """Names, publishers and digests of trees that differ from the index."""
        self.fresh: list[HubRelease] = []
        """Releases that were added since the index."""
        self.ignored: list[IgnoredChange] = []
        self._releases: dict[str, dict[str, HubRelease]] = {}
        self._keys: dict[str, list[PublisherKey]] = {}
        self._names: dict[str, list[str]] = {}
        self._loaded_bins: set[str] = set()
        self._inspect = inspect
        self._commit_digests: dict[int, str] = {0: ""}
        if state is not None and self._commit_digest(state.count) != state.head:
            path = hub_format.commit_path(state.count)
            reason = say(
                "`{path}` is not what `state` names: the history of the hub was rewritten",
                path=path,
            )
            raise self._commit_error(state.count, hub_format.untrusted(reason))
        self.catch_up(until)

    def releases(self, name: str) -> dict[str, HubRelease]:
        """The releases of a skill by version, in any order."""
        self._load(self.index.find(name))
        return self._releases.setdefault(name, {})

    def keys(self, publisher: str) -> list[PublisherKey]:
        """The keys of a publisher, oldest first."""
        self._load(self.index.find(publisher))
        return self._keys.setdefault(publisher, [])

    def names(self, tree: str) -> list[str]:
        """The skills that have a release with a tree."""
        self._load(self.index.find(tree))
        return self._names.setdefault(tree, [])

    def sorted_releases(self, name: str) -> list[HubRelease]:
        """The releases of a skill, oldest version first."""
        return sorted(self.releases(name).values(), key=lambda release: release.number)

    def current_key(self, publisher: str) -> str:
        """The key with which a publisher signs; empty when it is not registered."""
        return next((key.key for key in reversed(self.keys(publisher))), "")

    def newest(self, name: str) -> HubRelease | None:
        """The newest release of a skill that is neither yanked nor revoked."""
        for release in reversed(self.sorted_releases(name)):
            if not (
                release.yanked
                or release.tree in self.revoked
                or release.scan == hub_format.UNREADABLE
            ):
                return release
        return None

    def all_keys(self) -> list[PublisherKey]:
        """The keys of every publisher, each after the one that it replaced."""
        self.load_all()
        return [key for keys in self._keys.values() for key in keys]

    def load_all(self) -> list[HubRelease]:
        """Read the whole index; returns every release."""
        for _, digest in self.index.bins():
            self._load(digest)
        return [release for versions in self._releases.values() for release in versions.values()]

    def _load(self, digest: str) -> None:
        """Read a bin of the index, once."""
        if not digest or digest in self._loaded_bins:
            return
        self._loaded_bins.add(digest)
        contents = hub_format.read_bin(self.storage, digest)
        for release in contents.releases:
            self._releases.setdefault(release.name, {})[release.version] = release
        for key in contents.keys:
            self._keys.setdefault(key.publisher, []).append(key)
        self._names |= contents.names

    # --- changes ---------------------------------------------------------------------------

    def _apply(self, commit: Commit, changes: Iterable[Row]) -> None:
        """Accept or ignore the changes of the next commit, which follows the last one."""
        appliers: dict[str, Callable[[Row, Commit], str]] = {
            "hub": self._apply_hub,
            "publisher": self._apply_publisher,
            "release": self._apply_release,
            "yank": self._apply_yank,
            "revoke": self._apply_revocation,
            "repair": self._apply_repair,
            "rotate": self._apply_rotation,
        }
        for change in changes:
            kind = str(change.get("type"))
            try:
                reason = appliers[kind](change, commit)
            except InvalidInput as exc:
                reason = exc.message
            except (KeyError, ValueError, TypeError):
                reason = say("it is not valid")
            if reason:
                values = [change.get(key) for key in ("publisher", "name", "version", "tree")]
                subject = " ".join(str(value) for value in (kind, *values) if value)
                self.ignored.append(IgnoredChange(commit.number, subject[:200], reason))

    def _apply_hub(self, change: Row, commit: Commit) -> str:
        hub, key = str(change["hub"]), str(change["key"])
        if commit.number != 1 or self.hub:
            return _taken_reason(hub)
        if not signed_by(change, hub, key):
            return say("invalid signature")
        self.hub, self.key = hub, key
        return ""

    def _apply_publisher(self, change: Row, _: Commit) -> str:
        publisher, key = str(change["publisher"]), str(change["key"])
        current = self.current_key(publisher)
        if current == key:
            return ""
        if not is_publisher(publisher):
            return say("it is not valid")
        past_keys = [past_key.key for past_key in self.keys(publisher)]
        if change["previous"] != current or key in past_keys:  # an old change, or an old key
            return _taken_reason(publisher)
        if not any(signed_by(change, self.hub, signer) for signer in (current, self.key)):
            return say("invalid signature")
        record = PublisherKey(publisher, key, current, str(change["signature"]))
        self.keys(publisher).append(record)
        self.touched.add(publisher)
        return ""

    def _apply_release(self, change: Row, commit: Commit) -> str:
        fields = ("name", "version", "tree", "blob", "size")
        name, version, tree, blob, size = (change[key] for key in fields)
        skill_name = parse_name(name)
        if not skill_name or not _is_valid_release(version, tree, blob, size):
            return say("it is not valid")
        key = self.current_key(skill_name.publisher)
        if not signed_by(change, self.hub, key):
            return say("invalid signature")
        versions = self.releases(name)
        if version in versions:
            if versions[version].tree != tree:
                return _taken_reason(f"{name}@{version}")
            if versions[version].scan != hub_format.UNREADABLE and versions[version].key == key:
                return ""
        unread_release = HubRelease(
            name=name,
            version=version,
            tree=tree,
            blob=blob,
            size=size,
            time=commit.time,
            description="",
            license="",
            scan="",
            key=key,
            signature=str(change["signature"]),
        )
        release, problem = self._inspect_blob(unread_release)
        if problem and version in versions:
            return problem
        self.skills += not versions
        # A version that is there had lost its blob, or was signed with an older key.
        old_release = versions.get(version, release)
        versions[version] = release._replace(yanked=old_release.yanked, time=old_release.time)
        self.touched |= {name, tree}
        if name not in self.names(tree):
            self.names(tree).append(name)
        self.fresh.append(release)
        return problem

    def _inspect_blob(self, release: HubRelease) -> tuple[HubRelease, str]:
        """Return a release with its description, and why its blob cannot be used."""
        try:
            return release._replace(**(self._inspect(release) if self._inspect else {})), ""
        except (Changed, Unsafe, SkillBroken) as exc:
            # The signature alone decides what a version is: it stays taken, but is not offered.
            return release._replace(scan=hub_format.UNREADABLE), exc.message

    def _apply_yank(self, change: Row, _: Commit) -> str:
        name, version, reason = (str(change[key]) for key in ("name", "version", "reason"))
        if len(reason) > hub_format.MAX_REASON_CHARS:
            return say("it is too long")
        versions = self.releases(name)
        if version not in versions:
            return say("There is no `{path}`", path=f"{name}@{version}")
        if not signed_by(change, self.hub, self.current_key(name.partition("/")[0])):
            return say("invalid signature")
        if not versions[version].yanked:
            versions[version] = versions[version]._replace(yanked=reason)
            self.touched.add(name)
        return ""

    def _apply_revocation(self, change: Row, _: Commit) -> str:
        tree = change["tree"]
        if not TREE.match(tree) or not signed_by(change, self.hub, self.key):
            return say("invalid signature")
        if tree not in self.revoked:
            self.revoked[tree] = change["reason"]
            self.touched |= {release.name for release in self.releases_of(tree)}
        return ""

    def _apply_repair(self, change: Row, commit: Commit) -> str:
        # It names the commit before it, so that it counts nowhere else.
        if change["previous"] != commit.previous or not signed_by(change, self.hub, self.key):
            return say("invalid signature")
        self.repairs += 1
        return ""

    def _apply_rotation(self, change: Row, commit: Commit) -> str:
        previous, key = str(change["previous"]), plain_key(change["key"])
        rotation = {field: str(change[field]) for field in ("type", "key", "previous", "signature")}
        if rotation in self.rotations:
            return ""  # a repair put it into an earlier commit
        if not signed_by(change, self.hub, previous):
            return say("invalid signature")
        first_key = self.rotations[0]["previous"] if self.rotations else self.key
        if previous == self.key:
            self.key = key
            self.rotations.append(rotation)
        elif commit.number == 1 and key == first_key:
            self.rotations.insert(0, rotation)  # a repair makes the hub with its newest key
        else:
            return say("invalid signature")
        return ""

    def releases_of(self, tree: str) -> list[HubRelease]:
        """The releases with a tree, under any name."""
        releases = [self.sorted_releases(name) for name in self.names(tree)]
        return [release for release in chain(*releases) if release.tree == tree]

    # --- commits ---------------------------------------------------------------------------

    def _commit_digest(self, number: int) -> str:
        if number not in self._commit_digests:
            data = self.storage.get(hub_format.commit_path(number), hub_format.MAX_COMMIT_BYTES)
            self._commit_digests[number] = hub_format.digest_hex(data or b"")
        return self._commit_digests[number]

    def catch_up(self, until: int | None = None) -> list[Commit]:
        """Read the commits that were added, up to a number; returns them."""
        added: list[Commit] = []
        while until is None or self.count < until:
            number = self.count + 1
            data = self._get_commit(number)
            if data is None and until is None:
                if self._get_commit(number + 1) is None:
                    break
                data = self._get_commit(number)  # another writer may have been faster
            data = data or b""
            try:
                commit = self._parse_next_commit(data, number)
                changes = self.storage.rows("changes", commit.changes)
            except Changed as exc:
                raise self._commit_error(number, exc) from exc
            self._apply(commit, changes)
            self.count, self.head = number, hub_format.digest_hex(data)
            self._commit_digests[number] = self.head
            added.append(commit)
        return added

    def _get_commit(self, number: int) -> bytes | None:
        # A file that is too large for a commit is there too, and blocks every writer.
        return self.storage.get(hub_format.commit_path(number), hub_format.MAX_FILE_BYTES)

    def _parse_next_commit(self, data: bytes, number: int) -> Commit:
        """Read the commit after the last one; raises `Changed` when it is not that."""
        path = hub_format.commit_path(number)
        if not data:
            text = say("The hub `{name}` has no `{path}`", name=self.storage.name, path=path)
            raise hub_format.unusable(text)
        commit = hub_format.parse_commit(data, number)
        skipped_digest = self._commit_digest(hub_format.skip_target(number))
        is_next = (commit.previous, commit.skip) == (self.head, skipped_digest)
        if not is_next or len(data) > hub_format.MAX_COMMIT_BYTES:
            raise hub_format.damaged(path)
        return commit

    def _commit_error(self, number: int, exc: Changed) -> Changed:
        """Return the error for a commit that cannot be read, in the words of a keeper."""
        hint = exc.hint
        if not is_address(self.storage.name):
            hint = say(
                "Put the file back from a backup or a mirror; without one, run `{command}`",
                command=f"satchel hub repair {self.storage.name} --key KEY",
            )
        text = say("{reason}; commit {count} and every later one cannot be read",
                   reason=exc.message, count=number)  # fmt: skip
        return Changed(text, hint)

    def append(self, make_changes: Callable[[], Sequence[Row]]) -> int:
        """Add a commit; returns its number, which acknowledges the changes.

        `make_changes` returns one of `batches`, signed, and nothing when nothing is to be changed.
        It is called again after another writer was faster.
        """
        for attempt in range(_MAX_ATTEMPTS):
            changes = make_changes()
            if not changes:
                return self.count
            number = self.count + 1
            commit = self._make_commit(number, self.head, changes)
            self.storage.create(
                hub_format.commit_path(number), hub_format.render_row(commit._asdict())
            )
            # A retry inside the storage may report our own commit as that of another writer.
            for added in self.catch_up():
                if added.changes == commit.changes:
                    return added.number
            time.sleep(random.uniform(0, min(attempt, 20) * 0.005))  # noqa: S311 - spreads writers
        raise busy_error(self.storage)

    def _make_commit(self, number: int, previous: str, changes: Iterable[Row]) -> Commit:
        """Write the changes of a commit; returns the commit, which is not written."""
        digest = self.storage.put_rows("changes", changes)
        skip = self._commit_digest(hub_format.skip_target(number))
        return Commit(number, previous, skip, digest, hub_format.timestamp())

    def replace_tail(self, changes: Sequence[Row], last: int) -> None:
        """Replace the commits after the last one that was read, which are set aside.

        The first one gets `changes`; each gets those of the commit that it replaces, if they can be
        read. A reader counts as many commits as before.
        """
        written: dict[str, bytes] = {}
        head = self.head
        for number in range(self.count + 1, last + 1):
            path, old_data = hub_format.commit_path(number), self._get_commit(number)
            rows = [*changes, *self._readable_changes(number, old_data or b"")]
            if old_data is not None:
                self.storage.put(f"set-aside/{path}-{hub_format.digest_hex(old_data)}", old_data)
            commit = self._make_commit(number, head, rows)
            written[path] = hub_format.render_row(commit._asdict())
            head = self._commit_digests[number] = hub_format.digest_hex(written[path])
            changes = ()
        for path, data in written.items():
            self.storage.put(path, data)
        if not self.storage.save():
            raise busy_error(self.storage)

    def _readable_changes(self, number: int, data: bytes) -> list[Row]:
        with suppress(Changed):
            rows = self.storage.rows("changes", hub_format.parse_commit(data, number).changes)
            return [row for row in rows if row.get("type") != "repair"]
        return []


def batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Divide items into as many as one commit may have."""
    for start in range(0, len(items), _MAX_COMMIT_CHANGES):
        yield items[start : start + _MAX_COMMIT_CHANGES]


def _is_valid_release(version: str, tree: str, blob: str, size: object) -> bool:
    """Whether version, digests and size of a release can be."""
    has_size = isinstance(size, int) and 0 < size <= hub_format.MAX_BLOB_BYTES
    return bool(parse_version(version) and TREE.match(tree) and hub_format.HEX.match(blob)) and (
        has_size and not isinstance(size, bool)
    )


def _taken_reason(name: str) -> str:
    return say("`{path}` exists already", path=name)


def sign_changes(changes: Sequence[Row], hub: str, key: SshKey) -> list[Row]:
    """Return the changes with a signature each."""
    texts = [change_statement(change, hub) for change in changes]
    signatures = key.sign(texts, CHANGE_NAMESPACE)
    return [
        {**row, "signature": signature} for row, signature in zip(changes, signatures, strict=True)
    ]


def read_state(storage: Storage, key: str = "") -> HubState | None:
    """Read the state of a hub; None when there is none that `key`, or its own key, has signed."""
    data = storage.get(hub_format.STATE, hub_format.MAX_STATE_BYTES)
    try:
        return hub_format.parse_state(data, key) if data is not None else None
    except Changed:
        return None


def open_ledger(storage: Storage) -> HubLedger:
    """Open the ledger of a hub whose storage was tested for writing."""
    storage.probe()
    ledger = HubLedger(storage, read_state(storage))
    if not ledger.hub:
        raise no_hub_error(storage)
    return ledger


def no_hub_error(storage: Storage) -> NotFound:
    """Return the error for a storage without a hub."""
    text = say("There is no {kind} `{name}`", kind=say("hub"), name=storage.name)
    return NotFound(text, say("Run `{command}`", command="satchel hub init"))


def busy_error(storage: Storage) -> Conflict:
    """Return the error after too many attempts."""
    text = say("Other processes change `{path}` all the time", path=storage.name)
    return Conflict(text, say("Try again"))
