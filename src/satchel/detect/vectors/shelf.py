"""Where do segments lie, and which of them counts? Files in one folder, and a few in memory.

A segment is written once. A newer one overrules older ones key by key; small ones are joined, and
the joined file names those it stands for, so that a crash in between leaves nothing counted twice.
Readers take the tuple that is there and are never in anybody's way.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel._fs import write_atomic
from satchel._optional import require
from satchel.detect.vectors.base import EXTRA
from satchel.detect.vectors.segment import Damaged, Segment, hash_of, open_segment, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.detect.vectors.segment import Row

_FLUSH = 4_096
"""Vectors that wait in memory before they are written."""
_PARTS = 16
"""Segments in memory before they are made one."""
_LARGE = 32 << 20
"""A segment of this size is joined with others only when half of it is dead."""

Found = tuple[Segment, int]
"""A segment, and a key's place in it."""


class Shelf:
    """The segments of one model."""

    def __init__(self, folder: str, model: str) -> None:
        """Open what is in `folder`; an empty name keeps everything in memory."""
        self._np: Any = require("numpy", EXTRA)
        self._folder = folder
        self._model = model
        self._lock = threading.RLock()
        """For those who change something."""
        self._state: tuple[tuple[Segment, ...], tuple[Segment, ...]] = ((), ())
        """Segments that are files, and those in memory, oldest first; exchanged as a whole."""
        self.changes = 0
        """Grows with every change: whoever counted knows whether to count again."""
        self.losses = 0
        """Grows when something was lost that had been there."""
        self.trouble = ""
        """Why something could not be written; it stays in memory then."""
        self.refresh()

    def after_fork(self) -> None:
        """A lock that a thread of the parent held would stay held for ever."""
        self._lock = threading.RLock()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All of them, oldest first."""
        written, fresh = self._state
        return written + fresh

    def find(self, keys: Sequence[str]) -> list[Found | None]:
        """Where each key lies; None where it is not, or gone."""
        np = self._np
        places: list[Found | None] = [None] * len(keys)
        hashes = np.array([hash_of(key) for key in keys], "<u8")
        for segment in self.segments:  # a newer one overrules
            at = segment.find(hashes)
            for one in np.flatnonzero(at >= 0).tolist():
                gone = not segment.digests[at[one]]
                places[one] = None if gone else (segment, int(at[one]))
        return places

    def keys(self) -> Iterator[str]:
        """Every key that counts."""
        for segment in self.segments:
            for at in self._np.flatnonzero(segment.alive).tolist():
                yield segment.key(at)

    def refresh(self) -> None:
        """See what other processes have written. Damaged files are removed."""
        if not self._folder:
            return
        with self._lock:
            written, fresh = self._state
            files = self._files()
            if files == [one.path for one in written]:
                return
            known = {one.path: one for one in written}
            self.losses += not known.keys() <= set(files)
            found: list[Segment] = []
            for path in files:
                try:
                    found.append(known[path] if path in known else open_segment(path, self._model))
                except Damaged:
                    _remove(path)
                except OSError:
                    continue
            old = {os.path.join(self._folder, name) for one in found for name in one.replaces}
            for path in old:
                _remove(path)
            self._arrange(tuple(one for one in found if one.path not in old), fresh)

    def keep(self, rows: Sequence[Row]) -> None:
        """Take rows in; they are found at once, and written when there are many."""
        if not rows:
            return
        with self._lock:
            written, fresh = self._state
            new = Segment(pack(rows, self._model), self._model)
            for old in written + fresh:
                old.overrule(new)
            fresh = (*fresh, new)
            if len(fresh) > _PARTS:
                every = [row for one in fresh for row in one.living()]
                fresh = (Segment(pack(every, self._model), self._model),)
            self._state = (written, fresh)
            self.changes += 1
            if sum(one.rows for one in fresh) >= _FLUSH:
                self.flush()

    def flush(self) -> None:
        """Write what waits in memory, and join small files."""
        with self._lock:
            fresh = self._state[1]
            if not self._folder or not fresh:
                return
            try:
                self._write(fresh, ())
                self._join_small()
            except OSError as exc:
                self.trouble = exc.strerror or str(exc)

    def drop(self, segment: Segment) -> None:
        """Forget a damaged segment; its skills are lacking again."""
        with self._lock:
            written, fresh = self._state
            self._arrange(
                tuple(one for one in written if one is not segment),
                tuple(one for one in fresh if one is not segment),
            )
            self.losses += 1
            if segment.path:
                _remove(segment.path)

    def _files(self) -> list[str]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return [os.path.join(self._folder, name) for name in sorted(names) if _is_segment(name)]

    def _write(self, segments: Sequence[Segment], replaced: Sequence[Segment]) -> None:
        """Make one file of some segments, newest last; `replaced` are those that are files."""
        written, fresh = self._state
        rows = [row for one in segments for row in _living(one)]
        kept = [one for one in written if one not in replaced]
        if not kept:  # nothing older is left that a note could overrule
            rows = [row for row in rows if row.digest]
        names = [os.path.basename(one.path) for one in replaced]
        numbers = [int(os.path.basename(path)[:10]) for path in self._files()]
        name = f"{max(numbers, default=0) + 1:010d}-{os.urandom(4).hex()}.vec"
        path = os.path.join(self._folder, name)
        write_atomic(path, pack(rows, self._model, names), durable=False)
        fresh = tuple(one for one in fresh if one not in segments)
        self._state = ((*kept, open_segment(path, self._model)), fresh)
        self.changes += 1
        for one in replaced:
            _remove(one.path)

    def _join_small(self) -> None:
        """Join the newest files while the next older one is not much larger than they are."""
        chosen: list[Segment] = []
        total = 0
        for one in reversed(self._state[0]):
            size = one.vectors.nbytes + 1
            if not _is_half_dead(one) and (size > _LARGE or (chosen and size > 4 * total)):
                break
            chosen.append(one)
            total += size
        if len(chosen) > 1 or (chosen and _is_half_dead(chosen[0])):
            chosen.reverse()
            self._write(chosen, chosen)

    def _arrange(self, written: tuple[Segment, ...], fresh: tuple[Segment, ...]) -> None:
        """Put segments in force: of a key in several the newest counts."""
        np = self._np
        segments = (written + fresh)[::-1]
        every = np.concatenate([np.zeros(0, "<u8"), *(one.hashes for one in segments)])
        newest = np.zeros(len(every), bool)
        newest[np.unique(every, return_index=True)[1]] = True
        begin = 0
        for segment in segments:
            segment.let_live(newest[begin : begin + len(segment)] & (segment.digests != 0))
            begin += len(segment)
        self._state = (written, fresh)
        self.changes += 1


def _living(segment: Segment) -> list[Row]:
    try:
        return segment.living()
    except Damaged:
        return []  # its file goes with the others that are joined


def _is_half_dead(segment: Segment) -> bool:
    return 2 * int(segment.alive.sum()) < len(segment)


def _is_segment(name: str) -> bool:
    number, dash, rest = name.partition("-")
    return bool(dash) and number.isdecimal() and len(number) == 10 and rest.endswith(".vec")


def _remove(path: str) -> None:
    with suppress(OSError):  # on Windows a mapped file stays, and goes the next time
        os.unlink(path)
