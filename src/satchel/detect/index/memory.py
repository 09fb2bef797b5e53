"""The index for small libraries: plain Python, no package, one file.

Postings are bytes, eight for each skill that has a term: its number and how often. What a term
adds to a score is worked out when somebody first asks for the term, and kept until the next change.
A row that is replaced leaves a dead number behind; they are swept up when there are many.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.index.base import FIELDS, read_states, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.detect.index.base import Row, Stamp

K1 = 1.2
B = 0.75
_MAGIC = b"satchel-terms-2\n"
_MOST_OFTEN = 0xFFFF
_READY = 2_000_000
"""Postings that are kept worked out; beyond it each search works them out anew."""
_DEAD = 32
"""Dead numbers that are not worth sweeping."""

Postings = dict[str, bytes]
"""Term -> who has it: number << 16 | how often, as 64 bits each."""
_Ready = tuple[list[int], "array[float]"]


def rarity(count: int, having: int) -> float:
    """What a term weighs that `having` of `count` rows have; never below zero."""
    return math.log(1 + (count - having + 0.5) / (having + 0.5))


class _State(NamedTuple):
    """Everything, replaced whole by each update so that a search never sees half of one."""

    keys: list[str]
    """By number, dead ones too."""
    known: dict[str, tuple[int, Stamp]]
    lengths: tuple[list[int], ...]
    """By field and number: how many terms."""
    postings: tuple[Postings, ...]
    """By field: term -> numbers and counts."""
    dead: set[int]


class _View:
    """One state with what searches have worked out about it."""

    def __init__(self, state: _State) -> None:
        self.state = state
        self.count = len(state.known)
        self.norms: list[list[float]] = []
        self._ready: tuple[dict[str, _Ready | None], ...] = tuple({} for _ in FIELDS)
        self._room = _READY
        for lengths in state.lengths:
            total = sum(lengths)
            if state.dead:
                total -= sum(lengths[number] for number in state.dead)
            average = total / self.count if self.count else 0.0
            scale = K1 * B / average if average else 0.0
            floor = K1 * (1 - B)
            self.norms.append([floor + scale * length for length in lengths])

    def ready(self, field: int, term: str) -> _Ready | None:
        """Who has a term, and what it adds to each; None when nobody has it."""
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
                often = packed & _MOST_OFTEN
                numbers.append(number)
                parts.append(often * (K1 + 1) / (often + norms[number]))
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
        """Read what `folder` keeps; None keeps nothing. A damaged file counts as none."""
        self._path = os.path.join(folder, "terms") if folder else None
        state = _load(self._path) if self._path else None
        self._view = _View(state or _empty())
        self._turn = 1 if state is not None else 0
        self._lock = threading.Lock()

    def stamps(self) -> Mapping[str, Stamp]:
        """What is indexed, by key."""
        return {key: stamp for key, (_, stamp) in self._view.state.known.items()}

    def update(
        self,
        rows: Iterable[Row],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add or replace rows and drop others; searches see all of it or nothing of it.

        Raises:
            OSError: the file cannot be written; what is in memory is new all the same.
        """
        with self._lock:
            self._update(rows, gone, progress)

    def _update(
        self,
        rows: Iterable[Row],
        gone: Iterable[str],
        progress: Callable[[int], None] | None,
    ) -> None:
        old = self._view.state
        state = _State(
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
        if len(state.dead) > max(_DEAD, len(state.known) // 4):
            state = _swept(state)
        self._view = _View(state)
        self._turn += 1
        if progress is not None:
            progress(taken)
        if self._path:
            # The file of another process is overwritten: both say the same.
            write_state(self._path, _MAGIC, tuple(state))

    def search_legs(
        self,
        terms: Sequence[tuple[str, float]],
        legs: Mapping[str, Mapping[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Several fields added up: leg -> key -> score, of the best `limit` per leg."""
        view = self._view
        keys = view.state.keys
        found: dict[str, dict[str, float]] = {}
        for leg, fields in legs.items():
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
            # The same rows give the same order, whichever came into the index first.
            best.sort(key=lambda pair: (-pair[1], keys[pair[0]]))
            found[leg] = {keys[number]: score for number, score in best[:limit]}
        return found

    def count(self) -> int:
        """How many keys are indexed."""
        return self._view.count

    def version(self) -> tuple[int, ...]:
        """Another value after every update: what other processes write is not read again."""
        return (self._turn,) if self._turn else ()


def _empty() -> _State:
    lengths: list[list[int]] = [[] for _ in FIELDS]
    postings: list[Postings] = [{} for _ in FIELDS]
    return _State([], {}, tuple(lengths), tuple(postings), set())


def _add(state: _State, added: tuple[dict[str, array[int]], ...], row: Row) -> None:
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
            packed = number << 16 | min(often, _MOST_OFTEN)
            if word in new:
                new[word].append(packed)
            else:
                new[word] = array("Q", (packed,))


def _swept(state: _State) -> _State:
    """The same without dead numbers."""
    alive = [number for number in range(len(state.keys)) if number not in state.dead]
    fresh = {old: new for new, old in enumerate(alive)}
    postings: list[Postings] = []
    for table in state.postings:
        kept: Postings = {}
        for term, data in table.items():
            numbers = array("Q")
            for packed in memoryview(data).cast("Q"):
                if (number := fresh.get(packed >> 16)) is not None:
                    numbers.append(number << 16 | packed & _MOST_OFTEN)
            if numbers:
                kept[term] = numbers.tobytes()
        postings.append(kept)
    return _State(
        [state.keys[number] for number in alive],
        {key: (fresh[number], stamp) for key, (number, stamp) in state.known.items()},
        tuple([lengths[number] for number in alive] for lengths in state.lengths),
        tuple(postings),
        set(),
    )


def _load(path: str) -> _State | None:
    """The saved state, or None when there is none that can be used."""
    states, _ = read_states(path, _MAGIC)
    return _State(*states[0]) if states else None
