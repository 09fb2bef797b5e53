"""The detector for any size: words field by field, meanings where a model is set, and one verdict.

    goal ──► terms ──► index ──► legs `head`, `body` ─┐
      └────► model ──► vectors ─► legs of meaning ────┴─► fused ─► near copies apart ─► fits or not

Nothing here waits: while an index is built the answer comes from what is there, and says so.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import Answer, Match, Place, Prepared
from satchel.detect.evidence import explain, has_all, missing_words
from satchel.detect.fitting import THRESHOLD, Signs, fit_of
from satchel.detect.fusion import MEANING, OF_WORDS, WORDS, Fused, Leg, fuse
from satchel.detect.index.memory import MemoryIndex
from satchel.detect.index.open import open_index
from satchel.detect.index.upkeep import Upkeep
from satchel.detect.lexical import LexicalDetector
from satchel.detect.shelves import Shelves
from satchel.detect.terms import cutter, goal_terms, terms_of
from satchel.detect.texts import head_row, head_texts, make_row
from satchel.detect.twins import collapse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.detect.index.base import Row
    from satchel.detect.semantic import LazySemantic, Semantic
    from satchel.detect.shelves import Shelf
    from satchel.skill import Skill

CANDIDATES = 100
"""Skills of each field that are looked at for a short goal."""
MANY_CANDIDATES = 400
"""The same for a long one, whose fields agree less; more than these find nothing more."""
_SHORT = 24
"""Terms up to which a goal is short."""
_WAITING = 2_000
"""Skills not yet indexed that are searched beside the index; more, and all are searched plainly."""
_CLOSE = 0.5
"""A second or third one is named when it has this share of the first one's score."""
_SHOWN = 20
_LOOKED_AT = 50
_RUNNERS_UP = 7
_RIVALS = 3
_TELLING = 0.5
"""A term of at least this weight says something."""
_FIFTH = 4
_PLAIN = 5_000
_FEW_TERMS = 6
"""So few terms are words that somebody typed to find something that has them."""


class Ranking(NamedTuple):
    """One goal against one library, before any verdict."""

    terms: dict[str, float]
    legs: dict[str, Leg]
    weights: dict[str, float]
    fused: list[Fused]
    shelf: Shelf
    called: tuple[str, ...]
    """Keys of skills whose name is the goal, and nothing else."""
    notes: tuple[str, ...]


class HybridDetector:
    """Ranks by fields that are scored apart and fused, and says when nothing fits."""

    name = "hybrid"

    def __init__(
        self,
        folder: str | None = None,
        *,
        semantic: Semantic | LazySemantic | None = None,
        limit: int = 3,
        patience: float = 0.0,
        rows: Callable[[Skill], Row] = make_row,
    ) -> None:
        """Make a detector; nothing is read or built before the first look.

        Args:
            folder: Where the index of a large library is kept; None keeps it in memory.
            semantic: Compares meanings; None compares words alone.
            limit: How many skills fit a goal at most.
            patience: Seconds that a look may wait for an index that is being built: for a command
                that ends right after it. An agent's look waits for nothing.
            rows: How a skill is read for the index.
        """
        self._plain = LexicalDetector()
        # Terms of another cutter are other terms: they have an index of their own.
        self._folder = os.path.join(folder, cutter() or "plain") if folder else None
        self._upkeep = Upkeep(self._folder, rows, head_row)
        self.semantic = semantic
        self.notes: tuple[str, ...] = ()
        """What a person should know about the last look or search."""
        self._limit = limit
        self._patience = patience
        self._shelves = Shelves()
        self._waiting: tuple[Sequence[Skill], MemoryIndex] | None = None

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """The skills that fit, at most `limit`, best first; none when nothing fits."""
        return self.look(goal_text, skills).matches

    def rank(self, goal_text: str, skills: Sequence[Skill], limit: int = 50) -> list[Match]:
        """The best `limit` skills, whether they fit or not: for a search."""
        found = self.ranking(goal_text, skills, most=max(limit, CANDIDATES))
        best = _called_first(found)
        if 1 < len(found.terms) <= _FEW_TERMS:
            best = _whole_first(found, best)
        best = best[:limit]
        matches = [self._match(found, one) for one in best]
        if not matches or (len(matches) < limit and len(skills) <= _PLAIN and len(found.terms) < 2):
            # Half a word is no term; people who search type half words. To look for it everywhere
            # takes long in a large library: only where it is quick, or where nothing else is.
            known = {one.key for one in best}
            more = self._plain.detect(goal_text, skills)
            lowest = matches[-1].score if matches else 1.0
            top = more[0].score if more else 1.0
            for match in more:
                if match.skill.path not in known and len(matches) < limit:
                    score = round(min(1.0, match.score / (top or 1.0)) * lowest * _CLOSE, 3)
                    matches.append(match._replace(score=score, detector="words"))
        return matches

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The whole answer: who fits, who nearly did, how sure it is, and what to know about it."""
        began = time.perf_counter()
        found = self.ranking(goal_text, skills, most=_SHOWN)
        best = _called_first(found)[:_SHOWN]
        by_key = found.shelf.by_key
        told = {term for term, weight in found.terms.items() if weight >= _TELLING}
        kept, copies = collapse([by_key[one.key] for one in best], told, self._limit + _RUNNERS_UP)
        # "Yes" is an answer, also where a skill is called `yes`.
        fit = (
            1.0
            if found.called and found.terms
            else fit_of(self.signs(found), meaning="about" in found.legs)
        )
        chosen: list[int] = []
        if best and fit >= THRESHOLD:
            least = best[0].score * _CLOSE
            near = [at for at in kept[: self._limit] if best[at].score >= least]
            # Long instructions have words of every request: alone they make nobody a second choice.
            chosen = [at for at in near if at == kept[0] or best[at].parts.keys() - {"body"}]
        rest = [at for at in kept if at not in chosen][:_RUNNERS_UP]
        matches = [self._match(found, best[at]) for at in chosen]
        runners_up = [self._match(found, best[at]) for at in rest]
        took = (time.perf_counter() - began) * 1e3
        pairs = [(by_key[best[at].key].name, by_key[best[of].key].name) for at, of in copies]
        return Answer(
            matches,
            runners_up,
            round(fit, 3),
            THRESHOLD,
            self.name,
            took,
            found.notes,
            tuple(pairs),
        )

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """Where one skill stands, what each field gave, and who is ahead by what."""
        found = self.ranking(goal_text, skills, len(skills))
        order = _called_first(found)
        ahead: list[tuple[Match, dict[str, float]]] = []
        for rank, one in enumerate(order, 1):
            if one.key == skill.path:
                match = self._match(found, one)
                gave = _gave(one)
                missing = missing_words(goal_text, found.terms, skill, [m.skill for m, _ in ahead])
                return Place(rank, len(skills), match, gave, ahead, missing)
            if len(ahead) < _RIVALS:
                ahead.append((self._match(found, one), _gave(one)))
        missing = missing_words(goal_text, found.terms, skill, [match.skill for match, _ in ahead])
        return Place(0, len(skills), None, {}, ahead, missing)

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - a plain protocol for getattr
    ) -> Prepared:
        """Build the index, or bring it up to date, and wait for it."""
        began = time.perf_counter()
        changed = 0

        def count(done: int, _total: int) -> None:
            nonlocal changed
            changed = done
            if progress is not None:
                progress(done)

        built = self._upkeep.build(skills, count, rebuild=rebuild)
        model = ""
        if self.semantic is not None:
            model = self.semantic.prepare(skills, progress, rebuild)
        seconds = time.perf_counter() - began
        engine = built.ready.engine if built.ready is not None else ""
        made = self.semantic.made if self.semantic is not None else 0
        return Prepared(engine, len(skills), changed, seconds, self._folder or "", model, made)

    def indexed(self) -> int:
        """How many skills the index on disk holds; 0 without one. Nothing is built for it."""
        if self._folder is None or not os.path.isdir(self._folder):
            return 0
        names = os.listdir(self._folder)
        if not any(name.startswith(("tantivy-", "fts5-", "memory-")) for name in names):
            return 0
        large = any(name.startswith(("tantivy-", "fts5-")) for name in names)
        return open_index(self._folder, 1 << 40 if large else 0).count()

    def ranking(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 0, most: int | None = None
    ) -> Ranking:
        """Every leg and the fused order, before any verdict.

        Args:
            goal_text: What is wanted.
            skills: The library.
            limit: How many skills of each leg are looked at; 0 decides by the goal's length.
            most: How many are wanted in order; None wants all that were looked at.
        """
        shelf = self._shelves.of(skills)
        terms = goal_terms(goal_text)
        limit = limit or (CANDIDATES if len(terms) <= _SHORT else MANY_CANDIDATES)
        legs, notes = self._words(goal_text, terms, shelf, limit)
        weights = WORDS
        semantic = self.semantic
        if semantic is not None:
            known = {key for leg in legs.values() for key in leg.scores}
            more, said = semantic.legs(goal_text, skills, known, shelf.by_key, CANDIDATES)
            legs.update(more)
            notes += said
            weights = MEANING if more else WORDS
        self.notes = tuple(notes)
        fused = fuse(legs, weights, most=most)
        called = shelf.called(goal_text)
        return Ranking(terms, legs, weights, fused, shelf, called, self.notes)

    def signs(self, found: Ranking, without: Sequence[str] = ()) -> Signs:
        """What can be seen of the first one; `without` some keys, for measuring."""
        fused = fuse(found.legs, found.weights, without) if without else found.fused
        if not fused:
            return Signs()
        first = fused[0]
        skill = found.shelf.by_key[first.key]
        own = {term for text in head_texts(skill).values() for term in terms_of(text)}
        whole = sum(found.terms.values()) or 1.0
        cover = sum(weight for term, weight in found.terms.items() if term in own) / whole
        matched = sum(1 for term in own if found.terms.get(term, 0.0) >= _TELLING)
        fifth = fused[_FIFTH].score if len(fused) > _FIFTH else 0.0
        signs = Signs(cover, math.log1p(matched), first.score - fifth)
        if self.semantic is None or "about" not in found.legs:
            return signs
        alike, clause, named = self.semantic.signs(found.legs, first.key)
        return signs._replace(alike=alike, clause=clause, named=named)

    def _words(
        self, goal_text: str, terms: dict[str, float], shelf: Shelf, limit: int
    ) -> tuple[dict[str, Leg], list[str]]:
        """The legs that words make."""
        index, waiting, note = self._upkeep.current(shelf.skills, self._patience)
        notes = [note] if note else []
        if index is None or len(waiting) > _WAITING:
            found = self._plain.detect(goal_text, shelf.skills)[:limit]
            return {"head": Leg({match.skill.path: match.score for match in found})}, notes
        asked = list(terms.items())
        by_key = shelf.by_key
        # An index may know skills that this agent does not see.
        allowed = by_key if index.count() > len(by_key) else None
        legs = index.search_legs(asked, OF_WORDS, limit, allowed)
        if waiting:
            beside = self._beside(waiting).search_legs(asked, OF_WORDS, limit)
            legs = {name: {**legs.get(name, {}), **beside.get(name, {})} for name in OF_WORDS}
        return {
            name: Leg({key: score for key, score in scores.items() if key in by_key})
            for name, scores in legs.items()
        }, notes

    def _beside(self, waiting: Sequence[Skill]) -> MemoryIndex:
        """An index of what the real one does not know yet."""
        if self._waiting is None or self._waiting[0] != waiting:
            index = MemoryIndex()
            index.update(head_row(skill) for skill in waiting)
            self._waiting = (waiting, index)
        return self._waiting[1]

    def _match(self, found: Ranking, one: Fused) -> Match:
        skill = found.shelf.by_key[one.key]
        called = one.key in found.called
        reason, evidence = explain(skill, found.terms, one.parts, called=called)
        return Match(skill.name, round(one.score, 3), reason, evidence, skill, self.name)


def _whole_first(found: Ranking, order: list[Fused]) -> list[Fused]:
    """Of a few words: first who has all of them in name and description, as people expect."""
    whole: list[Fused] = []
    rest: list[Fused] = []
    for one in order[:_LOOKED_AT]:
        has = has_all(found.shelf.by_key[one.key], found.terms)
        (whole if has or one.key in found.called else rest).append(one)
    return [*whole, *rest, *order[_LOOKED_AT:]]


def _gave(one: Fused) -> dict[str, float]:
    """What each leg gave, rounded for people."""
    return {leg: round(value, 3) for leg, value in one.parts.items() if value > 0}


def _called_first(found: Ranking) -> list[Fused]:
    """The order, with whoever was called by name before everybody else."""
    if not found.called:
        return found.fused
    named = set(found.called)
    first = [one for one in found.fused if one.key in named]
    seen = {one.key for one in first}
    first += [Fused(key, 1.0, {}) for key in found.called if key not in seen]
    top = [one._replace(score=1.0) for one in first]
    return top + [one for one in found.fused if one.key not in named]
