"""Builds the files that readers use: index, revocation list, search list, pages, `state`.

All of them are a function of the commits. `state` is written last, so a build that was killed
leaves the hub as it was, and the next one makes the same files. A build continues from the last
`state`: it replays newer commits and rewrites only what they touch.

A check builds everything again elsewhere, from all commits, signatures and blobs, and compares; it
trusts only the hub's key. It takes the verdict of the scan from the index: scanners change.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Changed, Refused
from satchel.hub.ledger import HubLedger, busy, no_hub, read_state, sign_changes
from satchel.hub.publish import allow, foreign_key, inspect_release, publish, read_folder, revoke
from satchel.hub.storage import Storage, open_storage
from satchel.i18n import say
from satchel.store.hub_client import format as files
from satchel.store.hub_client.client import require_fresh
from satchel.store.hub_client.format import HubIndex, HubState, bin_number, index_bits, pack_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from satchel.errors import SatchelError
    from satchel.hub.ledger import IgnoredChange
    from satchel.store.hub_client.format import HubFiles, HubRelease, PublisherKey, Row
    from satchel.store.signing import SshKey

_MAX_ROUNDS = 100
"""Other writers make a build start again."""


@dataclass
class BuildReport:
    """What a build did, or would do."""

    state: HubState | None = None
    """None for a dry run."""
    published: list[str] = field(default_factory=list[str])
    """Releases from the folder, `acme/x@1.0.0`."""
    refused: dict[str, SatchelError] = field(default_factory=dict[str, "SatchelError"])
    """Skills of the folder that cannot be released; the others are."""
    revoked: list[str] = field(default_factory=list[str])
    """New releases that the scan blocks."""
    ignored: dict[IgnoredChange, None] = field(default_factory=dict["IgnoredChange", None])
    """Changes in the new commits that broke a rule."""


def create_hub(storage: Storage, name: str, key: SshKey) -> HubState | None:
    """Make an empty hub; returns its state."""
    storage.probe()
    ledger = HubLedger(storage)
    rows = sign_changes([{"type": "hub", "hub": name, "key": key.public}], name, key)
    if ledger.count or ledger.append(lambda: [] if ledger.count else rows) != 1:
        raise Refused(say("`{path}` exists already", path=storage.name))
    return build(storage, key).state


def build(
    storage: Storage, key: SshKey | None, skills: str = "", *, pages: bool = False,
    rebuild: bool = False,
) -> BuildReport:  # fmt: skip
    """Publish a folder of skills if one is given, and bring all files up to date.

    Without a key nothing is changed, and the report says what would be published. `skills` is a
    folder `publisher/skill/SKILL.md`. `rebuild` makes all files from the commits, also without a
    valid `state`, which would show what was there before.
    """
    known: dict[object, Row] = {}

    def inspect(release: HubRelease) -> Row:
        return known.get((release.tree, release.blob)) or inspect_release(storage, release)

    report = BuildReport()
    touched: set[str] = set()  # of all rounds: one that lost may have replaced newer pages
    for _ in range(_MAX_ROUNDS):
        state = None if rebuild else _last_state(storage, key)
        ledger = HubLedger(storage, state, inspect=inspect)
        if not ledger.hub or (key is not None and key.public != ledger.key):
            raise foreign_key(ledger.hub) if ledger.hub else no_hub(storage)
        drafts = read_folder(ledger, skills, key, report.refused) if skills else []
        report.published += [one.title for one in drafts]
        if key is None:
            return report
        known |= {(one.change["tree"], one.change["blob"]): one.about for one in drafts}
        if drafts:
            storage.probe()
            publishers = {str(one.change["name"]).partition("/")[0] for one in drafts}
            allow(ledger, sorted(publishers), key.public, key)
            publish(ledger, drafts, key)
        for one in ledger.fresh:
            if one.scan == "blocked" and one.tree not in ledger.revoked:
                report.revoked.append(f"{one.name}@{one.version}")
                revoke(ledger, one.tree, "scan: blocked", key)
        report.ignored |= dict.fromkeys(ledger.ignored)
        skills = ""
        touched = ledger.touched = ledger.touched | touched
        made = write_files(storage, ledger)
        if pages:
            from satchel.hub.site import site_files

            for path, data in site_files(ledger, made):
                storage.put(path, data)
        present = read_state(storage, key.public)
        if present is not None and present.count > made.count:
            continue  # another build was faster
        text = files.render_state(made, lambda data, space: key.sign([data], space)[0])
        storage.put(files.STATE, text)
        report.state = made
        newer = files.commit_path(made.count + 1)
        if storage.save() and storage.get(newer, files.MAX_COMMIT_BYTES) is None:
            return report
    raise busy(storage)


def _last_state(storage: Storage, key: SshKey | None) -> HubState | None:
    """The state to continue from; None in a new hub."""
    state = read_state(storage, key.public if key else "")
    if state is None and storage.get(files.commit_path(2), files.MAX_COMMIT_BYTES) is not None:
        raise Refused(
            say("The hub has no `{path}` that is signed with this key", path=files.STATE),
            say("Look at the storage; `satchel hub build --rebuild` makes it from the commits"),
        )
    return state


# --- files ---------------------------------------------------------------------------------


def write_files(storage: Storage, ledger: HubLedger) -> HubState:
    """Write index, revocation list and search list; returns the state to be signed."""
    revoked = [{"tree": tree, "reason": ledger.revoked[tree]} for tree in sorted(ledger.revoked)]
    return HubState(
        ledger.hub,
        ledger.key,
        ledger.count,
        ledger.head,
        index=_write_index(storage, ledger),
        revoked=storage.put_content("revoked", pack_rows(revoked)),
        search=_write_search(storage, ledger),
        skills=ledger.skills,
        time=files.timestamp(),
    )


def _write_index(storage: Storage, ledger: HubLedger) -> str:
    """Write the bins that changed, and the files above them; returns the digest of the root."""
    changed: dict[str, list[Row]] = {}
    for name in ledger.touched:
        rows = ledger.sorted_releases(name) or ledger.keys(name)
        changed[name] = [_row(one) for one in rows]
    old = [ledger.index.digest(number) for number in range(ledger.index.size)]
    bits = index_bits(ledger.skills)
    bins = _write_shards(storage, "index", old, bits, changed)
    low = 1 << files.low_bits(bits)
    root: list[Row] = [{"bits": bits}]
    for start in range(0, len(bins), low):
        rows = pack_rows({"bin": digest} for digest in bins[start : start + low])
        root.append({"middle": storage.put_content("index", rows)})
    return storage.put_content("index", pack_rows(root))


def _row(one: HubRelease | PublisherKey) -> Row:
    """A row of a bin, without empty optional fields."""
    defaults: dict[str, Any] = one._field_defaults
    return {key: value for key, value in one._asdict().items() if defaults.get(key) != value}


def _write_search(storage: Storage, ledger: HubLedger) -> str:
    """Write the segments that changed and the list of segments; returns the list's digest."""
    changed: dict[str, list[Row]] = {}
    for name in ledger.touched:
        if "/" in name:
            row = ledger.newest(name)
            fields = ("name", "version", "description")
            changed[name] = [{key: getattr(row, key) for key in fields}] if row else []
    listed = storage.rows("search", ledger.state.search) if ledger.state else []
    old = [str(row["segment"]) for row in listed]
    bits = index_bits(ledger.skills, files.SEGMENT_SKILL_COUNT)
    made = _write_shards(storage, "search", old, bits, changed)
    return storage.put_content("search", pack_rows({"segment": digest} for digest in made))


def _write_shards(
    storage: Storage, folder: str, old: Sequence[str], bits: int, changed: Mapping[str, list[Row]]
) -> list[str]:
    """Write the files of a table that is divided by the hash of names; returns their digests.

    `changed` has the new rows of names; every file is written when the number of bits changed.
    """
    same = len(old) == 1 << bits
    numbers = {bin_number(name, bits) for name in changed} if same else range(1 << bits)
    shards: dict[int, dict[str, list[Row]]] = {number: {} for number in numbers}
    for number, digest in enumerate(old):
        for row in storage.rows(folder, digest) if not same or number in shards else ():
            name = str(row.get("name") or row["publisher"])
            shards[bin_number(name, bits)].setdefault(name, []).append(row)
    for name, rows in changed.items():
        shards[bin_number(name, bits)][name] = rows
    made = list(old) if same else [""] * (1 << bits)
    for number, shard in shards.items():
        rows = [row for name in sorted(shard) for row in shard[name]]
        made[number] = storage.put_content(folder, pack_rows(rows))
    return made


# --- check and copy ------------------------------------------------------------------------


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
    indexed = HubLedger(storage, state, until=state.count)

    def inspect(release: HubRelease) -> Row:
        old = indexed.releases(release.name).get(release.version)
        return inspect_release(storage, release, old.scan if old else "")

    ledger = HubLedger(storage, inspect=inspect, until=state.count)
    with TemporaryDirectory(prefix="satchel-hub-") as folder, open_storage(folder) as scratch:
        made = write_files(scratch, ledger)
        rows = [
            [(*place, files.render_row(row)) for *place, row in _contents(hub, of)]
            for hub, of in ((storage, state), (scratch, made))
        ]
    one, other = map(Counter, rows)
    problems: dict[str, None] = {}
    if made[:4] != state[:4] or made.skills != state.skills:
        problems[files.damaged(files.STATE).message] = None
    for place, _, line in sorted((one - other) + (other - one)):
        folder, row = str(place), json.loads(line)
        name = row.get("name") or row.get("publisher") or "bits"
        text = say("The index differs from the commits for `{name}`", name=name)
        if folder != "index":
            text = files.damaged(files.content_path(folder, getattr(state, folder))).message
        problems[text] = None
    if rows[0] != rows[1] and not problems:  # another order
        problems[files.damaged(files.content_path("index", state.index)).message] = None
    try:
        require_fresh(state)
    except Changed as exc:
        problems[exc.message] = None
    count, ignored = len(ledger.load_all()), tuple(ledger.ignored)
    return HubCheck(state, count, tuple(problems), ignored, len(ledger.catch_up()))


def _read_state(storage: Storage) -> bytes:
    data = storage.get(files.STATE, files.MAX_STATE_BYTES)
    if data is None:
        raise no_hub(storage)
    return data


def _contents(hub: HubFiles, state: HubState) -> Iterator[tuple[str, int, Row]]:
    """Each row of the index and of the lists: folder, number of the bin or segment, row."""
    index = HubIndex(hub, state.index)
    yield "index", -1, {"bits": index.bits}
    bins = (hub.rows("index", index.digest(number)) for number in range(index.size))
    revoked = [hub.rows("revoked", state.revoked)]
    tables = {"index": bins, "search": hub.segments(state.search), "revoked": revoked}
    for folder, table in tables.items():
        for number, rows in enumerate(table):
            for row in rows:
                yield folder, number, row


def mirror_hub(source: Storage, target: Storage, key: str = "") -> HubState:
    """Copy a hub as of its `state`, without pages; files of an older copy are not read again."""
    data = _read_state(source)
    state = files.parse_state(data, key)
    if older := target.get(files.STATE, files.MAX_STATE_BYTES):
        before = files.parse_state(older, state.key)
        if before.hub != state.hub or before.count > state.count:
            raise files.rewritten(state.hub)
    copy = _CopyingStorage(source, target)
    digest = state.head
    for number in range(state.count, 0, -1):
        path = files.commit_path(number)
        commit = source.get(path, files.MAX_COMMIT_BYTES) or b""
        if files.digest_hex(commit) != digest:
            raise files.rewritten(state.hub)
        parsed = files.parse_commit(commit, number)
        digest = parsed.previous
        copy.content("changes", parsed.changes)
        target.put(path, commit)
    for _, _, row in _contents(copy, state):
        if "blob" in row and row.get("scan") != files.UNREADABLE:
            copy.content("blobs", row["blob"], files.MAX_BLOB_BYTES)
    target.put(files.STATE, data)
    if not target.save():
        raise busy(target)
    return state


class _CopyingStorage(Storage):
    """A source whose content files are copied when they are read, if they are intact."""

    def __init__(self, source: Storage, target: Storage) -> None:
        super().__init__(source.name)
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
