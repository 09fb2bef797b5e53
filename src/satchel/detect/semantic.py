"""Semantic signals of a ranking: the whole goal, its sentences, and the name.

The mean of all descriptions is subtracted before comparing, because it distinguishes none of them.
There are no semantic signals while many skills have no vector yet, because embedded skills would
always win. A request embeds a few new skills itself; many are left to
`satchel search --build-index`.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.detect.embeddings import EXTRA
from satchel.detect.embeddings.store import VectorStore
from satchel.detect.ranking import MIN_LIBRARY_SKILLS, Signal
from satchel.detect.skill_texts import embedding_texts
from satchel.detect.tokenizer import split_clauses
from satchel.errors import ModelFailed, Refused, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from satchel.detect.embeddings import Embedder, Matrix
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
        self.mean_description: tuple[int, Matrix] | None = None
        self.changed: Sequence[Skill] = ()
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
        self._open_store: VectorStore | None = None
        self._libraries: dict[int, _LibraryVectors] = {}
        self._retry_at = 0.0
        self._error: SatchelError | None = None

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
        if (store := self._open_store) is not None:
            return store
        with self._lock:
            if self._open_store is None:
                if self._error is not None and time.monotonic() < self._retry_at:
                    raise self._error
                try:
                    model = self._model() if callable(self._model) else self._model
                    self._open_store = VectorStore(self._folder, model)
                except Exception as exc:
                    self._error = exc if isinstance(exc, SatchelError) else _as_model_failure(exc)
                    self._retry_at = time.monotonic() + _RETRY_DELAY_S
                    raise self._error from exc
            return self._open_store

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
        gone = self._find_gone(keys, len(self._store.missing(keys)), _MAX_PREPARED_UNKNOWN_KEYS)
        texts = ((key, embedding_texts(skill)) for key, skill in zip(keys, skills, strict=True))
        self._store.fill(texts, gone, progress, rebuild=rebuild)
        with self._lock:
            self._error, self._retry_at = None, 0.0
            library = _LibraryVectors(skills, keys)
            library.missing = frozenset()
            self._remember(library)
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
        word_keys: Collection[str],
        by_key: Mapping[str, Skill],
        limit: int,
    ) -> tuple[dict[str, Signal], list[str]]:
        """Return the semantic signals and notes.

        Args:
            goal: The request.
            skills: The library.
            word_keys: Keys found by words; they are scored too.
            by_key: The library by key; other vectors are ignored.
            limit: How many more keys to find.
        """
        if not skills:
            return {}, []
        skills = tuple(skills)
        full_text = goal[:_MAX_GOAL_CHARS]
        clauses = split_clauses(goal)
        started_at = time.monotonic()
        try:
            store = self._store
        except SatchelError as exc:
            return {}, [_unused_note(exc.message)]
        if self._error is not None and started_at < self._retry_at:
            return {}, [_unused_note(self._error.message)]
        try:
            hurrying = self.embedder.hurrying
            with hurrying(_QUERY_TIMEOUT_S) if hurrying else nullcontext():
                library = self._update(skills)
                if self._is_early(library, word_keys):
                    return {}, [_missing_note(library)]
                vectors = self.embedder.embed(
                    [full_text, *(clause[:_MAX_CLAUSE_CHARS] for clause in clauses)]
                )
        except Exception as exc:  # noqa: BLE001 - the model may be unavailable; words remain
            self._error = exc if isinstance(exc, SatchelError) else _as_model_failure(exc)
            if self.embedder.hurrying or time.monotonic() - started_at > _QUERY_TIMEOUT_S:
                self._retry_at = time.monotonic() + _RETRY_DELAY_S
            return {}, [_unused_note(self._error.message)]
        queries = vectors[:1] if len(clauses) == 1 else vectors
        keys = set(word_keys)
        keys.update(store.nearest(queries, limit, by_key))
        return self._score(queries, sorted(keys), word_keys, library), self._notes(library)

    def features(self, signals: Mapping[str, Signal], key: str) -> tuple[float, float]:
        """Return the cosines of one skill: whole goal and best sentence."""
        return signals["about"].scores.get(key, 0.0), signals["clauses"].scores.get(key, 0.0)

    # --- what there is ----------------------------------------------------------------------

    def _is_early(self, library: _LibraryVectors, word_keys: Collection[str]) -> bool:
        """Whether too many skills lack a vector for a fair comparison."""
        missing = library.missing
        if len(missing) > _MAX_MISSING_SHARE * len(library.keys):
            return True
        missing_count = sum(1 for key in word_keys if key in missing) if missing else 0
        return missing_count > _MAX_MISSING_FOUND_SHARE * len(word_keys)

    def _notes(self, library: _LibraryVectors) -> list[str]:
        """Return notes that apply although embeddings were used."""
        notes: list[str] = []
        if library.missing:
            notes.append(_missing_note(library))
        if self._store.trouble:
            notes.append(say("The index cannot be written: {reason}", reason=self._store.trouble))
        return notes

    # --- following a library ----------------------------------------------------------------

    def _update(self, skills: tuple[Skill, ...]) -> _LibraryVectors:
        """Embed new and changed skills, if there are a few.

        Raises:
            SatchelError: the model fails.
        """
        with self._lock:
            store = self._store
            library = self._libraries.get(id(skills))
            if library is None or library.skills is not skills:
                library = self._new_library(skills)
            if library.changes != store.changes:
                library.missing = frozenset(store.missing(library.keys))
            if library.changed or library.missing:
                self._embed_few(library)
            library.changes = store.changes
            return library

    def _new_library(self, skills: tuple[Skill, ...]) -> _LibraryVectors:
        """Remember a library, and remove the vectors of skills that are gone."""
        store = self._store
        store.refresh()
        libraries = self._libraries.values()
        known_heads = {id(skill.head) for other in libraries for skill in other.skills}
        known_heads -= {id(skill.head) for other in libraries for skill in other.changed}
        library = _LibraryVectors(skills, [skill.path for skill in skills])
        library.changed = [skill for skill in skills if id(skill.head) not in known_heads]
        self._remember(library)
        gone = self._find_gone(library.keys, len(store.missing(library.keys)), _MAX_UNKNOWN_KEYS)
        store.fill((), gone)
        return library

    def _embed_few(self, library: _LibraryVectors) -> None:
        """Embed the new and changed skills of a library, unless they are many."""
        if len(library.missing) > MAX_INLINE_SKILLS:
            return
        store = self._store
        to_embed = {skill.path: skill for skill in library.changed}
        to_embed.update(
            (skill.path, skill) for skill in library.skills if skill.path in library.missing
        )
        new = store.changed((key, embedding_texts(skill)) for key, skill in to_embed.items())
        if len(new) <= MAX_INLINE_SKILLS:
            store.fill(new)
            library.changed, library.missing = (), frozenset(store.missing(library.keys))
        else:  # their old vectors do not count as current
            library.missing |= {key for key, _ in new}

    def _remember(self, library: _LibraryVectors) -> None:
        self._libraries.pop(id(library.skills), None)
        self._libraries[id(library.skills)] = library
        while len(self._libraries) > _MAX_REMEMBERED_LIBRARIES:
            del self._libraries[next(iter(self._libraries))]

    def _find_gone(self, keys: Sequence[str], missing: int, max_count: int) -> list[str]:
        """Return stored keys whose file no longer exists.

        The store may serve a user who sees more skills, so an unknown key alone is no reason.
        """
        count = len(self._store) - (len(keys) - missing)
        if not 0 < count <= max_count:
            return []
        own_keys = set(keys)
        others = (key for key in self._store.stored_keys() if key not in own_keys)
        return [key for key in others if not os.path.exists(key)]

    # --- comparing --------------------------------------------------------------------------

    def _score(
        self,
        queries: Matrix,
        keys: Sequence[str],
        word_keys: Collection[str],
        library: _LibraryVectors,
    ) -> dict[str, Signal]:
        """Return the cosines of every candidate with every part of the goal.

        A candidate found by words that cannot be compared gets the median of those that can. One
        not found by words gets nothing.
        """
        np: Any = require("numpy", EXTRA)
        compared_keys, blocks = self._store.vectors(keys)
        if not compared_keys:
            return {}
        differences = blocks[:, ABOUT_SLOT] - self._mean_description(library)
        differences /= np.maximum(np.linalg.norm(differences, axis=1, keepdims=True), 1e-3)
        cosines = differences @ queries.T
        clause_cosines = cosines[:, 1:].max(axis=1) if len(queries) > 1 else cosines[:, 0]
        scores = {
            "about": cosines[:, 0],
            "name": blocks[:, NAME_SLOT] @ queries[0],
            "clauses": clause_cosines,
        }
        compared = set(compared_keys)
        uncompared = sorted(key for key in word_keys if key not in compared)
        by_words = [position for position, key in enumerate(compared_keys) if key in word_keys]
        signals: dict[str, Signal] = {}
        for signal, values in scores.items():
            # Negative cosines count as zero.
            rounded = np.maximum(np.round(values.astype(np.float64), _COSINE_DIGITS_COUNT), 0.0)
            table: dict[str, float] = dict(zip(compared_keys, rounded.tolist(), strict=True))
            if uncompared and by_words:
                table.update(dict.fromkeys(uncompared, float(np.median(rounded[by_words]))))
            signals[signal] = Signal({key: score for key, score in table.items() if score > 0})
        return signals

    def _mean_description(self, library: _LibraryVectors) -> Matrix:
        """Return the mean vector of descriptions; deterministic for a library."""
        changes = self._store.changes
        if library.mean_description is None or library.mean_description[0] != changes:
            np: Any = require("numpy", EXTRA)
            keys = sorted(library.keys)
            sampled_keys, blocks = self._store.vectors(
                keys[:: max(1, len(keys) // _SAMPLED_SKILL_COUNT)]
            )
            # The mean of a few skills is not common ground.
            mean = np.float32(0)
            if len(sampled_keys) >= MIN_LIBRARY_SKILLS:
                order = sorted(range(len(sampled_keys)), key=sampled_keys.__getitem__)
                mean = blocks[order, ABOUT_SLOT].mean(axis=0, dtype=np.float64).astype(np.float32)
            library.mean_description = (changes, mean)
        return library.mean_description[1]


def _missing_note(library: _LibraryVectors) -> str:
    return say(
        "{waiting} of {count} skills have no embedding; run `satchel search --build-index`",
        waiting=f"{len(library.missing):,}",
        count=f"{len(library.keys):,}",
    )


def _unused_note(reason: str) -> str:
    return say("Embeddings are not used: {reason}", reason=reason)


def _as_model_failure(exc: Exception) -> ModelFailed:
    return ModelFailed(
        f"{type(exc).__name__}: {exc}".strip().partition("\n")[0][:200],
        say("Name another model in the setting `embeddings`"),
    )
