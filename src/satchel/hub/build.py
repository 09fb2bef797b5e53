"""Builds the files that readers use: index, revocation list, search list, pages, `state`.

All of them are a function of the commits. `state` is written last, so a build that was killed
leaves the hub as it was, and the next one makes the same files. A build continues from the last
`state`: it replays newer commits and rewrites only what they touch.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from satchel.errors import Conflict, NotFound, Refused, SatchelError
from satchel.hub.commits import (
    MAX_COMMIT_CHANGES,
    UNREADABLE,
    Chain,
    no_hub,
    read_rows,
    read_state,
    sign_changes,
)
from satchel.hub.publish import (
    check_publisher,
    foreign_key,
    inspect_release,
    needed_releases,
    open_blob,
    read_draft,
    registrations,
    revocation,
    version_taken,
)
from satchel.hub.storage import put_content
from satchel.i18n import say
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.store.hub_client import format as files
from satchel.store.hub_client.format import HubState, bin_number, index_bits, pack_rows
from satchel.store.hub_client.release_name import parse_version
from satchel.store.sources.base import subtree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.hub.commits import HubLedger, IgnoredChange, Inspection
    from satchel.hub.publish import Draft
    from satchel.hub.storage import Storage
    from satchel.store.hub_client.format import HubRelease, PublisherKey, Row
    from satchel.store.signing import SshKey

    Pages = Callable[..., Iterable[tuple[str, bytes]]]
    """Takes the fields of `SiteContent` as keywords, yields paths and contents of pages."""

_BLOCKED = "scan: blocked"
_MAX_ROUNDS = 100
"""Other writers make a build start again."""
_Item = TypeVar("_Item")


class BuildReport(NamedTuple):
    """What a build did, or would do."""

    state: HubState | None
    """None for a dry run."""
    published: tuple[str, ...] = ()
    """Releases from the folder, `acme/x@1.0.0`."""
    refused: tuple[tuple[str, SatchelError], ...] = ()
    """Skills of the folder that cannot be released; the others are."""
    revoked: tuple[str, ...] = ()
    """New releases that the scan blocks."""
    ignored: tuple[IgnoredChange, ...] = ()
    """Changes in the new commits that broke a rule."""


def create_hub(storage: Storage, name: str, key: SshKey) -> HubState | None:
    """Make an empty hub; returns its state."""
    storage.probe()
    chain = Chain(storage)
    row = {"type": "hub", "hub": name, "key": key.public}
    rows = sign_changes([row], name, key)
    if chain.ledger.count or chain.append(lambda one: () if one.count else rows) != 1:
        raise Refused(say("`{path}` exists already", path=storage.address))
    return build(storage, key).state


def build(
    storage: Storage,
    key: SshKey | None,
    skills: str = "",
    *,
    dry_run: bool = False,
    pages: Pages | None = None,
    rebuild: bool = False,
) -> BuildReport:
    """Publish a folder of skills if one is given, and bring all files up to date.

    Args:
        storage: The hub.
        key: The hub's key; not needed for a dry run.
        skills: A folder `publisher/skill/SKILL.md`.
        dry_run: Change nothing.
        pages: Makes the pages of changed skills; none when None.
        rebuild: Also without a valid `state`, which would show what was there before.
    """
    known: dict[object, Inspection] = {}

    def inspect(release: HubRelease) -> Inspection:
        return known.get((release.tree, release.blob)) or inspect_release(storage, release)

    published: list[str] = []
    refused: list[tuple[str, SatchelError]] = []
    revoked: list[str] = []
    ignored: dict[IgnoredChange, None] = {}
    for _ in range(_MAX_ROUNDS):
        state = read_state(storage, key.public if key else "")
        second = storage.get(files.commit_path(2), files.MAX_COMMIT_BYTES)
        if state is None and second is not None and not rebuild:
            raise Refused(
                say("`{path}` of the hub is damaged", path=files.STATE),
                say("Look at the storage; `satchel hub build --rebuild` makes it from the commits"),
            )
        chain = Chain(storage, state, inspect=inspect)
        ledger = chain.ledger
        if not ledger.hub:
            raise no_hub(storage)
        if key is not None and key.public != ledger.key:
            raise foreign_key(ledger.hub)
        drafts, found = _read_folder(chain, skills, None if dry_run else key)
        refused += found
        if dry_run or key is None:
            names = tuple(one.title for one in drafts)
            return BuildReport(None, names, tuple(refused), ignored=tuple(ledger.ignored))
        known |= {(one.change["tree"], one.change["blob"]): one.about for one in drafts}
        published += _publish(chain, drafts, key)
        for one in ledger.fresh:
            if one.scan == "blocked" and one.tree not in ledger.revoked:
                revoked.append(f"{one.name}@{one.version}")
                chain.append(lambda now, tree=one.tree: revocation(now, tree, _BLOCKED, key))
        ignored |= dict.fromkeys(ledger.ignored)
        skills = ""
        made = _write(storage, ledger, key, pages)
        if not storage.save() or made is None:
            continue
        if storage.get(files.commit_path(made.count + 1), files.MAX_COMMIT_BYTES) is None:
            return BuildReport(
                made, tuple(published), tuple(refused), tuple(revoked), tuple(ignored)
            )
    raise Conflict(
        say("Other processes change `{path}` all the time", path=storage.address),
        say("Try again"),
    )


# --- a folder of skills --------------------------------------------------------------------


def _read_folder(
    chain: Chain, folder: str, key: SshKey | None
) -> tuple[list[Draft], list[tuple[str, SatchelError]]]:
    """The skills of a folder that differ from their newest release, and those with errors.

    With a key their blobs are written at once: thousands of them would fill the memory.
    """
    ledger = chain.ledger
    drafts: list[Draft] = []
    refused: list[tuple[str, SatchelError]] = []
    if folder and not os.path.isdir(folder):
        raise NotFound(say("There is no `{path}`", path=folder), say("Check the path"))
    for path in sorted(Path(folder).glob("*/*/")) if folder else ():
        publisher, name = path.parent.name, f"{path.parent.name}/{path.name}"
        if publisher.startswith(".") or path.name.startswith("."):
            continue
        try:
            found = ledger.releases(name)
            newest = max(found, default=(0, 0, -1))
            tree = hash_tree(subtree(FolderTree(str(path)))).digest
            same = bool(found) and found[newest].tree == tree
            if same and found[newest].scan != UNREADABLE:
                continue
            draft = read_draft(str(path), publisher)
            if not same and (parse_version(draft.change["version"]) or newest) <= newest:
                raise version_taken(f"{name}@{found[newest].version}")
            if key is not None and ledger.current_key(publisher):
                check_publisher(ledger, publisher, key)
            if key is not None:
                put_content(chain.storage, "blobs", draft.data)
            drafts.append(draft._replace(data=b""))
        except SatchelError as exc:
            refused.append((name, exc))
    return drafts, refused


def _publish(chain: Chain, drafts: Sequence[Draft], key: SshKey) -> list[str]:
    if drafts:
        chain.storage.probe()
    publishers = {str(one.change["name"]).partition("/")[0] for one in drafts}
    new = sorted(one for one in publishers if not chain.ledger.current_key(one))
    for names in _batches(new):
        chain.append(lambda ledger, names=names: registrations(ledger, names, key.public, key))
    for batch in _batches(drafts):
        rows = sign_changes([one.change for one in batch], chain.ledger.hub, key)
        chain.append(lambda ledger, rows=rows: needed_releases(ledger, rows, key))
    return [one.title for one in drafts]


def _batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), MAX_COMMIT_CHANGES):
        yield items[start : start + MAX_COMMIT_CHANGES]


# --- files ---------------------------------------------------------------------------------


def _write(
    storage: Storage, ledger: HubLedger, key: SshKey, pages: Pages | None
) -> HubState | None:
    """Write all files; None when another build has written a longer state."""
    rows = [ledger.revoked[tree] for tree in sorted(ledger.revoked)]
    made = HubState(
        ledger.hub,
        ledger.key,
        ledger.count,
        ledger.head,
        index=_write_index(storage, ledger),
        revoked=put_content(storage, "revoked", pack_rows(rows)),
        search=_write_search(storage, ledger),
        skills=ledger.skills,
        time=files.timestamp(),
    )
    for path, data in _make_pages(storage, ledger, made, pages) if pages else ():
        storage.put(path, data)
    present = read_state(storage, key.public)
    if present is not None and present.count > made.count:
        return None
    text = files.render_state(made, lambda data, space: key.sign([data], space)[0])
    storage.put(files.STATE, text)
    return made


def _write_index(storage: Storage, ledger: HubLedger) -> str:
    """Write the bins that changed, and the files above them; returns the digest of the root."""
    changed: dict[str, list[Row]] = {}
    for name in ledger.touched:
        found = ledger.releases(name)
        rows = [found[version] for version in sorted(found)] or ledger.keys(name)
        changed[name] = [_row(one) for one in rows]
    bits = index_bits(ledger.skills)
    bins = _write_shards(storage, "index", ledger.index.digests(), bits, changed)
    low = 1 << files.low_bits(bits)
    root: list[Row] = [{"bits": bits}]
    for start in range(0, len(bins), low):
        rows = pack_rows({"bin": digest} for digest, _ in bins[start : start + low])
        root.append({"middle": put_content(storage, "index", rows)})
    return put_content(storage, "index", pack_rows(root))


def _row(one: HubRelease | PublisherKey) -> Row:
    """A row of a bin, without empty optional fields."""
    defaults: dict[str, Any] = one._field_defaults
    return {key: value for key, value in one._asdict().items() if defaults.get(key) != value}


def _write_search(storage: Storage, ledger: HubLedger) -> str:
    """Write the segments that changed and the list of segments; returns the list's digest."""
    listed = read_rows(storage, "search", ledger.state.search) if ledger.state else []
    newest = {name: ledger.newest(name) for name in ledger.touched if "/" in name}
    changed = {name: [search_row(one)] if one else [] for name, one in newest.items()}
    old = [(row["segment"], row["skills"]) for row in listed]
    bits = index_bits(ledger.skills, files.SEGMENT_SKILL_COUNT)
    made = _write_shards(storage, "search", old, bits, changed)
    rows = pack_rows({"segment": digest, "skills": count} for digest, count in made)
    return put_content(storage, "search", rows)


def _write_shards(
    storage: Storage,
    folder: str,
    old: Sequence[tuple[str, int]],
    bits: int,
    changed: Mapping[str, list[Row]],
) -> list[tuple[str, int]]:
    """Write the files of a table that is divided by the hash of names.

    Takes and returns the digest and the number of rows of each file. `changed` has the new rows of
    names. With another number of hash bits than before, every file is written.
    """
    same = len(old) == 1 << bits
    numbers = {bin_number(name, bits) for name in changed} if same else range(1 << bits)
    shards: dict[int, dict[str, list[Row]]] = {number: {} for number in numbers}
    for number, (digest, _) in enumerate(old):
        for row in read_rows(storage, folder, digest) if not same or number in shards else ():
            name = str(row.get("name") or row["publisher"])
            shards[bin_number(name, bits)].setdefault(name, []).append(row)
    for name, rows in changed.items():
        shards[bin_number(name, bits)][name] = rows
    made = list(old) if same else [("", 0)] * (1 << bits)
    for number, shard in shards.items():
        rows = [row for name in sorted(shard) for row in shard[name]]
        made[number] = put_content(storage, folder, pack_rows(rows)), len(rows)
    return made


def search_row(one: HubRelease) -> Row:
    """The row of a skill in the search list."""
    return {"name": one.name, "version": one.version, "description": one.description}


def _make_pages(
    storage: Storage, ledger: HubLedger, state: HubState, pages: Pages
) -> Iterable[tuple[str, bytes]]:
    """The pages of the skills that changed."""
    segments = read_rows(storage, "search", state.search)
    listing = [row for one in segments for row in read_rows(storage, "search", one["segment"])]

    def releases_of(name: str) -> list[HubRelease]:
        return [one for _, one in sorted(ledger.releases(name).items(), reverse=True)]

    return pages(
        state=state,
        listing=sorted(listing, key=lambda row: str(row["name"])),
        touched={name: releases_of(name) for name in sorted(ledger.touched) if "/" in name},
        revoked={tree: str(row["reason"]) for tree, row in ledger.revoked.items()},
        open_tree=partial(open_blob, storage),
        releases_of=releases_of,
    )
