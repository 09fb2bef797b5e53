"""Garbage of a hub: files that nothing leads to any more, and their removal.

Each build leaves the nodes of the tables that it replaced, and a publisher who was killed leaves
blobs without a commit. A file is in use if `state` or any commit leads to it, also a commit that no
build has read. What is not in use is marked with the day on which that was seen first, in the file
`UNUSED`, and removed after a grace period.

This is safe beside readers and writers because of the grace period. A reader may have a `state`
that is a few minutes old, and a publisher uploads blobs before the commit that names them. Neither
takes days. The period of a file that is uploaded again starts at the upload: the time at which it
was written counts too, and is read once more before the removal.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from satchel.hub.build import iterate_rows, read_stored_state
from satchel.hub.ledger import busy_error
from satchel.store.hub_client import format as hub_format
from satchel.store.hub_client.format import HubFiles

if TYPE_CHECKING:
    from satchel.hub.storage import Storage
    from satchel.store.hub_client.format import HubState, Row

UNUSED = "unused.jsonl.gz"
_FOLDERS = ("blobs", "changes", "index", "revoked", "search")
_DAY_S = 86_400


class Collection(NamedTuple):
    """What a collection removed, or would remove."""

    removed: tuple[str, ...]
    """The paths of the files."""
    unused: int
    """Files that are not in use, and stay until their grace period is over."""


def collect_garbage(storage: Storage, days: int, *, dry_run: bool = False) -> Collection:
    """Remove the files that were not in use for a number of days, and mark the others.

    Args:
        storage: The hub's files.
        days: The grace period.
        dry_run: Only find the files; nothing is marked.

    Raises:
        Changed: a file of the hub is damaged, so it is unknown what is in use.
        Conflict: another process changed the storage meanwhile.
    """
    now = time.time()
    used_paths = _find_used(storage, hub_format.parse_state(read_stored_state(storage)))
    old_marks = _read_marks(storage)
    marks: dict[str, float] = {}
    for folder in _FOLDERS:
        for path, written_at in storage.list_files(folder):
            if path not in used_paths:
                marks[path] = max(old_marks.get(path, now), written_at)
    limit = now - days * _DAY_S
    removable = sorted(path for path, unused_since in marks.items() if unused_since <= limit)
    if dry_run:
        return Collection(tuple(removable), len(marks) - len(removable))
    removed = tuple(path for path in removable if storage.remove(path, limit))
    for path in removed:
        del marks[path]
    rows: list[Row] = [
        {"path": path, "since": hub_format.timestamp(datetime.fromtimestamp(marks[path], UTC))}
        for path in sorted(marks)
    ]
    storage.put(UNUSED, hub_format.pack(b"".join(map(hub_format.render_row, rows))))
    if not storage.save():
        raise busy_error(storage)
    return Collection(removed, len(marks))


def _read_marks(storage: Storage) -> dict[str, float]:
    """Read since when files are not in use."""
    data = storage.get(UNUSED, hub_format.MAX_UNPACKED_BYTES)
    try:
        rows = hub_format.unpack_rows(data, UNUSED) if data is not None else []
        return {
            str(row["path"]): datetime.fromisoformat(str(row["since"])).timestamp() for row in rows
        }
    except (ValueError, KeyError) as exc:
        raise hub_format.damaged(UNUSED) from exc


class _UsedFiles(HubFiles):
    """The files of a hub, which remembers those that are read."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.name)
        self._storage = storage
        self.paths: set[str] = set()

    def get(self, path: str, limit: int) -> bytes | None:
        self.paths.add(path)
        return self._storage.get(path, limit)


def _find_used(storage: Storage, state: HubState) -> set[str]:
    """Return the paths of all files that the state and the commits lead to."""
    files = _UsedFiles(storage)
    for _, _, row in iterate_rows(files, state):
        _use_blob(files, row)
    number = 0
    while True:
        number += 1
        path = hub_format.commit_path(number)
        data = files.get(path, hub_format.MAX_COMMIT_BYTES)
        if data is None and number > state.count:
            return files.paths
        commit = hub_format.parse_commit(data or b"", number)
        for row in files.rows("changes", commit.changes):
            _use_blob(files, row)


def _use_blob(files: _UsedFiles, row: Row) -> None:
    if "blob" in row:
        files.paths.add(hub_format.content_path("blobs", str(row["blob"])))
