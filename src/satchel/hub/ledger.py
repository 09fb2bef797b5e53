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
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from satchel.errors import Changed, Conflict, InvalidInput, NotFound, SkillBroken, Unsafe
from satchel.i18n import say
from satchel.store.hub_client import format as files
from satchel.store.hub_client.format import Commit, HubIndex, HubRelease, PublisherKey
from satchel.store.hub_client.release_name import is_publisher, parse_name, parse_version

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
        self.skills = state.skills if state else 0
        self.index = HubIndex(storage, state.index if state else "")
        rows = storage.rows("revoked", state.revoked) if state else []
        self.revoked = {str(row.get("tree")): str(row.get("reason")) for row in rows}
        """Digest of a tree -> reason."""
        self.touched: set[str] = set()
        """Names and publishers that differ from the index."""
        self.fresh: list[HubRelease] = []
        """Releases that were added since the index."""
        self.ignored: list[IgnoredChange] = []
        self._releases: dict[str, dict[str, HubRelease]] = {}
        self._keys: dict[str, list[PublisherKey]] = {}
        self._read: set[int] = set()
        self._inspect = inspect
        self._digests: dict[int, str] = {0: ""}
        if state is not None and self._digest(state.count) != state.head:
            raise files.rewritten(state.hub)
        self.catch_up(until)

    def releases(self, name: str) -> dict[str, HubRelease]:
        """The releases of a skill by version, in any order."""
        self._load(files.bin_number(name, self.index.bits))
        return self._releases.setdefault(name, {})

    def keys(self, publisher: str) -> list[PublisherKey]:
        """The keys of a publisher, oldest first."""
        self._load(files.bin_number(publisher, self.index.bits))
        return self._keys.setdefault(publisher, [])

    def sorted_releases(self, name: str) -> list[HubRelease]:
        """The releases of a skill, oldest version first."""
        return sorted(self.releases(name).values(), key=lambda one: one.number)

    def current_key(self, publisher: str) -> str:
        """The key with which a publisher signs; empty when it is not registered."""
        return next((one.key for one in reversed(self.keys(publisher))), "")

    def newest(self, name: str) -> HubRelease | None:
        """The newest release of a skill that is neither yanked nor revoked."""
        for one in reversed(self.sorted_releases(name)):
            if not (one.yanked or one.tree in self.revoked or one.scan == files.UNREADABLE):
                return one
        return None

    def load_all(self) -> list[HubRelease]:
        """Read the whole index; returns every release."""
        for number in range(self.index.size):
            self._load(number)
        return [one for found in self._releases.values() for one in found.values()]

    def _load(self, number: int) -> None:
        if number not in self._read and self.index.size:
            self._read.add(number)
            releases, keys = self.index.read(number)
            for one in releases:
                self._releases.setdefault(one.name, {})[one.version] = one
            for key in keys:
                self._keys.setdefault(key.publisher, []).append(key)

    # --- changes ---------------------------------------------------------------------------

    def _apply(self, commit: Commit, changes: Iterable[Row]) -> None:
        """Accept or ignore the changes of the next commit, whose place in the chain is right."""
        rules: dict[str, Callable[[Row, Commit], str]] = {
            "hub": self._name_hub,
            "publisher": self._register,
            "release": self._release,
            "yank": self._yank,
            "revoke": self._revoke,
        }
        for change in changes:
            kind = str(change.get("type"))
            try:
                reason = rules[kind](change, commit)
            except InvalidInput as exc:
                reason = exc.message
            except (KeyError, ValueError, TypeError):
                reason = say("it is not valid")
            if reason:
                about = [change.get(key) for key in ("publisher", "name", "version", "tree")]
                shown = " ".join(str(one) for one in (kind, *about) if one)
                self.ignored.append(IgnoredChange(commit.number, shown[:200], reason))

    def _name_hub(self, change: Row, commit: Commit) -> str:
        hub, key = str(change["hub"]), str(change["key"])
        if commit.number != 1 or self.hub:
            return _taken(hub)
        if not files.signed_by(change, hub, key):
            return say("invalid signature")
        self.hub, self.key = hub, key
        return ""

    def _register(self, change: Row, _: Commit) -> str:
        publisher, key = str(change["publisher"]), str(change["key"])
        current = self.current_key(publisher)
        if current == key:
            return ""
        if not is_publisher(publisher):
            return say("it is not valid")
        if change["previous"] != current or any(key == one.key for one in self.keys(publisher)):
            return _taken(publisher)  # an old change, or an old key
        if not any(files.signed_by(change, self.hub, one) for one in (current, self.key)):
            return say("invalid signature")
        row = PublisherKey(publisher, key, current, str(change["signature"]))
        self.keys(publisher).append(row)
        self.touched.add(publisher)
        return ""

    def _release(self, change: Row, commit: Commit) -> str:
        fields = ("name", "version", "tree", "blob", "size")
        name, version, tree, blob, size = (change[key] for key in fields)
        parsed = parse_name(name)
        sized = type(size) is int and 0 < size <= files.MAX_BLOB_BYTES
        plain = parse_version(version) and TREE.match(tree) and files.HEX.match(blob)
        if not (parsed and sized and plain):
            return say("it is not valid")
        key = self.current_key(parsed.publisher)
        if not files.signed_by(change, self.hub, key):
            return say("invalid signature")
        found = self.releases(name)
        if version in found:
            if found[version].tree != tree:
                return _taken(f"{name}@{version}")
            if found[version].scan != files.UNREADABLE:
                return ""
        signature, problem = str(change["signature"]), ""
        one = HubRelease(name, version, tree, blob, size, commit.time, "", "", "", key, signature)
        try:
            if self._inspect is not None:
                one = one._replace(**self._inspect(one))
        except (Changed, Unsafe, SkillBroken) as exc:
            # The signature alone decides what a version is: it stays taken, but is not offered.
            one, problem = one._replace(scan=files.UNREADABLE), exc.message
        self.skills += not found
        old = found.get(version, one)  # its blob was lost, and is there again
        found[version] = one._replace(yanked=old.yanked, time=old.time)
        self.touched.add(name)
        self.fresh.append(one)
        return problem

    def _yank(self, change: Row, _: Commit) -> str:
        name, version = str(change["name"]), str(change["version"])
        found = self.releases(name)
        if version not in found:
            return say("There is no `{path}`", path=f"{name}@{version}")
        if not files.signed_by(change, self.hub, self.current_key(name.partition("/")[0])):
            return say("invalid signature")
        if not found[version].yanked:
            found[version] = found[version]._replace(yanked=str(change["reason"]))
            self.touched.add(name)
        return ""

    def _revoke(self, change: Row, _: Commit) -> str:
        tree = change["tree"]
        if not TREE.match(tree) or not files.signed_by(change, self.hub, self.key):
            return say("invalid signature")
        if tree not in self.revoked:
            self.revoked[tree] = change["reason"]
            self.touched |= {one.name for one in self.releases_of(tree)}
        return ""

    def releases_of(self, tree: str) -> list[HubRelease]:
        """The releases with a tree, under any name."""
        return [one for one in self.load_all() if one.tree == tree]

    # --- commits ---------------------------------------------------------------------------

    def _digest(self, number: int) -> str:
        if number not in self._digests:
            data = self.storage.get(files.commit_path(number), files.MAX_COMMIT_BYTES)
            self._digests[number] = files.digest_hex(data or b"")
        return self._digests[number]

    def catch_up(self, until: int | None = None) -> list[Commit]:
        """Read the commits that were added, up to a number; returns them."""
        added: list[Commit] = []
        while until is None or self.count < until:
            number = self.count + 1
            data = self.storage.get(files.commit_path(number), files.MAX_COMMIT_BYTES)
            if data is None:
                break
            commit = files.parse_commit(data, number)
            if commit[1:3] != (self.head, self._digest(files.skip_target(number))):
                raise files.damaged(files.commit_path(number))
            self._apply(commit, self.storage.rows("changes", commit.changes))
            self.count, self.head = number, files.digest_hex(data)
            self._digests[number] = self.head
            added.append(commit)
        return added

    def append(self, make: Callable[[], Sequence[Row]]) -> int:
        """Add a commit; returns its number, which acknowledges the changes.

        `make` returns one of `batches`, signed, and nothing when nothing is to be changed. It is
        called again after another writer was faster.
        """
        for attempt in range(_MAX_ATTEMPTS):
            changes = make()
            if not changes:
                return self.count
            number = self.count + 1
            digest = self.storage.put_content("changes", files.pack_rows(changes))
            skip = self._digest(files.skip_target(number))
            commit = Commit(number, self.head, skip, digest, files.timestamp())
            self.storage.create(files.commit_path(number), files.render_row(commit._asdict()))
            # A retry inside the storage may report our own commit as that of another writer.
            for one in self.catch_up():
                if one.changes == digest:
                    return one.number
            time.sleep(random.uniform(0, min(attempt, 20) * 0.005))  # noqa: S311 - spreads writers
        raise busy(self.storage)


def batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Divide items into as many as one commit may have."""
    for start in range(0, len(items), _MAX_COMMIT_CHANGES):
        yield items[start : start + _MAX_COMMIT_CHANGES]


def _taken(name: str) -> str:
    return say("`{path}` exists already", path=name)


def sign_changes(changes: Sequence[Row], hub: str, key: SshKey) -> list[Row]:
    """The changes with a signature each."""
    texts = [files.change_statement(change, hub) for change in changes]
    signatures = key.sign(texts, files.CHANGE_NAMESPACE)
    return [{**row, "signature": made} for row, made in zip(changes, signatures, strict=True)]


def read_state(storage: Storage, key: str = "") -> HubState | None:
    """The state of a hub; None when there is none that `key`, or its own key, has signed."""
    data = storage.get(files.STATE, files.MAX_STATE_BYTES)
    try:
        return files.parse_state(data, key) if data is not None else None
    except Changed:
        return None


def open_ledger(storage: Storage) -> HubLedger:
    """The ledger of a hub whose storage was tested for writing."""
    storage.probe()
    ledger = HubLedger(storage, read_state(storage))
    if not ledger.hub:
        raise no_hub(storage)
    return ledger


def no_hub(storage: Storage) -> NotFound:
    """The error for a storage without a hub."""
    text = say("There is no {kind} `{name}`", kind=say("hub"), name=storage.name)
    return NotFound(text, say("Run `{command}`", command="satchel hub init"))


def busy(storage: Storage) -> Conflict:
    """The error after too many attempts."""
    text = say("Other processes change `{path}` all the time", path=storage.name)
    return Conflict(text, say("Try again"))
