"""Which vectors do the skills have, and how near are they to a goal's?

Vectors lie on disk beside the index. A skill is embedded once, and again when its texts change. A
query reads what is there and waits for nothing: a skill whose vector is not made yet has no score.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._optional import require
from satchel.detect.vectors.base import EXTRA
from satchel.detect.vectors.nearest import nearest
from satchel.detect.vectors.segment import Damaged, Row, digest_of, hash_of
from satchel.detect.vectors.shelf import Shelf
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from satchel.detect.vectors.base import Embedder, Matrix
    from satchel.detect.vectors.segment import Segment
    from satchel.detect.vectors.shelf import Found

_CHUNK = 32
"""Skills that the background embeds before it looks whether the program is ending."""
_BATCH = 256
"""Skills that are embedded at once when somebody waits for all of them."""
_AT_END, _AT_END_AFAR = 10.0, 0.5
"""Seconds that a program which ends waits for the chunk at hand: of a model that computes here, and
of one behind an address, which may not answer at all."""
_EVERY = 5_000
"""Skills of one's own, among strangers, that are all compared rather than looked for."""

Texts = tuple[str, "Sequence[str]"]
"""A skill's key, and the texts that stand for it: one vector each."""


class Filled(NamedTuple):
    """What one filling did, in skills."""

    embedded: int
    kept: int
    """Their texts have not changed."""
    uncovered: int
    """In scripts that the model does not read."""


class VectorStore:
    """The vectors of skills, by one model."""

    def __init__(
        self,
        folder: str | None,
        embedder: Embedder,
        covers: Callable[[Sequence[str]], Sequence[bool]] | None = None,
    ) -> None:
        """Open the vectors that an embedder made; damaged files are removed.

        Args:
            folder: Where they are; None keeps them in memory.
            embedder: The model.
            covers: Which of a skill's texts it can read; asked text by text when None.
        """
        self._np: Any = require("numpy", EXTRA)
        self.embedder = embedder
        self._covers = covers or self._covers_each
        place = os.path.join(folder, f"{digest_of([embedder.id]):016x}") if folder else ""
        self._shelf = Shelf(place, embedder.id)
        self._lock = threading.RLock()
        self._waiting: dict[str, Sequence[str]] = {}
        self._gone: set[str] = set()
        """Skills that went while the background may have been embedding them."""
        self._thread: threading.Thread | None = None
        self._stopped = ""
        _STORES.add(self)

    # --- reading ---

    def __len__(self) -> int:
        """How many skills have a vector, or are known to be uncovered."""
        return sum(int(one.alive.sum()) for one in self._shelf.segments)

    @property
    def trouble(self) -> str:
        """Why the last filling stopped, or could not be written, for people; else empty."""
        return self._stopped or self._shelf.trouble

    @property
    def stopped(self) -> str:
        """Why the last filling stopped, for people; else empty."""
        return self._stopped

    @property
    def changes(self) -> int:
        """Grows with every change."""
        return self._shelf.changes

    @property
    def losses(self) -> int:
        """Grows when vectors were lost: a damaged file, or one that somebody removed."""
        return self._shelf.losses

    def refresh(self) -> None:
        """See what other processes have written."""
        self._shelf.refresh()

    def after_fork(self) -> None:
        """Forget the parent's locks and threads; vectors stay."""
        self._lock = threading.RLock()
        self._waiting, self._gone, self._thread = {}, set(), None
        self._shelf.after_fork()

    def held(self) -> list[str]:
        """Every skill that has a vector, or is known to be uncovered."""
        return list(self._shelf.keys())

    def lacking(self, keys: Iterable[str]) -> list[str]:
        """Those of some skills that have not been embedded yet."""
        wanted = list(keys)
        np = self._np
        hashes = np.array([hash_of(key) for key in wanted], "<u8")
        here = np.zeros(len(wanted), bool)
        for segment in self._shelf.segments:  # a newer one overrules
            at = segment.find(hashes)
            found = at >= 0
            here[found] = segment.digests[at[found]] != 0
        return [wanted[at] for at in np.flatnonzero(~here).tolist()]

    def scores(self, query: Matrix, keys: Iterable[str]) -> dict[str, tuple[float, ...]]:
        """Cosines between a query and given skills: one a text, 0 for a text that is uncovered.

        Args:
            query: One vector of length one, as the same embedder makes it.
            keys: The skills. Those without a vector are missing in the answer.
        """
        wanted = list(keys)
        places = zip(wanted, self._shelf.find(wanted), strict=True)
        return self._cosines(query, [(key, place) for key, place in places if place is not None])

    def best(
        self, query: Matrix, limit: int = 50, allowed: Collection[str] | None = None
    ) -> dict[str, tuple[float, ...]]:
        """The nearest skills, best first by their nearest text; cosines as in `scores`.

        Args:
            query: One vector of length one.
            limit: How many skills.
            allowed: The keys that count; None counts all.
        """
        if allowed is None or limit < 1:
            return self._best(query, limit)
        if len(allowed) <= _EVERY and len(allowed) < len(self):
            return _first(self.scores(query, allowed), limit)
        want = limit
        while True:
            found = self._best(query, want)
            own = {key: scores for key, scores in found.items() if key in allowed}
            if len(own) >= limit or len(found) < want:
                return _first(own, limit)
            want *= 4

    def _best(self, query: Matrix, limit: int) -> dict[str, tuple[float, ...]]:
        segments = [one for one in self._shelf.segments if one.rows and self._fits(one, query)]
        if not segments or limit < 1:
            return {}
        slots = max(one.most_slots for one in segments)
        owners: dict[Found, None] = {}
        for segment, row in nearest(query, segments, limit * slots, self._shelf.drop):
            owners[segment, segment.owner(row)] = None
        found = self._cosines(query, [(segment.key(at), (segment, at)) for segment, at in owners])
        return _first(found, limit)

    def vectors(self, keys: Iterable[str], slots: int) -> tuple[list[str], Matrix]:
        """The vectors of given skills: those that have `slots` of them, and a block for each.

        For whoever compares the same skills with several queries.
        """
        np: Any = require("numpy", EXTRA)
        wanted = list(keys)
        by_segment: dict[Segment, list[tuple[str, range]]] = {}
        for key, place in zip(wanted, self._shelf.find(wanted), strict=True):
            if place is not None and len(rows := place[0].slots(place[1])) == slots:
                by_segment.setdefault(place[0], []).append((key, rows))
        found: list[str] = []
        blocks: list[Matrix] = []
        for segment, places in by_segment.items():
            try:
                made = segment.take([row for _, rows in places for row in rows])
            except Damaged:
                self._shelf.drop(segment)
                continue
            if made.shape[1] == self.embedder.dimensions:
                found += [key for key, _ in places]
                blocks.append(made.reshape(len(places), slots, -1))
        empty = np.zeros((0, slots, self.embedder.dimensions), np.float32)
        return found, np.concatenate(blocks) if blocks else empty

    def _cosines(
        self, query: Matrix, found: Sequence[tuple[str, Found]]
    ) -> dict[str, tuple[float, ...]]:
        """Cosines of all texts of some skills."""
        by_segment: dict[Segment, list[tuple[str, range]]] = {}
        for key, (segment, at) in found:
            by_segment.setdefault(segment, []).append((key, segment.slots(at)))
        made: dict[str, tuple[float, ...]] = {}
        for segment, places in by_segment.items():
            if not segment.rows or not self._fits(segment, query):
                continue
            rows = [row for _, slots in places for row in slots]
            try:
                cosines: list[float] = (segment.take(rows) @ query).tolist()
            except Damaged:
                self._shelf.drop(segment)
                continue
            begin = 0
            for key, slots in places:
                if slots:
                    made[key] = tuple(cosines[begin : begin + len(slots)])
                begin += len(slots)
        return made

    def _fits(self, segment: Segment, query: Matrix) -> bool:
        """Whether vectors are as long as the query: a server may have changed its model."""
        fits = segment.dimensions == len(query)
        if not fits:
            self._shelf.drop(segment)
        return fits

    # --- filling ---

    def fill(
        self,
        texts: Iterable[Texts],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
        *,
        anew: bool = False,
    ) -> Filled:
        """Make the vectors of skills whose texts are new or changed, and keep them.

        Args:
            texts: Skills with their texts.
            gone: Skills to forget.
            progress: Told how many skills have their vectors now.
            anew: Make all of them; the old ones count until the new ones are there.

        Raises:
            ModelFailed: the model cannot be run or reached; what was made until then is kept.
        """
        self._shelf.trouble = self._stopped = ""
        self._shelf.refresh()
        self._forget(gone)
        wanted = list(texts)
        new = wanted if anew else self._changed(wanted)
        kept = len(wanted) - len(new)
        uncovered = 0
        try:
            for begin in range(0, len(new), _BATCH):
                uncovered += self._add(new[begin : begin + _BATCH])
                if progress is not None:
                    progress(kept + min(begin + _BATCH, len(new)))
        finally:
            self._shelf.flush()
        return Filled(len(new) - uncovered, kept, uncovered)

    def fill_soon(self, texts: Iterable[Texts], gone: Iterable[str] = ()) -> None:
        """The same in the background: nobody waits, and queries see vectors as they are made.

        A program that ends waits for the chunk at hand, a little, and keeps what was made.
        """
        self._forget(gone)
        with self._lock:
            new = dict(texts)
            self._waiting.update(new)
            self._gone.difference_update(new)
            if not self._waiting or self._thread is not None:
                return
            self._shelf.trouble = self._stopped = ""
            # One that the program need not wait for: a server that hangs would hold it.
            thread = threading.Thread(target=self._work, name="satchel-vectors", daemon=True)
            try:
                thread.start()  # it waits for our lock
            except RuntimeError:  # the program is ending: there is no background any more
                return
            self._thread = thread

    @property
    def waiting(self) -> int:
        """How many skills the background has still to do."""
        return len(self._waiting)

    @property
    def is_filling(self) -> bool:
        """Whether the background is at work; where no thread could be started some wait for it."""
        return self._thread is not None

    def close(self, patience: float | None = None) -> None:
        """Stop filling; what was made is kept.

        Args:
            patience: Seconds to wait for the chunk at hand; None waits until it is done.
        """
        with self._lock:
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(patience)
        self._shelf.flush()

    def end(self) -> None:
        """The program ends."""
        if self._thread is not None:
            self.close(_AT_END_AFAR if hasattr(self.embedder, "hurrying") else _AT_END)

    def _work(self) -> None:
        """What the background does: chunk after chunk."""
        while self._step():
            pass

    def _step(self) -> bool:
        """One chunk in the background; whether there are more."""
        with self._lock:
            chunk = [(key, self._waiting[key]) for key in list(self._waiting)[:_CHUNK]]
        try:
            self._add(self._changed(chunk))
        except Exception as exc:  # noqa: BLE001 - somebody's own embedder may raise anything
            # A server that is away, perhaps: the next filling tries again.
            is_ours = isinstance(exc, SatchelError)
            self._stopped = exc.message if is_ours else f"{type(exc).__name__}: {exc}"
            with self._lock:
                self._waiting.clear()
        with self._lock:
            for key, texts in chunk:
                if self._waiting.get(key) is texts:
                    del self._waiting[key]
            self._mark_gone(self._gone.intersection(key for key, _ in chunk))
            if self._waiting:
                return True
            self._shelf.flush()
            self._thread = None
            self._gone.clear()
            return False

    def _changed(self, texts: Sequence[Texts]) -> list[Texts]:
        """Those whose vectors are not made from these very texts."""
        places = self._shelf.find([key for key, _ in texts])
        return [
            one
            for one, place in zip(texts, places, strict=True)
            if place is None or int(place[0].digests[place[1]]) != digest_of(one[1])
        ]

    def _covers_each(self, texts: Sequence[str]) -> Sequence[bool]:
        return [self.embedder.covers(text) for text in texts]

    def _add(self, texts: Sequence[Texts]) -> int:
        """Embed some skills; returns how many the model does not cover."""
        covers = [self._covers(lines) for _, lines in texts]
        flat = [
            text
            for (_, lines), flags in zip(texts, covers, strict=True)
            for text, flag in zip(lines, flags, strict=True)
            if flag
        ]
        made: Matrix = self.embedder.embed(flat) if flat else self._np.zeros((0, 1))
        at, uncovered = 0, 0
        rows: list[Row] = []
        for (key, lines), flags in zip(texts, covers, strict=True):
            slots = len(lines) if any(flags) else 0
            vectors = self._np.zeros((slots, made.shape[1]), self._np.float32)
            for slot, flag in enumerate(flags):
                if flag:
                    vectors[slot] = made[at]
                    at += 1
            uncovered += not slots
            rows.append(Row(key, digest_of(lines), vectors))
        self._shelf.keep(rows)
        return uncovered

    def _forget(self, gone: Iterable[str]) -> None:
        here = list(gone)
        with self._lock:
            for key in here:
                self._waiting.pop(key, None)
            if self._thread is not None:
                self._gone.update(here)
            self._mark_gone(here)

    def _mark_gone(self, keys: Iterable[str]) -> None:
        here = list(keys)
        places = zip(here, self._shelf.find(here), strict=True)
        none = self._np.zeros((0, 1), self._np.float32)
        self._shelf.keep([Row(key, 0, none) for key, place in places if place is not None])


_STORES: weakref.WeakSet[VectorStore] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for store in list(_STORES):
        store.end()


def _first(found: dict[str, tuple[float, ...]], limit: int) -> dict[str, tuple[float, ...]]:
    """The best of some skills, by their nearest text."""
    return dict(sorted(found.items(), key=lambda item: (-max(item[1]), item[0]))[:limit])
