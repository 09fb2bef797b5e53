"""Replays a whole hub and compares the result with its files; copies a hub.

Anyone can check a hub: every commit, signature and blob is read, and only the hub's key is
trusted. The verdict of the scan is taken from the index, since scanners change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import Changed, Conflict
from satchel.hub.build import search_row
from satchel.hub.commits import Chain, HubLedger, no_hub, read_content, read_rows, rewritten
from satchel.hub.publish import inspect_release
from satchel.hub.storage import Storage
from satchel.i18n import say
from satchel.store.hub_client import format as files
from satchel.store.hub_client.client import require_fresh
from satchel.store.hub_client.format import bin_number, content_path, damaged, index_bits
from satchel.store.hub_client.release_name import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.hub.commits import IgnoredChange, Inspection
    from satchel.store.hub_client.format import HubRelease, HubState, Row


class HubCheck(NamedTuple):
    """The result of a check."""

    state: HubState
    releases: int
    problems: tuple[str, ...]
    """Differences between the files and the commits."""
    ignored: tuple[IgnoredChange, ...]
    """Changes that broke a rule; they have no effect."""
    waiting: int
    """Commits that no build has seen yet."""


def check_hub(storage: Storage, key: str = "") -> HubCheck:
    """Replay all commits and compare the result with the index, the lists and the blobs.

    Without a key, that of the hub's `state` is used. Damaged files raise `Changed`.
    """
    state = files.parse_state(_read_state(storage), key)
    indexed = HubLedger(storage, state)
    found = indexed.load_all()

    def inspect(release: HubRelease) -> Inspection:
        old = found.get(release.name, {}).get(parse_version(release.version) or (0, 0, 0))
        return inspect_release(storage, release, old.scan if old else "")

    chain = Chain(storage, inspect=inspect, until=state.count)
    made = chain.ledger
    problems = list(_compare(made, indexed, state))
    if _segments(storage, state) != _expected_segments(made):
        problems.append(damaged(content_path("search", state.search)).message)
    try:
        require_fresh(state)
    except Changed as exc:
        problems.append(exc.message)
    count = sum(map(len, made.loaded.values()))
    waiting = len(chain.catch_up())
    return HubCheck(state, count, tuple(problems), tuple(made.ignored), waiting)


def _read_state(storage: Storage) -> bytes:
    data = storage.get(files.STATE, files.MAX_STATE_BYTES)
    if data is None:
        raise no_hub(storage)
    return data


def _compare(made: HubLedger, indexed: HubLedger, state: HubState) -> Iterator[str]:
    if (made.hub, made.key, made.count, made.head, made.skills) != (*state[:4], state.skills):
        yield damaged(files.STATE).message
    bits = indexed.index.bits
    for number in range(indexed.index.size):
        releases, keys = indexed.index.read(number)
        names = {one.name for one in releases} | {one.publisher for one in keys}
        if bits != index_bits(made.skills) or any(bin_number(one, bits) != number for one in names):
            yield damaged(content_path("index", state.index)).message
    for one, other in ((made.loaded, indexed.loaded), (made.loaded_keys, indexed.loaded_keys)):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                yield say("The index differs from the commits for `{name}`", name=name)
    if made.revoked != indexed.revoked:
        yield damaged(content_path("revoked", state.revoked)).message


def _segments(storage: Storage, state: HubState) -> list[list[Row]]:
    listed = read_rows(storage, "search", state.search)
    return [read_rows(storage, "search", str(one["segment"])) for one in listed]


def _expected_segments(ledger: HubLedger) -> list[list[Row]]:
    bits = index_bits(ledger.skills, files.SEGMENT_SKILL_COUNT)
    segments: list[list[Row]] = [[] for _ in range(1 << bits)]
    for name in sorted(ledger.loaded):
        if newest := ledger.newest(name):
            segments[bin_number(name, bits)].append(search_row(newest))
    return segments


def mirror_hub(source: Storage, target: Storage, key: str = "") -> HubState:
    """Copy a hub as of its `state`, without pages; files of an older copy are not read again."""
    data = _read_state(source)
    state = files.parse_state(data, key)
    if older := target.get(files.STATE, files.MAX_STATE_BYTES):
        before = files.parse_state(older, state.key)
        if before.hub != state.hub or before.count > state.count:
            raise rewritten(state.hub)
    copy = _CopyingStorage(source, target)
    head, commits = "", dict[str, bytes]()
    for number in range(1, state.count + 1):
        path = files.commit_path(number)
        commit = commits[path] = source.get(path, files.MAX_COMMIT_BYTES) or b""
        parsed = files.parse_commit(commit, number)
        if parsed.previous != head:
            raise rewritten(state.hub)
        head = files.digest_hex(commit)
        read_content(copy, "changes", parsed.changes)
    if head != state.head:
        raise rewritten(state.hub)
    for found in HubLedger(copy, state).load_all().values():
        for one in found.values():
            read_content(copy, "blobs", one.blob, one.size)
    _segments(copy, state)
    for path, commit in commits.items():
        target.put(path, commit)
    target.put(files.STATE, data)
    if not target.save():
        raise Conflict(
            say("Other processes change `{path}` all the time", path=target.address),
            say("Try again"),
        )
    return state


class _CopyingStorage(Storage):
    """A source whose content files are copied when they are read, if they are intact."""

    def __init__(self, source: Storage, target: Storage) -> None:
        super().__init__(source.address)
        self._source = source
        self._target = target

    def get(self, path: str, limit: int) -> bytes | None:
        digest = path.rpartition("/")[2].removesuffix(".tar.gz")
        data = self._target.get(path, limit)
        if data is None or files.digest_hex(data) != digest:
            data = self._source.get(path, limit)
            if data is not None and files.digest_hex(data) == digest:
                self._target.put(path, data)
        return data
