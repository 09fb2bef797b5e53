"""Word index in plain Python for small libraries, in one file.

Postings are bytes, eight per skill and term: row number and term count. Score contributions of a
term are computed on first use and cached until the next change. A replaced row leaves a dead number
behind; dead numbers are removed when there are many.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.index.base import FIELDS, read_state, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.detect.index.base import IndexRow, Stamp

BM25_K1_RATIO = 1.2
BM25_B_RATIO = 0.75
_MAGIC = b"satchel-terms-2\n"
_MAX_TERM_COUNT = 0xFFFF
_MAX_CACHED_POSTINGS = 2_000_000
"""Beyond it each search computes contributions again."""
_MIN_DEAD_ROWS = 32

Postings = dict[str, bytes]
"""Term -> row number << 16 | term count, as 64 bits each."""
_Ready = tuple[list[int], "array[float]"]


def rarity(count: int, having: int) -> float:
    """Return the inverse document frequency of a term that `having` of `count` rows contain."""
    return math.log(1 + (count - having + 0.5) / (having + 0.5))


class _MemoryState(NamedTuple):
    """The index data; replaced by each update, so that searches see a consistent state."""

    keys: list[str]
    """By row number, including dead rows."""
    known: dict[str, tuple[int, Stamp]]
    lengths: tuple[list[int], ...]
    """Term counts by field and row number."""
    postings: tuple[Postings, ...]
    dead: set[int]


class _MemoryView:
    """One state with the cached term contributions."""

    def __init__(self, state: _MemoryState) -> None:
        self.state = state
        self.count = len(state.known)
        self.norms: list[list[float]] = []
        self._ready: tuple[dict[str, _Ready | None], ...] = tuple({} for _ in FIELDS)
        self._room = _MAX_CACHED_POSTINGS
        for lengths in state.lengths:
            total = sum(lengths)
            if state.dead:
                total -= sum(lengths[number] for number in state.dead)
            average = total / self.count if self.count else 0.0
            scale = BM25_K1_RATIO * BM25_B_RATIO / average if average else 0.0
            floor = BM25_K1_RATIO * (1 - BM25_B_RATIO)
            self.norms.append([floor + scale * length for length in lengths])

    def ready(self, field: int, term: str) -> _Ready | None:
        """Return the rows with a term and its contribution to each; None without any."""
        kept = self._ready[field]
        if term in kept:
            return kept[term]
        data = self.state.postings[field].get(term)
        if data is None:
            return None
        norms, dead = self.norms[field], self.state.dead
        numbers: list[int] = []
        parts: list[float] = []
        for packed in memoryview(data).cast("Q"):
            number = packed >> 16
            if number not in dead:
                often = packed & _MAX_TERM_COUNT
                numbers.append(number)
                parts.append(often * (BM25_K1_RATIO + 1) / (often + norms[number]))
        if not numbers:
            found = None
        else:
            rare = rarity(self.count, len(numbers))
            found = (numbers, array("d", (rare * part for part in parts)))
        self._room -= len(numbers)
        if self._room > 0:
            kept[term] = found
        return found


class MemoryIndex:
    """BM25 per field over a few thousand skills."""

    engine = "memory"

    def __init__(self, folder: str | None = None) -> None:
        """Read the index in `folder`; None keeps it in memory. A damaged file is ignored."""
        self._path = os.path.join(folder, "terms") if folder else None
        state = _load(self._path) if self._path else None
        self._view = _MemoryView(state or _empty())
        self._turn = 1 if state is not None else 0
        self._lock = threading.Lock()

    def stamps(self) -> Mapping[str, Stamp]:
        """Return the stamps of indexed skills by key."""
        return {key: stamp for key, (_, stamp) in self._view.state.known.items()}

    def update(
        self,
        rows: Iterable[IndexRow],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add, replace and remove rows atomically for searches.

        Raises:
            OSError: the file cannot be written; the index in memory is updated nevertheless.
        """
        with self._lock:
            self._update(rows, gone, progress)

    def _update(
        self, rows: Iterable[IndexRow], gone: Iterable[str], progress: Callable[[int], None] | None
    ) -> None:
        old = self._view.state
        state = _MemoryState(
            list(old.keys),
            dict(old.known),
            tuple(list(lengths) for lengths in old.lengths),
            tuple(dict(postings) for postings in old.postings),
            set(old.dead),
        )
        added: tuple[dict[str, array[int]], ...] = tuple({} for _ in FIELDS)
        for key in gone:
            if (last := state.known.pop(key, None)) is not None:
                state.dead.add(last[0])
        taken = 0
        for taken, row in enumerate(rows, 1):
            _add(state, added, row)
            if progress is not None and taken % 500 == 0:
                progress(taken)
        for postings, new in zip(state.postings, added, strict=True):
            for term, numbers in new.items():
                postings[term] = postings.get(term, b"") + numbers.tobytes()
        if len(state.dead) > max(_MIN_DEAD_ROWS, len(state.known) // 4):
            state = _swept(state)
        self._view = _MemoryView(state)
        self._turn += 1
        if progress is not None:
            progress(taken)
        if self._path:
            # Overwrites the file of another process, which has the same content.
            write_state(self._path, _MAGIC, tuple(state))

    def search_signals(
        self,
        terms: Sequence[tuple[str, float]],
        signals: Mapping[str, Mapping[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best `limit` keys per signal."""
        view = self._view
        keys = view.state.keys
        found: dict[str, dict[str, float]] = {}
        for signal, fields in signals.items():
            scores: dict[int, float] = {}
            so_far = scores.get
            asked = [
                (FIELDS.index(field), term, share * weight)
                for field, share in fields.items()
                for term, weight in terms
            ]
            for at, term, weight in asked:
                if (ready := view.ready(at, term)) is not None:
                    for number, part in zip(ready[0], ready[1], strict=True):
                        scores[number] = so_far(number, 0.0) + weight * part
            best = list(scores.items())
            if allowed is not None:
                best = [pair for pair in best if keys[pair[0]] in allowed]
            if len(best) > limit:
                least = nlargest(limit, (pair[1] for pair in best))[-1] if limit > 0 else math.inf
                best = [pair for pair in best if pair[1] >= least]
            # The order does not depend on the order of insertion.
            best.sort(key=lambda pair: (-pair[1], keys[pair[0]]))
            found[signal] = {keys[number]: score for number, score in best[:limit]}
        return found

    def count(self) -> int:
        """Return the number of indexed keys."""
        return self._view.count

    def version(self) -> tuple[int, ...]:
        """Return a value that differs after every update; other processes' changes are not read."""
        return (self._turn,) if self._turn else ()


def _empty() -> _MemoryState:
    lengths: list[list[int]] = [[] for _ in FIELDS]
    postings: list[Postings] = [{} for _ in FIELDS]
    return _MemoryState([], {}, tuple(lengths), tuple(postings), set())


def _add(state: _MemoryState, added: tuple[dict[str, array[int]], ...], row: IndexRow) -> None:
    last = state.known.get(row.key)
    if last is not None:
        state.dead.add(last[0])
    number = len(state.keys)
    state.keys.append(row.key)
    state.known[row.key] = (number, row.stamp)
    for at, text in enumerate(row.fields):
        words = text.split()
        state.lengths[at].append(len(words))
        new = added[at]
        for word, often in Counter(words).items():
            packed = number << 16 | min(often, _MAX_TERM_COUNT)
            if word in new:
                new[word].append(packed)
            else:
                new[word] = array("Q", (packed,))


def _swept(state: _MemoryState) -> _MemoryState:
    alive = [number for number in range(len(state.keys)) if number not in state.dead]
    fresh = {old: new for new, old in enumerate(alive)}
    postings: list[Postings] = []
    for table in state.postings:
        kept: Postings = {}
        for term, data in table.items():
            numbers = array("Q")
            for packed in memoryview(data).cast("Q"):
                if (number := fresh.get(packed >> 16)) is not None:
                    numbers.append(number << 16 | packed & _MAX_TERM_COUNT)
            if numbers:
                kept[term] = numbers.tobytes()
        postings.append(kept)
    return _MemoryState(
        [state.keys[number] for number in alive],
        {key: (fresh[number], stamp) for key, (number, stamp) in state.known.items()},
        tuple([lengths[number] for number in alive] for lengths in state.lengths),
        tuple(postings),
        set(),
    )


def _load(path: str) -> _MemoryState | None:
    state = read_state(path, _MAGIC)
    return _MemoryState(*state) if state else None
