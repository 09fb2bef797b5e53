"""The detector for any size: words field by field, meanings where a model is set, and one verdict.

    goal ──► terms ──► index ──► legs `head`, `body` ─┐
      └────► model ──► vectors ─► legs of meaning ────┴─► fused ─► near copies apart ─► fits or not

Nothing here waits: while an index is built the answer comes from what is there, and says so.
"""

from __future__ import annotations

import math
import os
import re
import time
from bisect import insort
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import RIVALS, Answer, BaseDetector, Match, Place, Prepared
from satchel.detect.evidence import Heads, Sought, explain, having_all, missing_words
from satchel.detect.fusion import (
    FEWEST,
    MEANING,
    OF_WORDS,
    THRESHOLD,
    WORDS,
    Fused,
    Leg,
    Mixed,
    Signs,
    collapse,
    fit_of,
    fuse,
    mix,
    off_subject,
)
from satchel.detect.index.upkeep import Upkeep, keys_of, open_index
from satchel.detect.lexical import LexicalDetector
from satchel.detect.terms import (
    LINKS,
    cutter,
    goal_terms,
    head_row,
    head_texts,
    idle_terms,
    idle_words,
    make_row,
    pieces_of,
    query_bytes,
    stem,
    terms_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from satchel.detect.index.base import Row
    from satchel.detect.semantic import Semantic
    from satchel.skill import Skill

_KEPT = 4
_LONGEST_NAME = 300
"""Characters; a longer goal is nobody's name."""
SMALL = 2_000
"""Skills up to which words are looked for in names: in a larger library every word is in some."""
_TOLD_BY = 2
"""Names that a word may always tell from others."""


class Shelf:
    """Some skills by key and by name."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.skills = skills
        self._names: dict[bytes, list[str]] | None = None
        self._words: dict[str, bool] = {}
        self.by_key: dict[str, Skill] = dict(zip(keys_of(skills), skills, strict=True))

    def called(self, goal: str) -> tuple[str, ...]:
        """Keys of the skills whose name is the goal and nothing else."""
        if len(goal) > _LONGEST_NAME:
            return ()
        return tuple(self._by_name().get(query_bytes(goal), ()))

    def named_by(self, word: str) -> bool:
        """Whether a word is what a few names of a small library are told by.

        `go` says nothing in most requests, and all in one for `go-review`.
        """
        if len(self.by_key) > SMALL or not word.isascii():
            return False
        if word not in self._words:
            names = b"".join(self._by_name())  # each has a space before and behind it
            count = names.count(b" %s " % word.encode())
            self._words[word] = 0 < count <= max(_TOLD_BY, len(self.by_key) // 20)
        return self._words[word]

    def _by_name(self) -> dict[bytes, list[str]]:
        if self._names is None:
            names: dict[bytes, list[str]] = {}
            for key, skill in self.by_key.items():
                names.setdefault(query_bytes(skill.name), []).append(key)
            self._names = names
        return self._names


class Shelves:
    """The shelves of the last few sequences."""

    def __init__(self) -> None:
        self._kept: list[Shelf] = []

    def of(self, skills: Sequence[Skill]) -> Shelf:
        """The shelf of a sequence; a tuple's is made once."""
        for shelf in self._kept:
            if shelf.skills is skills:
                return shelf
        if not isinstance(skills, tuple):  # a list may change under us
            return Shelf(skills)
        shelf = Shelf(skills)
        self._kept = [shelf, *self._kept[: _KEPT - 1]]
        return shelf


CANDIDATES = 50
"""Skills of each leg that are looked at for a short goal."""
MANY_CANDIDATES = 200
"""The same for a long one, whose legs agree less; twice as many find nothing more, and take longer
than the search itself."""
_BESIDE_MEANING = 2
"""So many times more where a model compares meanings: its legs agree with those of words less."""
_SHORT = 24
"""Terms up to which a goal is short."""
_CLOSE = 0.5
"""A second or third one is named when it has this share of the first one's score."""
_SHOWN = 20
_LOOKED_AT = 50
_RUNNERS_UP = 7
_TELLING = 0.5
"""A term of at least this weight says something."""
_FEW_WORDS = 2
"""Telling words of a goal up to which a derived word may be enough."""
_ABLE = re.compile(r"[a-z]{4,}[ai]b(?:les?|ly|ility)")
_ASIDE = 0.3
"""What is left of the score of a skill that comes with Satchel and that the goal is not about."""
_NAMING = 0.3
"""What a word weighs that says nothing, but tells a few skills' names from others."""
_FIFTH = 4
_PLAIN = 5_000
_FEW_TERMS = 6
"""So few terms are words that somebody typed to find something that has them."""

_KEY: Callable[[Fused], str] = itemgetter(0)
_NO_NAMES = LINKS | {"skill", "skills"}
"""Words that name nothing, though they stand in names."""


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
    aside: AbstractSet[str] = frozenset()
    """Keys of skills that come with Satchel, and that the goal is not about: they never fit."""
    mixed: Mixed = Mixed({}, ())
    """All of the others that were looked at."""
    few: Sequence[Fused] = ()
    """Those that are aside, with what is left of their scores."""
    goal: str = ""

    def stands(self, key: str) -> tuple[int, Fused] | None:
        """One skill and its place among all that were looked at, from 1; None if it was not."""
        one = self.mixed.of(key) or next((one for one in self.few if one.key == key), None)
        if one is None:
            return None
        own = _order(one)
        return 1 + self.mixed.before(one) + sum(_order(other) < own for other in self.few), one


def _own_folder(folder: str) -> str:
    """Terms of another cutter are other terms: they have an index of their own."""
    return os.path.join(folder, cutter() or "plain")


class HybridDetector(BaseDetector):
    """Ranks by fields that are scored apart and fused, and says when nothing fits."""

    name = "hybrid"

    def __init__(
        self,
        folder: str | None = None,
        *,
        semantic: Semantic | None = None,
        limit: int = 3,
        patience: float = 0.0,
        on_wait: Callable[[int, int], None] | None = None,
        rows: Callable[[Skill], Row] = make_row,
    ) -> None:
        """Make a detector; nothing is read or built before the first look.

        Args:
            folder: Where the index of a large library is kept; None keeps it in memory.
            semantic: Compares meanings; None compares words alone.
            limit: How many skills fit a goal at most.
            patience: Seconds that a look may wait for an index that is being built: for a command
                that ends right after it. An agent's look waits for nothing.
            on_wait: Called while it waits, with how many are indexed, and of how many.
            rows: How a skill is read for the index.
        """
        self._plain = LexicalDetector()
        self._upkeep = Upkeep(partial(_own_folder, folder) if folder else None, rows, head_row)
        self.semantic = semantic
        self._limit = limit
        self._patience = patience
        self._on_wait = on_wait
        self._shelves = Shelves()
        self._heads = Heads()

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """The best `limit` skills, whether they fit or not; reasons are read from each file."""
        most = max(limit, _LOOKED_AT)
        many = 0 if limit <= CANDIDATES else 2 * max(limit, MANY_CANDIDATES)
        found = self.ranking(goal_text, skills, many, most)
        best = _called_first(found)
        if not best and not found.terms and len(skills) > _PLAIN:
            # Words that say nothing are everywhere: to read all for them takes long.
            found = self.ranking(goal_text, skills, many, most, idle_terms(goal_text))
            best = [one._replace(score=one.score * _CLOSE) for one in found.fused]
        sought = Sought(found.terms)
        if 1 < len(found.terms) <= _FEW_TERMS:
            best = self._whole_first(found, sought, best, limit)
        best = best[:limit]
        matches = [self._match(found, sought if reasons else None, one) for one in best]
        few = len(skills) <= _PLAIN and len(found.terms) < 2
        if len(goal_text.strip().encode()) > 1 and (not matches or (few and len(matches) < limit)):
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

    def look(self, goal_text: str, skills: Sequence[Skill], limit: int | None = None) -> Answer:
        """The whole answer: chosen skills, runners-up, how sure it is, and notes."""
        began = time.perf_counter()
        limit = limit or self._limit
        found = self.ranking(goal_text, skills, most=_SHOWN)
        best = _called_first(found)[:_SHOWN]
        by_key = found.shelf.by_key
        told = {term for term, weight in found.terms.items() if weight >= _TELLING}
        kept, copies = collapse([by_key[one.key] for one in best], told, limit + _RUNNERS_UP)
        # "Yes" is an answer, also where a skill is called `yes`.
        fit = (
            1.0
            if found.called and found.terms
            else fit_of(self.signs(found), meaning="about" in found.legs, few=len(by_key) < FEWEST)
        )
        chosen: list[int] = []
        if best and best[0].key in found.aside:
            fit = 0.0  # nobody else was found
        if best and fit >= THRESHOLD:
            least = best[0].score * _CLOSE
            near = [at for at in kept[:limit] if best[at].score >= least]
            near = [at for at in near if best[at].key not in found.aside]
            # Long instructions have words of every request: alone they make nobody a second choice.
            chosen = [at for at in near if at == kept[0] or best[at].parts.keys() - {"body"}]
        rest = [at for at in kept if at not in chosen][:_RUNNERS_UP]
        sought = Sought(found.terms)
        matches = [self._match(found, sought, best[at]) for at in chosen]
        runners_up = [self._match(found, sought, best[at]) for at in rest]
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
        found = self.ranking(goal_text, skills, len(skills), RIVALS, whole=True)
        key, sought = skill.path, Sought(found.terms)
        order = _called_first(found)
        if found.called:
            stood = next(((at, one) for at, one in enumerate(order, 1) if one.key == key), None)
        else:
            stood = found.stands(key)
        first = order[:RIVALS] if stood is None else order[: min(RIVALS, stood[0] - 1)]
        ahead = [(self._match(found, sought, one), _gave(one)) for one in first]
        missing = missing_words(goal_text, found.terms, skill, [match.skill for match, _ in ahead])
        if stood is None:
            return Place(0, len(skills), None, {}, ahead, missing)
        rank, own = stood
        match = self._match(found, sought, own)
        return Place(rank, len(skills), match, _gave(own), ahead, missing)

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
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
        lacking = self.semantic.unmade if self.semantic is not None else ()
        return Prepared(
            engine,
            len(skills),
            changed,
            seconds,
            self._upkeep.folder or "",
            model,
            made,
            without_vectors=lacking,
        )

    def indexed(self) -> int:
        """How many skills the index on disk holds; 0 without one. Nothing is built for it."""
        folder = self._upkeep.folder
        if folder is None or not os.path.isdir(folder):
            return 0
        names = os.listdir(folder)
        if not any(name.startswith(("tantivy-", "memory-")) for name in names):
            return 0
        large = any(name.startswith("tantivy-") for name in names)
        return open_index(folder, 1 << 40 if large else 0).count()

    def ranking(
        self,
        goal_text: str,
        skills: Sequence[Skill],
        limit: int = 0,
        most: int | None = None,
        terms: dict[str, float] | None = None,
        *,
        whole: bool = False,
    ) -> Ranking:
        """Every leg and the fused order, before any verdict.

        Args:
            goal_text: What is wanted.
            skills: The library.
            limit: How many skills of each leg are looked at; 0 decides by the goal's length.
            most: How many are wanted in order; None wants all that were looked at.
            terms: What is looked for; None takes the goal's terms.
            whole: Whether who is aside counts wherever it stands, and not only among the `most`.
        """
        shelf = self._shelves.of(skills)
        terms = _terms(goal_text, shelf) if terms is None else terms
        semantic = self.semantic
        if not limit:
            limit = CANDIDATES if len(terms) <= _SHORT else MANY_CANDIDATES
            limit *= 1 if semantic is None else _BESIDE_MEANING
        legs, notes = self._words(goal_text, terms, shelf, limit)
        weights = WORDS
        if semantic is not None:
            legs = _only(legs, shelf.by_key)
            known = {key for leg in legs.values() for key in leg.scores}
            more, said = semantic.legs(
                goal_text, skills, known, shelf.by_key, CANDIDATES * _BESIDE_MEANING
            )
            legs.update(more)
            notes += said
            weights = MEANING if more else WORDS
        self.notes = tuple(notes)
        called = shelf.called(goal_text)
        # Who was called comes first, wherever the words have put it.
        most = None if called else most
        mixed = mix(legs, weights)
        fused = mixed.best(most)
        if not all(map(shelf.by_key.__contains__, mixed.totals if whole else map(_KEY, fused))):
            # Another process has changed the index since it was counted.
            legs = _only(legs, shelf.by_key)
            mixed = mix(legs, weights)
            fused = mixed.best(most)
        looked_at = mixed.totals if whole else map(_KEY, fused)
        aside = off_subject(goal_text, looked_at, shelf.by_key)
        aside -= frozenset(called)
        few = [one._replace(score=one.score * _ASIDE) for one in map(mixed.of, aside) if one]
        if aside:
            mixed = mix(_without(legs, aside), weights)
            fused = mixed.best(most)
            for one in few:
                insort(fused, one, key=_order)
        return Ranking(
            terms, legs, weights, fused, shelf, called, self.notes, aside, mixed, few, goal_text
        )  # fmt: skip

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
        telling = [term for term, weight in found.terms.items() if weight >= _TELLING]
        shared = own.intersection(telling)
        matched: float = len(shared)
        fifth = fused[_FIFTH].score if len(fused) > _FIFTH else 0.0
        gap = first.score - fifth
        meaning = self.semantic is not None and "about" in found.legs
        some = len(telling) > _FEW_WORDS and 2 * len(shared) <= len(telling)
        if some and not meaning and _derived(found.goal, skill, shared):
            cover, matched, gap = cover / 2, matched / 2, 0.0
        signs = Signs(cover, math.log1p(matched), gap)
        if self.semantic is None or not meaning:
            return signs
        alike, clause, named = self.semantic.signs(found.legs, first.key)
        return signs._replace(alike=alike, clause=clause, named=named)

    def _words(
        self, goal_text: str, terms: dict[str, float], shelf: Shelf, limit: int
    ) -> tuple[dict[str, Leg], list[str]]:
        """The legs that words make."""
        index, waiting, note = self._upkeep.current(shelf.skills, self._patience, self._on_wait)
        notes = [note] if note else []
        if index is None or waiting:
            found = self._plain.detect(goal_text, shelf.skills)[:limit]
            return {"head": Leg({match.skill.path: match.score for match in found})}, notes
        by_key, count = shelf.by_key, index.count()
        # An index may know skills that this agent does not see: all of ours are in it.
        allowed = by_key if count > len(by_key) else None
        legs = index.search_legs(list(terms.items()), OF_WORDS, limit, allowed)
        found = {name: Leg(scores) for name, scores in legs.items()}
        # Filtering takes as long as a search, so only where the index may know others.
        sure = count == len(by_key) or allowed is not None
        return (found if sure else _only(found, by_key)), notes

    def _whole_first(
        self, found: Ranking, sought: Sought, order: list[Fused], limit: int
    ) -> list[Fused]:
        """Of a few words: first who has all of them in name and description, as people expect."""
        by_key = found.shelf.by_key
        skills = [by_key[one.key] for one in order[:_LOOKED_AT]]
        whole = set(having_all(self._heads, skills, sought, limit))
        if found.called:
            whole |= {at for at, one in enumerate(order[:_LOOKED_AT]) if one.key in found.called}
        if not whole:
            return order
        others = [one for at, one in enumerate(order) if at not in whole]
        # Who has all words is not worse than the best of those who lack one, and says so.
        least = others[0].score if others else 0.0
        first = [order[at] for at in sorted(whole)]
        return [one._replace(score=max(one.score, least)) for one in first] + others

    def _match(self, found: Ranking, sought: Sought | None, one: Fused) -> Match:
        """One of the best; nothing that is sought means that nobody asks why."""
        skill = found.shelf.by_key[one.key]
        if sought is None:
            return Match(skill.name, round(one.score, 3), "", (), skill, self.name)
        called = one.key in found.called
        reason, evidence = explain(skill, self._heads.of(skill), sought, one.parts, called=called)
        return Match(skill.name, round(one.score, 3), reason, evidence, skill, self.name)


def _derived(goal: str, skill: Skill, shared: AbstractSet[str]) -> bool:
    """Whether the skill's head has a shared word only as `testable` for `tests`."""
    said = set(pieces_of(goal))
    derived: dict[str, bool] = {}
    for piece in (one for text in head_texts(skill).values() for one in pieces_of(text)):
        if (term := stem(piece)) in shared:
            able = piece not in said and _ABLE.fullmatch(piece) is not None
            derived[term] = able and derived.get(term, True)
    return any(derived.values())


def _terms(goal: str, shelf: Shelf) -> dict[str, float]:
    """The goal's terms; of its words that say nothing those that stand in a name here."""
    terms = goal_terms(goal)
    if terms and len(shelf.by_key) <= SMALL:
        for word in idle_words(goal):
            if word not in _NO_NAMES and shelf.named_by(word):
                terms.setdefault(stem(word), _NAMING)
    return terms


def _only(legs: dict[str, Leg], keys: Container[str]) -> dict[str, Leg]:
    """The legs without strangers."""
    return {
        name: Leg({key: score for key, score in scores.items() if key in keys}, low)
        for name, (scores, low) in legs.items()
    }


def _without(legs: dict[str, Leg], keys: Iterable[str]) -> dict[str, Leg]:
    """The legs without some few skills."""
    left: dict[str, Leg] = {}
    for name, (scores, low) in legs.items():
        others = dict(scores)
        for key in keys:
            others.pop(key, None)
        left[name] = Leg(others, low)
    return left


def _order(one: Fused) -> tuple[float, str]:
    """The best first; equal ones in the order of their keys."""
    return (-one.score, one.key)


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
    first += [Fused(key, 1.0) for key in found.called if key not in seen]
    top = [one._replace(score=1.0) for one in first]
    return top + [one for one in found.fused if one.key not in named]
