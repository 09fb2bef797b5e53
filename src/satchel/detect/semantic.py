"""What do vectors add to a ranking? Three legs: the whole goal, its sentences, and the name alone.

All descriptions of a library have something in common, which tells none of them from another: it
is taken off before a goal is compared with them. Where the model does not cover the goal's script
there are no legs at all, because noise ranks worse than words alone. Nor are there any while many
skills have no vector yet: whoever had one would beat whoever has none.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel._optional import require
from satchel.detect.fusion import FEWEST, Leg
from satchel.detect.terms import clauses, for_vectors
from satchel.detect.vectors.base import EXTRA
from satchel.detect.vectors.store import VectorStore
from satchel.errors import ModelFailed, Refused, SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from satchel.detect.vectors.base import Embedder, Matrix
    from satchel.skill import Skill

_GOAL = 600
"""Characters of a long goal that are compared as a whole: what follows is detail."""
_CLAUSE = 300
_SAMPLE = 512
"""Skills from which is taken what all descriptions have in common."""
_MANY = 1_000
_REMEMBERED = 4
"""Libraries that are followed at once: all skills, and those that a model may load, say."""
_LACK_OF_ALL = 0.10
_LACK_OF_FOUND = 0.05
"""Shares of the library, and of the skills that words found, that may lack a vector."""
_BUDGET = 2.0
"""Seconds that a look gives to a model behind an address."""
_REST = 30.0
"""Seconds until a model that failed is tried again."""
_LOOK_AGAIN = 1.0
"""Seconds between two counts of what is still lacking in a library of thousands."""
_STRANGERS = 256
"""Keys of nobody whose files a look may look for; `prepare` looks for more."""
_ALL_STRANGERS = 20_000
_DIGITS = 6
"""Digits of a cosine: what comes after them depends on how a matrix was cut."""
NAME, ABOUT = 0, 1
"""The two vectors of a skill: its name, and its name with what it says it does."""


class _Seen:
    """One library, and what of it lacks a vector."""

    def __init__(self, skills: tuple[Skill, ...], keys: list[str], store: VectorStore) -> None:
        self.skills = skills
        self.keys = keys
        self.lacking: AbstractSet[str] = frozenset()
        self.common: tuple[int, Matrix] | None = None
        self.retry_at = 0.0
        self._looked_at = 0.0
        self._changes: int = -1
        self.count(store)

    def count(self, store: VectorStore) -> None:
        """Bring `lacking` up to date; in a large library at most once a second."""
        is_early = time.monotonic() - self._looked_at < _LOOK_AGAIN
        if store.changes == self._changes or (is_early and len(self.keys) > _MANY):
            return
        self._changes = store.changes
        self.lacking = frozenset(store.lacking(self.keys))
        self._looked_at = time.monotonic()


class Semantic:
    """Vectors of a library, and where a goal is among them."""

    def __init__(self, model: Embedder | Callable[[], Embedder], folder: str | None = None) -> None:
        """Open nothing yet.

        Args:
            model: The model, or a function that opens it when it is first needed.
            folder: Where vectors are kept; None keeps them in memory.
        """
        self._model = model
        self._folder = folder
        self.made = 0
        """Skills of the last library that was prepared that have vectors."""
        self.unmade: tuple[tuple[str, str], ...] = ()
        """Names of those that have none, each with the reason."""
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._opened: VectorStore | None = None
        self._seen: dict[int, _Seen] = {}
        self._rests_until = 0.0
        self._failed: SatchelError | None = None

    @property
    def embedder(self) -> Embedder:
        """The model, opened now if it was not.

        Raises:
            SatchelError: it cannot be opened; that is tried again after a while.
        """
        return self._store.embedder

    @property
    def _store(self) -> VectorStore:
        if self._pid != os.getpid():  # threads and locks of the parent are not ours
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
                    self._rests_until = time.monotonic() + _REST
                    raise self._failed from exc
            return self._opened

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - as `prepare` of a detector has it
    ) -> str:
        """Embed what has no vector yet, and wait for it; returns the model's id.

        Args:
            skills: The library.
            progress: Told how many skills have their vectors; its own `vectors`, if it has one,
                for whoever shows words and vectors apart.
            rebuild: Make all vectors anew; the old ones count until the new ones are there.

        Raises:
            ModelFailed: the model cannot be run or reached.
            Refused: the vectors cannot be written.
        """
        skills = tuple(skills)
        self._store.refresh()
        keys = [skill.path for skill in skills]
        gone = self._gone(keys, len(self._store.lacking(keys)), _ALL_STRANGERS)
        texts = ((key, for_vectors(skill)) for key, skill in zip(keys, skills, strict=True))
        self._store.fill(texts, gone, getattr(progress, "vectors", progress), anew=rebuild)
        with self._lock:
            self._failed, self._rests_until = None, 0.0
            self._remember(_Seen(skills, keys, self._store))
        there = frozenset(self._store.vectors(keys)[0])
        self.made = len(there)
        without = (skill for skill in skills if skill.path not in there)
        self.unmade = tuple((skill.name, self._why_none(skill)) for skill in without)
        if self._store.trouble:
            raise Refused(
                say("The vectors cannot be written: {reason}", reason=self._store.trouble),
                say("Make the cache folder writable"),
            )
        return self.embedder.id

    def legs(
        self,
        goal: str,
        skills: Sequence[Skill],
        known: Collection[str],
        by_key: Mapping[str, Skill],
        limit: int,
    ) -> tuple[dict[str, Leg], list[str]]:
        """The legs of meaning, and what a person should know about them.

        Args:
            goal: What is wanted.
            skills: The library.
            known: Keys that words have found; they are scored too.
            by_key: The library by key: vectors of strangers are passed over.
            limit: How many more keys are looked for.
        """
        if not skills:
            return {}, []
        skills = tuple(skills)
        whole = goal[:_GOAL]
        parts = clauses(goal)
        began = time.monotonic()
        try:
            store = self._store
        except SatchelError as exc:
            return {}, [_not_compared(exc.message)]
        if self._failed is not None and began < self._rests_until:
            self._follow(skills)
            return {}, [_not_compared(self._failed.message)]
        try:
            with self._hurrying():
                if not self.embedder.covers(whole):
                    return {}, [_not_compared(say("the model does not know this script"))]
                seen = self._follow(skills)
                if self._is_early(seen, known):
                    if hasattr(self.embedder, "hurrying"):
                        self.embedder.embed([whole])  # whether it answers at all
                    return {}, [self._what_waits(seen)]
                made = self.embedder.embed([whole, *(part[:_CLAUSE] for part in parts)])
        except SatchelError as exc:  # a server that is away, say: the words are still there
            self._failed = exc
            if hasattr(self.embedder, "hurrying") or time.monotonic() - began > _BUDGET:
                self._rests_until = time.monotonic() + _REST
            return {}, [_not_compared(exc.message)]
        queries = made[:1] if len(parts) == 1 else made
        keys = set(known)
        keys.update(store.nearest(queries, limit, by_key))
        return self._score(queries, sorted(keys), known, seen), self._notes(seen)

    def signs(self, legs: Mapping[str, Leg], key: str) -> tuple[float, float, float]:
        """How near one skill is: as a whole, by the best sentence of the goal, and by its name."""
        about, clause, name = (
            legs[leg].scores.get(key, 0.0) for leg in ("about", "clauses", "name")
        )
        return about, clause, name

    # --- what there is ----------------------------------------------------------------------

    def _covers(self, texts: Sequence[str]) -> list[bool]:
        """Which texts of a skill get a vector: none when its description is in another script.

        A Latin name before a Chinese description would lend it a place among English ones.
        """
        name, about = texts
        said = about.removeprefix(f"{name}: ").strip()
        if said and not self.embedder.covers(said):
            return [False, False]
        return [self.embedder.covers(name), self.embedder.covers(about)]

    def _why_none(self, skill: Skill) -> str:
        """Why a skill has no vectors although all were made."""
        name, about = for_vectors(skill)
        covered = self._covers((name, about))
        if all(covered):
            return say("the model made none")
        if covered[1]:
            return say("the model does not know the script of its name")
        return say("the model does not know the script of its description")

    def _hurrying(self) -> AbstractContextManager[Any]:
        """A model behind an address is asked once, and not for long."""
        hurrying: Any = getattr(self.embedder, "hurrying", None)
        return hurrying(_BUDGET) if hurrying is not None else nullcontext()

    def _is_early(self, seen: _Seen, known: Collection[str]) -> bool:
        """Whether too many have no vector for a fair comparison."""
        lacking = seen.lacking
        if len(lacking) > _LACK_OF_ALL * len(seen.keys):
            return True
        found = sum(1 for key in known if key in lacking) if lacking else 0
        return found > _LACK_OF_FOUND * len(known)

    def _what_waits(self, seen: _Seen) -> str:
        if self._store.stopped:
            return _not_compared(self._store.stopped)
        return say(
            "Meanings are not compared yet: {waiting} of {count} skills wait; run `satchel index`",
            waiting=f"{len(seen.lacking):,}",
            count=f"{len(seen.keys):,}",
        )

    def _notes(self, seen: _Seen) -> list[str]:
        """What a person should know although meanings were compared."""
        notes: list[str] = []
        if self._store.is_damaged:
            notes.append(say("The vectors on disk were damaged and are being made again"))
        if count := len(seen.lacking):
            notes.append(
                say("1 skill has no vector yet")
                if count == 1
                else say("{count} skills have no vector yet", count=f"{count:,}")
            )
        if self._store.stopped:
            notes.append(say("No new vectors: {reason}", reason=self._store.stopped))
        elif self._store.trouble:
            notes.append(say("The vectors cannot be written: {reason}", reason=self._store.trouble))
        return notes

    # --- following a library ----------------------------------------------------------------

    def _follow(self, skills: tuple[Skill, ...]) -> _Seen:
        """Have the vectors of new and changed skills made, in the background."""
        with self._lock:
            seen = self._seen.get(id(skills))
            if seen is None or seen.skills is not skills:
                return self._begin(skills)
            if seen.lacking or self._store.stopped:
                self._try_again(seen)
            seen.count(self._store)
            return seen

    def _begin(self, skills: tuple[Skill, ...]) -> _Seen:
        self._store.refresh()
        keys = [skill.path for skill in skills]
        seen = _Seen(skills, keys, self._store)
        before = {id(skill.head) for one in self._seen.values() for skill in one.skills}
        todo = [
            skill
            for key, skill in zip(keys, skills, strict=True)
            if id(skill.head) not in before or key in seen.lacking
        ]
        self._remember(seen)
        gone = self._gone(keys, len(seen.lacking), _STRANGERS)
        seen.retry_at = time.monotonic() + _REST
        self._fill(todo, gone)
        return seen

    def _try_again(self, seen: _Seen) -> None:
        """After a while: what failed once need not fail for ever, and others may have made it."""
        if time.monotonic() < seen.retry_at or self._store.is_filling:
            return
        seen.retry_at = time.monotonic() + _REST
        self._store.refresh()
        self._fill(seen.skills, ())

    def _remember(self, seen: _Seen) -> None:
        self._seen.pop(id(seen.skills), None)
        self._seen[id(seen.skills)] = seen
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def _gone(self, keys: Sequence[str], lacking: int, most: int) -> list[str]:
        """Keys of the store that are nobody's any more: their file is not there.

        The store may serve somebody who sees more skills, so that a stranger alone is no reason.
        """
        count = len(self._store) - (len(keys) - lacking)
        if not 0 < count <= most:
            return []
        own = set(keys)
        others = (key for key in self._store.held() if key not in own)
        return [key for key in others if not os.path.exists(key)]

    def _fill(self, skills: Sequence[Skill], gone: Iterable[str]) -> None:
        if len(skills) <= _MANY:
            self._fill_soon(skills, gone)
            return
        # Even to write down their texts takes a while.
        filling = threading.Thread(
            target=self._fill_soon, args=(skills, gone), name="satchel-texts", daemon=True
        )
        try:
            filling.start()
        except RuntimeError:  # no more threads: the next time, and the note says what waits
            return

    def _fill_soon(self, skills: Sequence[Skill], gone: Iterable[str]) -> None:
        if skills or gone:
            self._store.fill_soon([(skill.path, for_vectors(skill)) for skill in skills], gone)

    # --- comparing --------------------------------------------------------------------------

    def _score(
        self, queries: Matrix, keys: Sequence[str], known: Collection[str], seen: _Seen
    ) -> dict[str, Leg]:
        """Every candidate beside every part of the goal.

        One that words found and that cannot be compared gets the middle of what the others have
        that words found: neither gain nor loss. One that words did not find gets nothing.
        """
        np: Any = require("numpy", EXTRA)
        found, blocks = self._store.vectors(keys)
        if not found:
            return {}
        apart = blocks[:, ABOUT] - self._in_common(seen)
        apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-3)
        cosines = apart @ queries.T
        parts = cosines[:, 1:].max(axis=1) if len(queries) > 1 else cosines[:, 0]
        scores = {"about": cosines[:, 0], "name": blocks[:, NAME] @ queries[0], "clauses": parts}
        compared = set(found)
        others = sorted(key for key in known if key not in compared)
        by_words = [at for at, key in enumerate(found) if key in known]
        legs: dict[str, Leg] = {}
        for leg, values in scores.items():
            # What points the other way counts as nothing.
            rounded = np.maximum(np.round(values.astype(np.float64), _DIGITS), 0.0)
            table: dict[str, float] = dict(zip(found, rounded.tolist(), strict=True))
            if others and by_words:
                table.update(dict.fromkeys(others, float(np.median(rounded[by_words]))))
            legs[leg] = Leg({key: score for key, score in table.items() if score > 0})
        return legs

    def _in_common(self, seen: _Seen) -> Matrix:
        """The mean of the vectors of descriptions: the same for the same library, anywhere."""
        changes = self._store.changes
        if seen.common is None or seen.common[0] != changes:
            np: Any = require("numpy", EXTRA)
            keys = sorted(seen.keys)
            found, blocks = self._store.vectors(keys[:: max(1, len(keys) // _SAMPLE)])
            # A handful of skills has no common ground that tells less than they do.
            mean = np.float32(0)
            if len(found) >= FEWEST:
                order = sorted(range(len(found)), key=found.__getitem__)
                mean = blocks[order, ABOUT].mean(axis=0, dtype=np.float64).astype(np.float32)
            seen.common = (changes, mean)
        return seen.common[1]


def _not_compared(reason: str) -> str:
    return say("Meanings are not compared: {reason}", reason=reason)


def _typed(exc: Exception) -> ModelFailed:
    """An error of a library, as one of ours."""
    return ModelFailed(
        f"{type(exc).__name__}: {exc}".strip().partition("\n")[0][:200],
        say("Name another model in the setting `vectors`"),
    )
