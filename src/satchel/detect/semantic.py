"""Semantic signals of a ranking: the whole goal, its sentences, and the name.

The mean of all descriptions is subtracted before comparing, because it distinguishes none of them.
There are no semantic signals when the model does not cover the goal's script, because noise ranks
worse than words alone, or while many skills have no vector yet, because embedded skills would
always win. A request embeds a few new skills itself; many are left to `satchel config index`.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.detect.embeddings.base import EXTRA
from satchel.detect.embeddings.store import VectorStore
from satchel.detect.ranking import Signal
from satchel.detect.relevance import MIN_LIBRARY_SKILLS
from satchel.detect.tokenizer import clauses, embedding_texts
from satchel.errors import ModelFailed, Refused, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from satchel.detect.embeddings.base import Embedder, Matrix
    from satchel.skill import Skill

_MAX_GOAL_CHARS = 600
"""Longer goals are truncated: the rest is detail."""
_MAX_CLAUSE_CHARS = 300
_SAMPLED_SKILL_COUNT = 512
"""For the mean of descriptions."""
MAX_INLINE_SKILLS = 64
"""New skills that a request embeds itself; more are left to `prepare`."""
_MAX_REMEMBERED_LIBRARIES = 4
"""Users and models may see different skills."""
_MAX_MISSING_SHARE = 0.10
_MAX_MISSING_FOUND_SHARE = 0.05
"""Shares of the library and of the found skills that may lack a vector."""
_QUERY_TIMEOUT_S = 2.0
"""For a remote model."""
_RETRY_DELAY_S = 30.0
_MAX_UNKNOWN_KEYS = 256
"""Unknown keys whose files a request checks; `prepare` checks more."""
_MAX_PREPARED_UNKNOWN_KEYS = 20_000
_COSINE_DIGITS_COUNT = 6
"""Further digits depend on the matrix split."""
NAME_SLOT, ABOUT_SLOT = 0, 1
"""Index of the name vector, and of the vector of name and description."""


class _LibraryVectors:
    """A library, its skills without a vector, and the mean of its descriptions."""

    def __init__(self, skills: tuple[Skill, ...], keys: list[str]) -> None:
        self.skills = skills
        self.keys = keys
        self.missing: AbstractSet[str] = frozenset(keys)
        self.common: tuple[int, Matrix] | None = None
        self.todo: Sequence[Skill] = ()
        """Skills whose texts may have changed."""
        self.changes = -1
        """Of the store, when `missing` was counted."""


class Semantic:
    """Compares goals with the vectors of a library."""

    def __init__(self, model: Embedder | Callable[[], Embedder], folder: str | None = None) -> None:
        """Create the comparison; nothing is opened.

        Args:
            model: The model, or a function that opens it on first use.
            folder: The vector folder; None keeps vectors in memory.
        """
        self._model = model
        self._folder = folder
        self.made = 0
        """The number of embedded skills of the last prepared library."""
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._opened: VectorStore | None = None
        self._seen: dict[int, _LibraryVectors] = {}
        self._rests_until = 0.0
        self._failed: SatchelError | None = None

    @property
    def embedder(self) -> Embedder:
        """Return the model; open it if necessary.

        Raises:
            SatchelError: it cannot be opened; that is tried again after a while.
        """
        return self._store.embedder

    @property
    def _store(self) -> VectorStore:
        if self._pid != os.getpid():  # a fork must not use the parent's threads and locks
            self._start()
        if (store := self._opened) is not None:
            return store
        with self._lock:
            if self._opened is None:
                if self._failed is not None and time.monotonic() < self._rests_until:
                    raise self._failed
                try:
                    model = self._model() if callable(self._model) else self._model
                    self._opened = VectorStore(self._folder, model, self._covers)
                except Exception as exc:
                    self._failed = exc if isinstance(exc, SatchelError) else _typed(exc)
                    self._rests_until = time.monotonic() + _RETRY_DELAY_S
                    raise self._failed from exc
            return self._opened

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - as `prepare` of a detector has it
    ) -> str:
        """Embed all missing skills and wait; return the model's id.

        Args:
            skills: The library.
            progress: Called with the number of embedded skills.
            rebuild: Recreate all vectors; the old ones are used until then.

        Raises:
            ModelFailed: the model cannot be run or reached.
            Refused: the vectors cannot be written.
        """
        skills = tuple(skills)
        self._store.refresh()
        keys = [skill.path for skill in skills]
        gone = self._gone(keys, len(self._store.missing(keys)), _MAX_PREPARED_UNKNOWN_KEYS)
        texts = ((key, embedding_texts(skill)) for key, skill in zip(keys, skills, strict=True))
        self._store.fill(texts, gone, progress, rebuild=rebuild)
        with self._lock:
            self._failed, self._rests_until = None, 0.0
            seen = _LibraryVectors(skills, keys)
            seen.missing = frozenset()
            self._remember(seen)
        self.made = len(self._store.vectors(keys)[0])
        if self._store.trouble:
            raise Refused(
                say("The index cannot be written: {reason}", reason=self._store.trouble),
                say("Check the permissions"),
            )
        return self.embedder.id

    def signals(
        self,
        goal: str,
        skills: Sequence[Skill],
        known: Collection[str],
        by_key: Mapping[str, Skill],
        limit: int,
    ) -> tuple[dict[str, Signal], list[str]]:
        """Return the semantic signals and notes.

        Args:
            goal: The request.
            skills: The library.
            known: Keys found by words; they are scored too.
            by_key: The library by key; other vectors are ignored.
            limit: How many more keys to find.
        """
        if not skills:
            return {}, []
        skills = tuple(skills)
        whole = goal[:_MAX_GOAL_CHARS]
        parts = clauses(goal)
        began = time.monotonic()
        try:
            store = self._store
        except SatchelError as exc:
            return {}, [_not_compared(exc.message)]
        if self._failed is not None and began < self._rests_until:
            return {}, [_not_compared(self._failed.message)]
        try:
            hurrying = self.embedder.hurrying
            with hurrying(_QUERY_TIMEOUT_S) if hurrying else nullcontext():
                if not self.embedder.covers(whole):
                    return {}, [_not_compared(say("the model does not know this script"))]
                seen = self._follow(skills)
                if self._is_early(seen, known):
                    return {}, [_what_waits(seen)]
                made = self.embedder.embed([whole, *(part[:_MAX_CLAUSE_CHARS] for part in parts)])
        except Exception as exc:  # noqa: BLE001 - the model may be unavailable; words remain
            self._failed = exc if isinstance(exc, SatchelError) else _typed(exc)
            if self.embedder.hurrying or time.monotonic() - began > _QUERY_TIMEOUT_S:
                self._rests_until = time.monotonic() + _RETRY_DELAY_S
            return {}, [_not_compared(self._failed.message)]
        queries = made[:1] if len(parts) == 1 else made
        keys = set(known)
        keys.update(store.nearest(queries, limit, by_key))
        return self._score(queries, sorted(keys), known, seen), self._notes(seen)

    def features(self, signals: Mapping[str, Signal], key: str) -> tuple[float, float, float]:
        """Return the cosines of one skill: whole goal, best sentence, name."""
        about, clause, name = (
            signals[signal].scores.get(key, 0.0) for signal in ("about", "clauses", "name")
        )
        return about, clause, name

    # --- what there is ----------------------------------------------------------------------

    def _covers(self, texts: Sequence[str]) -> list[bool]:
        """Return which texts of a skill are embedded: none in an uncovered script.

        A Latin name before a Chinese description would place it among English skills.
        """
        name, about = texts
        said = about.removeprefix(f"{name}: ").strip()
        if said and not self.embedder.covers(said):
            return [False, False]
        return [self.embedder.covers(name), self.embedder.covers(about)]

    def _is_early(self, seen: _LibraryVectors, known: Collection[str]) -> bool:
        """Whether too many skills lack a vector for a fair comparison."""
        missing = seen.missing
        if len(missing) > _MAX_MISSING_SHARE * len(seen.keys):
            return True
        found = sum(1 for key in known if key in missing) if missing else 0
        return found > _MAX_MISSING_FOUND_SHARE * len(known)

    def _notes(self, seen: _LibraryVectors) -> list[str]:
        """Return notes that apply although embeddings were used."""
        notes: list[str] = []
        if seen.missing:
            notes.append(_what_waits(seen))
        if self._store.trouble:
            notes.append(say("The index cannot be written: {reason}", reason=self._store.trouble))
        return notes

    # --- following a library ----------------------------------------------------------------

    def _follow(self, skills: tuple[Skill, ...]) -> _LibraryVectors:
        """Embed new and changed skills, if there are a few.

        Raises:
            SatchelError: the model fails.
        """
        with self._lock:
            store = self._store
            seen = self._seen.get(id(skills))
            if seen is None or seen.skills is not skills:
                store.refresh()
                known = self._seen.values()
                before = {id(skill.head) for one in known for skill in one.skills}
                before -= {id(skill.head) for one in known for skill in one.todo}
                seen = _LibraryVectors(skills, [skill.path for skill in skills])
                seen.todo = [skill for skill in skills if id(skill.head) not in before]
                self._remember(seen)
                gone = self._gone(seen.keys, len(store.missing(seen.keys)), _MAX_UNKNOWN_KEYS)
                store.fill((), gone)
            if seen.changes != store.changes:
                seen.missing = frozenset(store.missing(seen.keys))
            if seen.todo or seen.missing:
                todo = {skill.path: skill for skill in seen.todo}
                todo.update((one.path, one) for one in skills if one.path in seen.missing)
                if len(seen.missing) <= MAX_INLINE_SKILLS:
                    new = store.changed((key, embedding_texts(one)) for key, one in todo.items())
                    if len(new) <= MAX_INLINE_SKILLS:
                        store.fill(new)
                        seen.todo, seen.missing = (), frozenset(store.missing(seen.keys))
                    else:  # their old vectors do not count as current
                        seen.missing |= {key for key, _ in new}
            seen.changes = store.changes
            return seen

    def _remember(self, seen: _LibraryVectors) -> None:
        self._seen.pop(id(seen.skills), None)
        self._seen[id(seen.skills)] = seen
        while len(self._seen) > _MAX_REMEMBERED_LIBRARIES:
            del self._seen[next(iter(self._seen))]

    def _gone(self, keys: Sequence[str], missing: int, most: int) -> list[str]:
        """Return stored keys whose file no longer exists.

        The store may serve a user who sees more skills, so an unknown key alone is no reason.
        """
        count = len(self._store) - (len(keys) - missing)
        if not 0 < count <= most:
            return []
        own = set(keys)
        others = (key for key in self._store.stored_keys() if key not in own)
        return [key for key in others if not os.path.exists(key)]

    # --- comparing --------------------------------------------------------------------------

    def _score(
        self, queries: Matrix, keys: Sequence[str], known: Collection[str], seen: _LibraryVectors
    ) -> dict[str, Signal]:
        """Return the cosines of every candidate with every part of the goal.

        A candidate found by words that cannot be compared gets the median of those that can. One
        not found by words gets nothing.
        """
        np: Any = require("numpy", EXTRA)
        found, blocks = self._store.vectors(keys)
        if not found:
            return {}
        apart = blocks[:, ABOUT_SLOT] - self._in_common(seen)
        apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-3)
        cosines = apart @ queries.T
        parts = cosines[:, 1:].max(axis=1) if len(queries) > 1 else cosines[:, 0]
        scores = {
            "about": cosines[:, 0],
            "name": blocks[:, NAME_SLOT] @ queries[0],
            "clauses": parts,
        }
        compared = set(found)
        others = sorted(key for key in known if key not in compared)
        by_words = [at for at, key in enumerate(found) if key in known]
        signals: dict[str, Signal] = {}
        for signal, values in scores.items():
            # Negative cosines count as zero.
            rounded = np.maximum(np.round(values.astype(np.float64), _COSINE_DIGITS_COUNT), 0.0)
            table: dict[str, float] = dict(zip(found, rounded.tolist(), strict=True))
            if others and by_words:
                table.update(dict.fromkeys(others, float(np.median(rounded[by_words]))))
            signals[signal] = Signal({key: score for key, score in table.items() if score > 0})
        return signals

    def _in_common(self, seen: _LibraryVectors) -> Matrix:
        """Return the mean vector of descriptions; deterministic for a library."""
        changes = self._store.changes
        if seen.common is None or seen.common[0] != changes:
            np: Any = require("numpy", EXTRA)
            keys = sorted(seen.keys)
            found, blocks = self._store.vectors(keys[:: max(1, len(keys) // _SAMPLED_SKILL_COUNT)])
            # The mean of a few skills is not common ground.
            mean = np.float32(0)
            if len(found) >= MIN_LIBRARY_SKILLS:
                order = sorted(range(len(found)), key=found.__getitem__)
                mean = blocks[order, ABOUT_SLOT].mean(axis=0, dtype=np.float64).astype(np.float32)
            seen.common = (changes, mean)
        return seen.common[1]


def _what_waits(seen: _LibraryVectors) -> str:
    return say(
        "{waiting} of {count} skills have no embedding; run `satchel config index`",
        waiting=f"{len(seen.missing):,}",
        count=f"{len(seen.keys):,}",
    )


def _not_compared(reason: str) -> str:
    return say("Embeddings are not used: {reason}", reason=reason)


def _typed(exc: Exception) -> ModelFailed:
    return ModelFailed(
        f"{type(exc).__name__}: {exc}".strip().partition("\n")[0][:200],
        say("Name another model in the setting `embeddings`"),
    )
