"""Builds the files that readers use: index, search list, revocations, pages, `state`.

All of them are a function of the commits. `state` is written last, so a build that was killed
leaves the hub as it was, and the next one makes the same files. A build continues from the last
`state`: it replays newer commits and rewrites only what they touch.

A check builds everything again elsewhere, from all commits, signatures and blobs, and compares; it
trusts only the hub's key. It takes the verdict of the scan from the index: scanners change.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Changed, Refused, SkillBroken, Unsafe
from satchel.hub.ledger import (
    TREE,
    HubLedger,
    batches,
    busy_error,
    no_hub_error,
    read_state,
    sign_changes,
)
from satchel.hub.publish import (
    allow,
    foreign_key_error,
    inspect_release,
    publish,
    revoke,
    stage_folder,
)
from satchel.hub.storage import Storage, open_storage, rebuild_hint
from satchel.i18n import say
from satchel.store.download import is_address
from satchel.store.hub_client import format as hub_format
from satchel.store.hub_client.client import require_fresh
from satchel.store.hub_client.format import TABLES, HubState, HubTable, TableEntry
from satchel.store.hub_client.signatures import signed_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.errors import SatchelError
    from satchel.hub.ledger import IgnoredChange
    from satchel.hub.publish import Draft
    from satchel.store.hub_client.format import HubFiles, HubRelease, Row
    from satchel.store.signing import SshKey

_MAX_ROUNDS = 100
"""Other writers make a build start again."""
_MAX_MISSING_COMMITS = 100
"""A repair finds commits after as many that are missing."""


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
    storage: Storage,
    key: SshKey | None,
    skills: str = "",
    *,
    pages: bool = False,
    rebuild: bool = False,
) -> BuildReport:
    """Publish a folder of skills if one is given, and bring all files up to date.

    Without a key nothing is changed, and the report says what would be published. `skills` is a
    folder `publisher/skill/SKILL.md`. `rebuild` makes all files from the commits, also without a
    valid `state`, which would show what was there before.
    """
    descriptions: dict[object, Row] = {}

    def inspect(release: HubRelease) -> Row:
        return descriptions.get((release.tree, release.blob)) or inspect_release(storage, release)

    report = BuildReport()
    touched: set[str] = set()
    """Names of all rounds: one that lost may have replaced newer pages."""
    for _ in range(_MAX_ROUNDS):
        state = None if rebuild else _read_last_state(storage)
        stored_state = read_state(storage, key.public if key else "") if rebuild else None
        min_count = stored_state.count if stored_state else None
        ledger = HubLedger(storage, state, inspect=inspect, until=min_count)
        ledger.catch_up()
        _require_own_hub(ledger, key)
        drafts = stage_folder(ledger, skills, key, report.refused) if skills else []
        report.published += [draft.title for draft in drafts]
        if key is None:
            return report
        descriptions |= {
            (draft.change["tree"], draft.change["blob"]): draft.description for draft in drafts
        }
        if drafts:
            _publish_drafts(ledger, drafts, key)
        _revoke_blocked(ledger, report, key)
        report.ignored |= dict.fromkeys(ledger.ignored)
        skills = ""
        touched = ledger.touched = ledger.touched | touched
        new_state = write_files(storage, ledger)
        if pages:
            _write_pages(storage, ledger, new_state)
        stored_state = read_state(storage, key.public)
        if stored_state is not None and stored_state.count > new_state.count:
            continue  # another build was faster
        report.state = new_state
        if _save_state(storage, new_state, key):
            return report
    raise busy_error(storage)


def _require_own_hub(ledger: HubLedger, key: SshKey | None) -> None:
    if not ledger.hub:
        raise no_hub_error(ledger.storage)
    if key is not None and key.public != ledger.key:
        raise Refused(
            foreign_key_error(ledger.hub).message,
            # A forged `state` names another key.
            say("Pass the hub's key; if this is the one, run `satchel hub build --rebuild`"),
        )


def _publish_drafts(ledger: HubLedger, drafts: list[Draft], key: SshKey) -> None:
    ledger.storage.probe()
    publishers = {str(draft.change["name"]).partition("/")[0] for draft in drafts}
    allow(ledger, sorted(publishers), key.public, key)
    publish(ledger, drafts, key)


def _revoke_blocked(ledger: HubLedger, report: BuildReport, key: SshKey) -> None:
    """Revoke new releases that the scan blocks."""
    for release in ledger.fresh:
        if release.scan == "blocked" and release.tree not in ledger.revoked:
            report.revoked.append(f"{release.name}@{release.version}")
            revoke(ledger, release.tree, "scan: blocked", key)


def _write_pages(storage: Storage, ledger: HubLedger, state: HubState) -> None:
    from satchel.hub.site import site_files

    for path, data in site_files(ledger, state):
        storage.put(path, data)


def _save_state(storage: Storage, state: HubState, key: SshKey) -> bool:
    """Sign and write a state; False when a newer commit is there already."""
    content = hub_format.render_state(state, lambda data, space: key.sign([data], space)[0])
    storage.put(hub_format.STATE, content)
    next_commit = hub_format.commit_path(state.count + 1)
    return storage.save() and storage.get(next_commit, hub_format.MAX_COMMIT_BYTES) is None


def _read_last_state(storage: Storage) -> HubState | None:
    """Return the state to continue from; None in a new hub."""
    if storage.get(hub_format.STATE, hub_format.MAX_STATE_BYTES) is not None:
        return _parse_stored_state(storage)
    if storage.get(hub_format.commit_path(2), hub_format.MAX_COMMIT_BYTES) is not None:
        text = say("The hub `{name}` has no `{path}`", name=storage.name, path=hub_format.STATE)
        raise Refused(text, rebuild_hint())
    return None


# --- files ---------------------------------------------------------------------------------


def write_files(storage: Storage, ledger: HubLedger) -> HubState:
    """Write index, lists and revocations; returns the state to be signed."""
    roots = {
        folder: _TableWriter(storage, folder).write(
            getattr(ledger.state, folder, ""),
            {TABLES[folder].bits(key): rows for key, rows in changed.items()},
        )
        for folder, changed in _changed_rows(ledger).items()
    }
    revoked = [{"tree": tree, "reason": ledger.revoked[tree]} for tree in sorted(ledger.revoked)]
    return HubState(
        ledger.hub,
        ledger.key,
        ledger.count,
        ledger.head,
        revoked=storage.put_rows("revoked", revoked),
        skills=ledger.skills,
        time=hub_format.timestamp(),
        repairs=ledger.repairs,
        rotations=ledger.rotations,
        **roots,
    )


def _changed_rows(ledger: HubLedger) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of each key that was touched, by table."""
    tables: dict[str, dict[str, list[Row]]] = {folder: {} for folder in TABLES}
    for key in ledger.touched:
        if TREE.match(key):
            tables["index"][key] = [{"tree": key, "names": sorted(ledger.names(key))}]
            continue
        if "/" not in key:
            tables["index"][key] = list(map(_make_row, ledger.keys(key)))
            continue
        tables["index"][key] = list(map(_make_row, ledger.sorted_releases(key)))
        release = ledger.newest(key)
        row = {"version": release.version, "description": release.description} if release else {}
        tables["search"][key] = [{"name": key, **row}]
    return tables


def _make_row(record: NamedTuple) -> Row:
    """Return a record as a row, without fields that have their default value."""
    defaults: dict[str, Any] = record._field_defaults
    return {key: value for key, value in record._asdict().items() if defaults.get(key) != value}


class _TableWriter:
    """Writes the nodes and bins of a table; rows are grouped by the bits of their key."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._table = HubTable(storage, folder)
        self._kind = self._table.kind
        self._rows = partial(storage.rows, folder)
        self._put = partial(storage.put_rows, folder)

    def write(self, digest: str, changed: Mapping[str, list[Row]], depth: int = 0) -> str:
        """Write a node with other rows; without a digest, a new table. Returns the digest."""
        if not digest:
            return self._put(map(_make_row, self._divide(changed)))
        entries: list[TableEntry] = []
        for entry in self._table.node(digest):
            end = depth + len(entry.prefix)
            groups = {
                bits: rows for bits, rows in changed.items() if bits[depth:end] == entry.prefix
            }
            if not groups:
                entries.append(entry)
            elif entry.node:
                entries.append(entry._replace(node=self.write(entry.node, groups, end)))
            else:
                groups = self._read_groups(entry.bin) | groups
                entries += self._divide(groups, depth, entry.prefix)
        return self._put(map(_make_row, entries))

    def _read_groups(self, digest: str) -> dict[str, list[Row]]:
        groups: dict[str, list[Row]] = {}
        for row in self._rows(digest):
            key = str(row.get("name") or row.get("publisher") or row["tree"])
            groups.setdefault(self._kind.bits(key), []).append(row)
        return groups

    def _divide(
        self, groups: Mapping[str, list[Row]], depth: int = 0, prefix: str = ""
    ) -> Iterator[TableEntry]:
        """Yield the entries of a node at a depth for the rows whose bits go on with a prefix."""
        end = depth + len(prefix)
        if len(groups) <= self._kind.capacity:
            yield TableEntry(
                prefix, bin=self._put(row for _, rows in sorted(groups.items()) for row in rows)
            )
        elif prefix and end in self._kind.depths:
            entries = map(_make_row, self._divide(groups, end))
            yield TableEntry(prefix, node=self._put(entries))
        else:
            for digit in "01":
                half = {bits: rows for bits, rows in groups.items() if bits[end] == digit}
                yield from self._divide(half, depth, prefix + digit)


# --- repair --------------------------------------------------------------------------------


class HubRepair(NamedTuple):
    """What a repair did."""

    first: int
    """The first commit that was replaced."""
    last: int
    lost: tuple[str, ...]
    """Releases that must be published again: `acme/x@1.0.0`."""
    lost_yanks: dict[str, str]
    """Releases that their publishers must withdraw again, with the reasons."""
    build: BuildReport


def repair_hub(storage: Storage, key: SshKey) -> HubRepair | None:
    """Replace the commits from the first bad one on; None when there is none.

    The bad files are set aside, and a signed change says that. Changes that can be read stay; those
    that cannot are taken from the index of the last `state`.
    """
    state = read_state(storage, key.public)
    ledger = _read_good_commits(storage, state)
    if ledger is None:
        return None
    good_rotations = len(ledger.rotations)
    if state is not None:
        ledger.hub, ledger.key, ledger.rotations = state.hub, state.key, state.rotations
    _require_own_hub(ledger, key)
    indexed = _read_indexed(storage, state)
    first, last = ledger.count + 1, _find_last_commit(storage, ledger.count + 1, state)
    numbers = {"first": str(first), "last": str(last)}
    rows: list[Row] = [{"type": "repair", "previous": ledger.head, **numbers}]
    rotations = ledger.rotations[good_rotations:]
    if first == 1:  # what the first key has signed is lost with it: the newest one makes the hub
        rows.insert(0, {"type": "hub", "hub": ledger.hub, "key": ledger.key})
        rows = [*sign_changes(rows, ledger.hub, key), *reversed(rotations)]
    else:
        rows = [*rotations, *sign_changes(rows, ledger.hub, key)]
    for row in _missing_changes(ledger, indexed, key):
        if row["type"] == "publisher" and row["previous"] == ledger.current_key(row["publisher"]):
            rows.append(row)  # needed by the releases that follow
    ledger.replace_tail(rows, last)
    ledger = HubLedger(storage)
    for batch in batches(_missing_changes(ledger, indexed, key)):
        ledger.append(lambda batch=batch: batch)
    lost: list[str] = []
    lost_yanks: dict[str, str] = {}
    for release in indexed.load_all():
        replayed = ledger.releases(release.name).get(release.version)
        title = f"{release.name}@{release.version}"
        if replayed is None:
            lost.append(title)
        elif release.yanked and not replayed.yanked:
            lost_yanks[title] = release.yanked
    report = build(storage, key, pages=True, rebuild=True)
    return HubRepair(first, last, tuple(lost), lost_yanks, report)


def _read_indexed(storage: Storage, state: HubState | None) -> HubLedger:
    """Read what the index of a state has; nothing when it cannot be read."""
    with suppress(Changed):
        if state is not None:
            commit = storage.get(hub_format.commit_path(state.count), hub_format.MAX_COMMIT_BYTES)
            known_state = state._replace(head=hub_format.digest_hex(commit or b""))
            indexed = HubLedger(storage, known_state, until=state.count)
            indexed.load_all()
            return indexed
    return HubLedger(storage, until=0)


def _read_good_commits(storage: Storage, state: HubState | None) -> HubLedger | None:
    """Read the commits before the first bad one; None when all are good."""
    ledger = HubLedger(storage, until=0)
    try:
        if state is not None:
            ledger.catch_up(state.count)
            if ledger.head != state.head:
                return HubLedger(storage, until=state.count - 1)
        ledger.catch_up()
    except Changed:
        return ledger
    return None


def _find_last_commit(storage: Storage, first: int, state: HubState | None) -> int:
    """Return the number of the last commit from `first` on, of which some may be missing."""
    last, number = max(first, state.count if state else 0), first
    while number <= last + _MAX_MISSING_COMMITS:
        path = hub_format.commit_path(number)
        if storage.get(path, hub_format.MAX_FILE_BYTES) is not None:
            last = max(last, number)
        number += 1
    return last


def _missing_changes(ledger: HubLedger, indexed: HubLedger, key: SshKey) -> list[Row]:
    """Return the changes of an index that the commits have no more, signed; without yanks."""
    rows: list[Row] = []
    for record in indexed.all_keys():
        if all(old_key.key != record.key for old_key in ledger.keys(record.publisher)):
            row: Row = {"type": "publisher", **record._asdict()}
            if not signed_by(row, ledger.hub, record.previous):
                (row,) = sign_changes([row], ledger.hub, key)
            rows.append(row)
    for release in indexed.load_all():
        if release.version not in ledger.releases(release.name):
            fields = ("name", "version", "tree", "blob", "size", "signature")
            rows.append({"type": "release"} | {name: getattr(release, name) for name in fields})
    unsigned = [
        {"type": "revoke", "tree": tree, "reason": reason}
        for tree, reason in indexed.revoked.items()
        if tree not in ledger.revoked
    ]
    return rows + sign_changes(unsigned, ledger.hub, key)


# --- check and copy ------------------------------------------------------------------------


class HubCheck(NamedTuple):
    """The result of a check."""

    state: HubState
    releases: int
    problems: tuple[str, ...]
    """Bad files, and differences between the files and the commits; the first one first."""
    fixes: tuple[str, ...]
    """What a keeper does about each problem."""
    ignored: tuple[IgnoredChange, ...]
    """Changes that broke a rule; they have no effect."""
    waiting: int
    """Commits that no build has seen yet."""


def check_hub(storage: Storage, key: str = "") -> HubCheck:
    """Replay all commits and compare the result with the index, the lists and the blobs.

    Without a key, that of the hub's `state` is used. Damaged files raise `Changed`.
    """
    state = _parse_stored_state(storage, key)
    problems: dict[str, str] = {}
    indexed = HubLedger(storage, state, until=state.count)

    def inspect(release: HubRelease) -> Row:
        indexed_release = indexed.releases(release.name).get(release.version)
        try:
            return inspect_release(
                storage, release, indexed_release.scan if indexed_release else ""
            )
        except (Changed, Unsafe, SkillBroken) as exc:
            is_same = indexed_release is not None and indexed_release.blob == release.blob
            if not (indexed_release and is_same) or indexed_release.scan == hub_format.UNREADABLE:
                raise
            title = f"{release.name}@{release.version}"
            text = say("{reason}; `{name}` cannot be installed", reason=exc.message, name=title)
            problems[text] = say(
                "Put the file back from a backup or a mirror; without one, publish the "
                "release again"
            )
            return {
                key: getattr(indexed_release, key) for key in ("description", "license", "scan")
            }

    ledger = HubLedger(storage, inspect=inspect, until=state.count)
    with (
        TemporaryDirectory(prefix="satchel-hub-") as folder,
        open_storage(folder, durable=False) as scratch_storage,
    ):
        rebuilt = write_files(scratch_storage, ledger)
        present, expected = _count_rows(storage, state), _count_rows(scratch_storage, rebuilt)
    contents = {key: getattr(state, key) for key in (*TABLES, "revoked", "time")}
    if rebuilt._replace(**contents) != state:
        problems[hub_format.damaged(hub_format.STATE).message] = rebuild_hint()
    for folder, _, line in sorted((present - expected) + (expected - present)):
        if folder == "index":
            row = json.loads(line)
            name = row.get("name") or row.get("publisher") or row["tree"]
            problem = say("The index differs from the commits for `{name}`", name=name)
        else:
            path = hub_format.content_path(folder, getattr(state, folder))
            problem = hub_format.damaged(path).message
        problems[problem] = rebuild_hint()
    try:
        require_fresh(state)
    except Changed as exc:
        problems[exc.message] = say("Run `{command}`", command="satchel hub build")
    count, ignored = len(ledger.load_all()), tuple(ledger.ignored)
    fixes = tuple("" if is_address(storage.name) else fix for fix in problems.values())
    return HubCheck(state, count, tuple(problems), fixes, ignored, len(ledger.catch_up()))


def _parse_stored_state(storage: Storage, key: str = "") -> HubState:
    """Read `state`; the error for a damaged one says what follows."""
    try:
        return hub_format.parse_state(read_stored_state(storage), key)
    except Changed as exc:
        if exc.message != hub_format.damaged(hub_format.STATE).message:
            raise
        with storage.keeper_errors(hub_format.STATE):
            raise


def read_stored_state(storage: Storage) -> bytes:
    """Return the bytes of `state`."""
    data = storage.get(hub_format.STATE, hub_format.MAX_STATE_BYTES)
    if data is None:
        raise no_hub_error(storage)
    return data


def _count_rows(hub: HubFiles, state: HubState) -> Counter[tuple[str, str, bytes]]:
    """Count the rows of the index and of the lists, each as bytes that can be compared."""
    return Counter(
        (folder, bits, hub_format.render_row(row)) for folder, bits, row in iterate_rows(hub, state)
    )


def iterate_rows(hub: HubFiles, state: HubState) -> Iterator[tuple[str, str, Row]]:
    """Yield each row that `state` leads to: its folder, the bits of its bin, and the row.

    All files that they are in are read through `hub`.
    """
    for folder in TABLES:
        for bits, digest in HubTable(hub, folder, getattr(state, folder)).bins():
            for row in hub.rows(folder, digest):
                yield folder, bits, row
    for row in hub.rows("revoked", state.revoked):
        yield "revoked", "", row


def mirror_hub(source: Storage, target: Storage, key: str = "") -> HubState:
    """Copy a hub as of its `state`, without pages; files of an older copy are not read again."""
    data = read_stored_state(source)
    state = hub_format.parse_state(data, key)
    if old_data := target.get(hub_format.STATE, hub_format.MAX_STATE_BYTES):
        old_state = hub_format.parse_state(old_data)
        hub_format.parse_state(data, old_state.key)
        if old_state.hub != state.hub or old_state.count > state.count:
            raise hub_format.rewritten(state.hub)
    copying_storage = _CopyingStorage(source, target)
    digest = state.head
    for number in range(state.count, 0, -1):
        path = hub_format.commit_path(number)
        commit = source.get(path, hub_format.MAX_COMMIT_BYTES) or b""
        if hub_format.digest_hex(commit) != digest:
            raise hub_format.rewritten(state.hub)
        parsed = hub_format.parse_commit(commit, number)
        digest = parsed.previous
        copying_storage.content("changes", parsed.changes)
        target.put(path, commit)
    for folder, _, row in iterate_rows(copying_storage, state):
        if folder == "index" and "blob" in row and row.get("scan") != hub_format.UNREADABLE:
            copying_storage.content("blobs", row["blob"], hub_format.MAX_BLOB_BYTES)
    target.put(hub_format.STATE, data)
    if not target.save():
        raise busy_error(target)
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
        if data is None or hub_format.digest_hex(data) != digest:
            data = self._source.get(path, limit)
            if data is not None and hub_format.digest_hex(data) == digest:
                self._target.put(path, data)
        return data
