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

from satchel.detect.index import FIELDS, read_state, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.detect.index import IndexRow, Stamp

BM25_K1_RATIO = 1.2
BM25_B_RATIO = 0.75
_MAGIC = b"satchel-terms-2\n"
_MAX_TERM_COUNT = 0xFFFF
_MAX_CACHED_POSTINGS = 2_000_000
"""Beyond it each search computes contributions again."""
_MIN_DEAD_ROWS = 32

Postings = dict[str, bytes]
"""Term -> row number << 16 | term count, as 64 bits each."""
_TermScores = tuple[list[int], "array[float]"]


def rarity(count: int, matching_count: int) -> float:
    """Return the inverse document frequency of a term in `matching_count` of `count` rows."""
    return math.log(1 + (count - matching_count + 0.5) / (matching_count + 0.5))


class _MemoryState(NamedTuple):
    """The index data; replaced by each update, so that searches see a consistent state."""

    keys: list[str]
    """By row number, including dead rows."""
    rows_by_key: dict[str, tuple[int, Stamp]]
    lengths: tuple[list[int], ...]
    """Term counts by field and row number."""
    postings: tuple[Postings, ...]
    dead: set[int]


class _MemoryView:
    """One state with the cached term contributions."""

    def __init__(self, state: _MemoryState) -> None:
        self.state = state
        self.count = len(state.rows_by_key)
        self.norms: list[list[float]] = []
        self._scores_by_term: tuple[dict[str, _TermScores | None], ...] = tuple({} for _ in FIELDS)
        self._cacheable_postings = _MAX_CACHED_POSTINGS
        for lengths in state.lengths:
            total = sum(lengths)
            if state.dead:
                total -= sum(lengths[number] for number in state.dead)
            average = total / self.count if self.count else 0.0
            scale = BM25_K1_RATIO * BM25_B_RATIO / average if average else 0.0
            floor = BM25_K1_RATIO * (1 - BM25_B_RATIO)
            self.norms.append([floor + scale * length for length in lengths])

    def term_scores(self, field: int, term: str) -> _TermScores | None:
        """Return the rows with a term and its contribution to each; None without any."""
        cached = self._scores_by_term[field]
        if term in cached:
            return cached[term]
        data = self.state.postings[field].get(term)
        if data is None:
            return None
        norms, dead = self.norms[field], self.state.dead
        numbers: list[int] = []
        weights: list[float] = []
        for packed in memoryview(data).cast("Q"):
            number = packed >> 16
            if number not in dead:
                term_count = packed & _MAX_TERM_COUNT
                numbers.append(number)
                weights.append(term_count * (BM25_K1_RATIO + 1) / (term_count + norms[number]))
        if not numbers:
            scores = None
        else:
            term_rarity = rarity(self.count, len(numbers))
            scores = (numbers, array("d", (term_rarity * weight for weight in weights)))
        self._cacheable_postings -= len(numbers)
        if self._cacheable_postings > 0:
            cached[term] = scores
        return scores


class MemoryIndex:
    """BM25 per field over a few thousand skills."""

    engine = "memory"

    def __init__(self, folder: str | None = None) -> None:
        """Read the index in `folder`; None keeps it in memory. A damaged file is ignored."""
        self._path = os.path.join(folder, "terms") if folder else None
        state = _load(self._path) if self._path else None
        self._view = _MemoryView(state or _make_empty())
        self._version = 1 if state is not None else 0
        self._lock = threading.Lock()

    def stamps(self) -> Mapping[str, Stamp]:
        """Return the stamps of indexed skills by key."""
        return {key: stamp for key, (_, stamp) in self._view.state.rows_by_key.items()}

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
            dict(old.rows_by_key),
            tuple(list(lengths) for lengths in old.lengths),
            tuple(dict(postings) for postings in old.postings),
            set(old.dead),
        )
        added: tuple[dict[str, array[int]], ...] = tuple({} for _ in FIELDS)
        for key in gone:
            if (removed := state.rows_by_key.pop(key, None)) is not None:
                state.dead.add(removed[0])
        processed_count = 0
        for processed_count, row in enumerate(rows, 1):
            _add_row(state, added, row)
            if progress is not None and processed_count % 500 == 0:
                progress(processed_count)
        for postings, added_postings in zip(state.postings, added, strict=True):
            for term, numbers in added_postings.items():
                postings[term] = postings.get(term, b"") + numbers.tobytes()
        if len(state.dead) > max(_MIN_DEAD_ROWS, len(state.rows_by_key) // 4):
            state = _remove_dead_rows(state)
        self._view = _MemoryView(state)
        self._version += 1
        if progress is not None:
            progress(processed_count)
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
        scores_by_signal: dict[str, dict[str, float]] = {}
        for signal, fields in signals.items():
            best = list(_score_rows(view, terms, fields).items())
            if allowed is not None:
                best = [pair for pair in best if keys[pair[0]] in allowed]
            if len(best) > limit:
                scores = [score for _, score in best]
                min_score = nlargest(limit, scores)[-1] if limit > 0 else math.inf
                best = [pair for pair in best if pair[1] >= min_score]
            # The order does not depend on the order of insertion.
            best.sort(key=lambda pair: (-pair[1], keys[pair[0]]))
            scores_by_signal[signal] = {keys[number]: score for number, score in best[:limit]}
        return scores_by_signal

    def count(self) -> int:
        """Return the number of indexed keys."""
        return self._view.count

    def version(self) -> tuple[int, ...]:
        """Return a value that differs after every update; other processes' changes are not read."""
        return (self._version,) if self._version else ()


def _score_rows(
    view: _MemoryView, terms: Sequence[tuple[str, float]], fields: Mapping[str, float]
) -> dict[int, float]:
    """Return the weighted sum of the scores of the fields by row number."""
    scores: dict[int, float] = {}
    get_score = scores.get
    weighted_terms = [
        (FIELDS.index(field), term, share * weight)
        for field, share in fields.items()
        for term, weight in terms
    ]
    for field_index, term, weight in weighted_terms:
        if (term_scores := view.term_scores(field_index, term)) is not None:
            for number, score in zip(*term_scores, strict=True):
                scores[number] = get_score(number, 0.0) + weight * score
    return scores


def _make_empty() -> _MemoryState:
    lengths: list[list[int]] = [[] for _ in FIELDS]
    postings: list[Postings] = [{} for _ in FIELDS]
    return _MemoryState([], {}, tuple(lengths), tuple(postings), set())


def _add_row(state: _MemoryState, added: tuple[dict[str, array[int]], ...], row: IndexRow) -> None:
    replaced = state.rows_by_key.get(row.key)
    if replaced is not None:
        state.dead.add(replaced[0])
    number = len(state.keys)
    state.keys.append(row.key)
    state.rows_by_key[row.key] = (number, row.stamp)
    for field_index, text in enumerate(row.fields):
        words = text.split()
        state.lengths[field_index].append(len(words))
        postings = added[field_index]
        for word, count in Counter(words).items():
            packed = number << 16 | min(count, _MAX_TERM_COUNT)
            postings.setdefault(word, array("Q")).append(packed)


def _remove_dead_rows(state: _MemoryState) -> _MemoryState:
    """Return the state with the rows numbered again, without dead ones."""
    alive = [number for number in range(len(state.keys)) if number not in state.dead]
    new_numbers = {old: new for new, old in enumerate(alive)}
    postings: list[Postings] = []
    for table in state.postings:
        live_postings: Postings = {}
        for term, data in table.items():
            numbers = array("Q")
            for packed in memoryview(data).cast("Q"):
                if (number := new_numbers.get(packed >> 16)) is not None:
                    numbers.append(number << 16 | packed & _MAX_TERM_COUNT)
            if numbers:
                live_postings[term] = numbers.tobytes()
        postings.append(live_postings)
    return _MemoryState(
        [state.keys[number] for number in alive],
        {key: (new_numbers[number], stamp) for key, (number, stamp) in state.rows_by_key.items()},
        tuple([lengths[number] for number in alive] for lengths in state.lengths),
        tuple(postings),
        set(),
    )


def _load(path: str) -> _MemoryState | None:
    state = read_state(path, _MAGIC)
    return _MemoryState(*state) if state else None
