"""The chain of commits, and the content of a hub that follows from it.

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
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import Changed, Conflict, InvalidInput, NotFound, SkillBroken, Unsafe
from satchel.hub.storage import put_content
from satchel.i18n import say
from satchel.store.hub_client import format as files
from satchel.store.hub_client.format import (
    Commit,
    HubRelease,
    PublisherKey,
    commit_path,
    digest_hex,
    signed_by,
    skip_target,
)
from satchel.store.hub_client.release_name import is_publisher, parse_name, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.hub.storage import Storage
    from satchel.store.hub_client.format import HubState, Row
    from satchel.store.hub_client.release_name import Version
    from satchel.store.signing import SshKey

    Inspector = Callable[[HubRelease], "Inspection"]
    """Reads the files of a release; raises when they are not those of its tree."""

MAX_COMMIT_CHANGES = 1_000
UNREADABLE = "unreadable"
"""The verdict on a release whose blob is missing or holds other files."""
_MAX_ATTEMPTS = 1_000
_TREE = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HEX = re.compile(r"[0-9a-f]{64}\Z")


class Inspection(NamedTuple):
    """What the index says about the files of a release."""

    description: str
    license: str
    scan: str


class IgnoredChange(NamedTuple):
    """A change that broke a rule."""

    commit: int
    change: str
    """Type and object, such as `release acme/x@1.0.0`."""
    reason: str


def read_content(
    storage: Storage, folder: str, digest: str, limit: int = files.MAX_FILE_BYTES
) -> bytes:
    """Read a file that is named after its content; raises `Changed` when it is not that."""
    path = files.content_path(folder, digest)
    data = storage.get(path, limit) if _HEX.match(digest) else None
    if data is None or files.digest_hex(data) != digest:
        raise files.damaged(path)
    return data


def read_rows(storage: Storage, folder: str, digest: str) -> list[Row]:
    """Read the rows of a file that is named after its content."""
    data = read_content(storage, folder, digest)
    return files.unpack_rows(data, files.content_path(folder, digest))


class HubIndex:
    """The index files of a `state`; without one, an index with no bins."""

    def __init__(self, storage: Storage, root: str = "") -> None:
        self._storage = storage
        self._middles: dict[int, list[str]] = {}
        first, *rest = read_rows(storage, "index", root) if root else [{"bits": 0}]
        self.bits = int(first["bits"])
        self._roots = [str(row["middle"]) for row in rest]
        self.size = 1 << self.bits if root else 0
        """Number of bins."""

    def _digest(self, number: int) -> str:
        middle, at = divmod(number, 1 << files.low_bits(self.bits))
        if middle not in self._middles:
            rows = read_rows(self._storage, "index", self._roots[middle])
            self._middles[middle] = [str(row["bin"]) for row in rows]
        return self._middles[middle][at]

    def digests(self) -> list[tuple[str, int]]:
        """The digest of each bin, and 0."""
        return [(self._digest(number), 0) for number in range(self.size)]

    def read(self, number: int) -> tuple[list[HubRelease], list[PublisherKey]]:
        """The rows of a bin."""
        digest = self._digest(number)
        rows = read_rows(self._storage, "index", digest)
        return files.read_bin(rows, files.content_path("index", digest))


class HubLedger:
    """Releases, keys and revocations of a hub after some number of commits."""

    def __init__(self, storage: Storage, state: HubState | None = None) -> None:
        self.state = state
        self.hub, self.key, self.count, self.head = state[:4] if state else ("", "", 0, "")
        self.skills = state.skills if state else 0
        self.index = HubIndex(storage, state.index if state else "")
        revoked = read_rows(storage, "revoked", state.revoked) if state else []
        self.revoked: dict[str, Row] = {str(row["tree"]): row for row in revoked}
        """Digest of a tree -> row of the revocation list."""
        self.touched: set[str] = set()
        """Names and publishers that differ from the index."""
        self.fresh: list[HubRelease] = []
        """Releases that were added since the index."""
        self.ignored: list[IgnoredChange] = []
        self.loaded: dict[str, dict[Version, HubRelease]] = {}
        """Name -> version -> release, of the bins that were read."""
        self.loaded_keys: dict[str, list[PublisherKey]] = {}
        self._read: set[int] = set()

    def releases(self, name: str) -> dict[Version, HubRelease]:
        """The releases of a skill by version."""
        self._load(name)
        return self.loaded.get(name, {})

    def keys(self, publisher: str) -> list[PublisherKey]:
        """The keys of a publisher, oldest first."""
        self._load(publisher)
        return self.loaded_keys.get(publisher, [])

    def current_key(self, publisher: str) -> str:
        """The key with which a publisher signs; empty when it is not registered."""
        return next((one.key for one in reversed(self.keys(publisher))), "")

    def newest(self, name: str) -> HubRelease | None:
        """The newest release of a skill that is neither yanked nor revoked."""
        found = [one for _, one in sorted(self.releases(name).items(), reverse=True)]
        return next(
            (
                one
                for one in found
                if not (one.yanked or one.tree in self.revoked or one.scan == UNREADABLE)
            ),
            None,
        )

    def load_all(self) -> dict[str, dict[Version, HubRelease]]:
        """Read the whole index; returns the releases of every skill."""
        for number in range(self.index.size):
            self._load_bin(number)
        return self.loaded

    def _load(self, name: str) -> None:
        if self.index.size:
            self._load_bin(files.bin_number(name, self.index.bits))

    def _load_bin(self, number: int) -> None:
        if number in self._read:
            return
        self._read.add(number)
        releases, keys = self.index.read(number)
        for one in releases:
            self.loaded.setdefault(one.name, {})[parse_version(one.version) or (0, 0, 0)] = one
        for key in keys:
            self.loaded_keys.setdefault(key.publisher, []).append(key)

    # --- changes ---------------------------------------------------------------------------

    def apply(self, commit: Commit, changes: Iterable[Row], inspect: Inspector | None) -> None:
        """Accept or ignore the changes of the next commit, whose place in the chain is right."""
        rules: dict[str, Callable[[Row, Commit, Inspector | None], str]] = {
            "hub": self._name_hub,
            "publisher": self._register,
            "release": self._release,
            "yank": self._yank,
            "revoke": self._revoke,
        }
        for change in changes:
            kind = str(change.get("type"))
            try:
                reason = rules[kind](change, commit, inspect)
            except (Changed, Unsafe, SkillBroken, InvalidInput) as exc:
                reason = exc.message
            except (KeyError, ValueError, TypeError):
                reason = say("it is not valid")
            if reason:
                about = [change.get(key) for key in ("publisher", "name", "version", "tree")]
                shown = " ".join(str(one) for one in (kind, *about) if one)
                self.ignored.append(IgnoredChange(commit.number, shown[:200], reason))

    def _name_hub(self, change: Row, commit: Commit, _: object) -> str:
        hub, key = str(change["hub"]), str(change["key"])
        if commit.number != 1 or self.hub:
            return _taken(hub)
        if not signed_by(change, hub, key):
            return say("invalid signature")
        self.hub, self.key = hub, key
        return ""

    def _register(self, change: Row, commit: Commit, _: object) -> str:
        publisher, key, by = str(change["publisher"]), str(change["key"]), str(change["by"])
        current = self.current_key(publisher)
        if current == key:
            return ""
        if not is_publisher(publisher) or by not in {"hub", "publisher"}:
            return say("it is not valid")
        if change["previous"] != current or any(key == one.key for one in self.keys(publisher)):
            return _taken(publisher)  # an old change, or an old key
        if not signed_by(change, self.hub, current if by == "publisher" else self.key):
            return say("invalid signature")
        row = PublisherKey(publisher, key, current, str(change["signature"]), by, commit.number)
        self.loaded_keys.setdefault(publisher, []).append(row)
        self.touched.add(publisher)
        return ""

    def _release(self, change: Row, commit: Commit, inspect: Inspector | None) -> str:
        name, text, tree, blob, size = (
            change[key] for key in ("name", "version", "tree", "blob", "size")
        )
        parsed, version = parse_name(name), parse_version(text)
        sized = type(size) is int and 0 < size <= files.MAX_BLOB_BYTES
        if not (parsed and version and sized and _TREE.match(tree) and _HEX.match(blob)):
            return say("it is not valid")
        key = self.current_key(parsed.publisher)
        if not signed_by(change, self.hub, key):
            return say("invalid signature")
        found = self.releases(name)
        if version in found:
            if found[version].tree != tree:
                return _taken(f"{name}@{text}")
            if found[version].scan != UNREADABLE:
                return ""
        one = HubRelease(name, text, tree, blob, size, commit.number, commit.time, "", "", "", key,
                         str(change["signature"]))  # fmt: skip
        problem = ""
        try:
            if inspect is not None:
                one = one._replace(**inspect(one)._asdict())
        except (Changed, Unsafe, SkillBroken) as exc:
            # The signature alone decides what a version is: it stays taken, but is not offered.
            one, problem = one._replace(scan=UNREADABLE), exc.message
        self.skills += not found
        self.loaded.setdefault(name, {})[version] = one
        self.touched.add(name)
        self.fresh.append(one)
        return problem

    def _yank(self, change: Row, _commit: Commit, _: object) -> str:
        name, version = str(change["name"]), parse_version(str(change["version"]))
        found = self.releases(name)
        if version is None or version not in found:
            return say("There is no `{path}`", path=f"{name}@{change['version']}")
        if not signed_by(change, self.hub, self.current_key(name.partition("/")[0])):
            return say("invalid signature")
        time = files.timestamp(files.parse_timestamp(change["time"]))
        if time <= found[version].yanked_at:
            return _taken(found[version].yanked_at)
        found[version] = found[version]._replace(yanked=str(change["reason"]), yanked_at=time)
        self.touched.add(name)
        return ""

    def _revoke(self, change: Row, _commit: Commit, _: object) -> str:
        tree = change["tree"]
        if not _TREE.match(tree) or not signed_by(change, self.hub, self.key):
            return say("invalid signature")
        if tree not in self.revoked:
            self.revoked[tree] = {key: change[key] for key in ("tree", "reason", "time")}
            for name, found in self.load_all().items():
                if any(one.tree == tree for one in found.values()):
                    self.touched.add(name)
        return ""


def _taken(name: str) -> str:
    return say("`{path}` exists already", path=name)


# --- the chain ----------------------------------------------------------------------------


def read_state(storage: Storage, key: str = "") -> HubState | None:
    """The state of a hub; None when there is none that `key`, or its own key, has signed."""
    data = storage.get(files.STATE, files.MAX_STATE_BYTES)
    try:
        return files.parse_state(data, key) if data is not None else None
    except Changed:
        return None


def rewritten(hub: str) -> Changed:
    """The error for a hub whose history is not the one that was seen."""
    return Changed(
        say("The history of the hub `{name}` was rewritten", name=hub),
        say("Do not use it; ask its keeper"),
    )


def sign_changes(changes: Sequence[Row], hub: str, key: SshKey) -> list[Row]:
    """The changes with a signature each."""
    texts = [files.change_statement(change, hub) for change in changes]
    signatures = key.sign(texts, files.CHANGE_NAMESPACE)
    return [{**row, "signature": made} for row, made in zip(changes, signatures, strict=True)]


class Chain:
    """The commits of a hub, and the ledger that they result in."""

    def __init__(
        self,
        storage: Storage,
        state: HubState | None = None,
        *,
        inspect: Inspector | None = None,
        until: int | None = None,
    ) -> None:
        """Read the commits after `state`, or all of them, up to the number `until`."""
        self.storage = storage
        self.ledger = HubLedger(storage, state)
        self._inspect = inspect
        self._digests: dict[int, str] = {0: ""}
        if state is not None and self._digest(state.count) != state.head:
            raise rewritten(state.hub)
        self.catch_up(until)

    def _digest(self, number: int) -> str:
        if number not in self._digests:
            data = self.storage.get(commit_path(number), files.MAX_COMMIT_BYTES)
            self._digests[number] = digest_hex(data or b"")
        return self._digests[number]

    def catch_up(self, until: int | None = None) -> list[Commit]:
        """Read the commits that were added, up to a number; returns them."""
        ledger, added = self.ledger, list[Commit]()
        while until is None or ledger.count < until:
            number = ledger.count + 1
            data = self.storage.get(commit_path(number), files.MAX_COMMIT_BYTES)
            if data is None:
                break
            commit = files.parse_commit(data, number)
            if commit[1:3] != (ledger.head, self._digest(skip_target(number))):
                raise files.damaged(commit_path(number))
            rows = read_rows(self.storage, "changes", commit.changes)
            ledger.apply(commit, rows, self._inspect)
            ledger.count, ledger.head = number, digest_hex(data)
            self._digests[number] = ledger.head
            added.append(commit)
        return added

    def append(self, make: Callable[[HubLedger], Sequence[Row]]) -> int:
        """Add a commit; returns its number, which acknowledges the changes.

        Args:
            make: Returns at most `MAX_COMMIT_CHANGES` signed changes, none when nothing is to be
                changed. It is called again after another writer was faster.
        """
        for attempt in range(_MAX_ATTEMPTS):
            changes = make(self.ledger)
            if not changes:
                return self.ledger.count
            number = self.ledger.count + 1
            digest = put_content(self.storage, "changes", files.pack_rows(changes))
            skip = self._digest(skip_target(number))
            commit = Commit(number, self.ledger.head, skip, digest, files.timestamp())
            made = self.storage.create(commit_path(number), files.render_commit(commit))
            added = self.catch_up()
            # A retry inside the storage may report our own commit as that of another writer.
            if made or any(one.changes == digest for one in added):
                return next(one.number for one in added if one.changes == digest)
            time.sleep(random.uniform(0, min(attempt, 20) * 0.005))  # noqa: S311 - spreads writers
        raise Conflict(
            say("Other processes change `{path}` all the time", path=self.storage.address),
            say("Try again"),
        )


def open_chain(storage: Storage) -> Chain:
    """The chain of a hub, tested for writing."""
    storage.probe()
    chain = Chain(storage, read_state(storage))
    if not chain.ledger.hub:
        raise no_hub(storage)
    return chain


def no_hub(storage: Storage) -> NotFound:
    """The error for a storage without a hub."""
    return NotFound(
        say("There is no {kind} `{name}`", kind=say("hub"), name=storage.address),
        say("Run `{command}`", command="satchel hub init"),
    )
