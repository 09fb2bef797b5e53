"""Hybrid detector: BM25 word scores, optional embeddings, and a fit decision.

    goal ──► terms ──► index ──► signals `head`, `body` ─┐
      └────► model ──► vectors ─► semantic signals ──────┴─► ranking ─► near duplicates ─► fit

No request waits for an index: while it is built, the existing data is searched and a note is added.
"""

from __future__ import annotations

import math
import os
import re
import time
from bisect import insort
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import (
    MAX_RIVALS,
    BaseDetector,
    Detection,
    IndexReport,
    Match,
    RankExplanation,
    SkillSubset,
)
from satchel.detect.index.sync import IndexSync, keys_of
from satchel.detect.keyword import LexicalDetector
from satchel.detect.match_reasons import (
    LowercaseHeaders,
    QueryTerms,
    explain,
    missing_words,
    skills_with_all,
)
from satchel.detect.ranking import (
    MEANING,
    OF_WORDS,
    WORDS,
    RankedSkill,
    Signal,
    combine,
    drop_near_duplicates,
)
from satchel.detect.relevance import (
    FIT_THRESHOLD,
    MIN_LIBRARY_SKILLS,
    FitFeatures,
    fit_probability,
    irrelevant_builtins,
)
from satchel.detect.tokenizer import (
    LINKS,
    MIN_LONG_GOAL_CHARS,
    STOPWORDS,
    GoalText,
    head_row,
    head_texts,
    make_row,
    pieces_of,
    query_key,
    segmenter,
    stem,
    terms_in,
)
from satchel.skill.metadata import UNWRITTEN

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from satchel.detect.index.base import FieldIndex, IndexRow
    from satchel.detect.semantic import Semantic
    from satchel.skill import Skill

_MAX_LOOKUPS = 4
MAX_SMALL_LIBRARY_SKILLS = 2_000
"""Larger libraries use every word in some name, so stop words in names mean nothing there."""
_MIN_NAMES_PER_WORD = 2


class SkillLookup:
    """Finds skills by key and by name."""

    def __init__(self, skills: Sequence[Skill], whole: SkillLookup | None = None) -> None:
        """Index skills by key.

        Args:
            skills: The skills.
            whole: For a subset, the lookup of the whole library.
        """
        self.skills = skills
        self._whole = whole
        self._names: dict[str, list[str]] | None = None
        self._words: dict[str, bool] = {}
        if whole is None:
            self.by_key: dict[str, Skill] = dict(zip(keys_of(skills), skills, strict=True))
        else:
            kept = set(map(id, skills))
            self.by_key = {key: one for key, one in whole.by_key.items() if id(one) in kept}

    @property
    def by_name(self) -> dict[str, list[str]]:
        """Keys by normalised name; those of the whole library for a subset."""
        if self._whole is not None:
            return self._whole.by_name
        if self._names is None:
            names: dict[str, list[str]] = {}
            for key, skill in self.by_key.items():
                names.setdefault(query_key(skill.name), []).append(key)
            self._names = names
        return self._names

    def named_by(self, word: str) -> bool:
        """Whether a stop word distinguishes a few names of a small library: `go` in `go-review`."""
        if len(self.by_key) > MAX_SMALL_LIBRARY_SKILLS or not word.isascii():
            return False
        if word not in self._words:
            own = (name for name, keys in self.by_name.items() if any(map(self.by_key.get, keys)))
            count = "".join(own).count(f" {word} ")  # each is surrounded by spaces
            self._words[word] = 0 < count <= max(_MIN_NAMES_PER_WORD, len(self.by_key) // 20)
        return self._words[word]


class SkillLookups:
    """Caches the lookups of recent skill sequences."""

    def __init__(self) -> None:
        self._kept: list[SkillLookup] = []

    def of(self, skills: Sequence[Skill]) -> SkillLookup:
        """Return the lookup of a sequence; cached for tuples only, because a list may change."""
        for lookup in self._kept:
            if lookup.skills is skills:
                return lookup
        if not isinstance(skills, tuple):
            return SkillLookup(skills)
        whole = self.of(skills.whole) if isinstance(skills, SkillSubset) else None
        lookup = SkillLookup(skills, whole)
        # Subsets must not evict the library that they are made of.
        first = [lookup] if whole is None else [lookup, whole]
        others = [one for one in self._kept if one is not whole]
        self._kept = [*first, *others][:_MAX_LOOKUPS]
        return lookup


MAX_CANDIDATES = 50
"""Candidates per signal for a short goal."""
MAX_LONG_GOAL_CANDIDATES = 200
"""For a long goal, whose signals agree less. Doubling it finds nothing more and costs more than the
search itself."""
_SEMANTIC_CANDIDATES_RATIO = 2
"""With embeddings, whose signals agree less with word signals."""
_MAX_SHORT_GOAL_TERMS = 24
_MIN_SCORE_SHARE = 0.5
"""Relative to the best score; skills below it are not selected."""
_MAX_RANKED_SKILLS = 20
_MAX_REORDERED_SKILLS = 50
_MAX_RUNNERS_UP = 7
_MIN_TERM_WEIGHT = 0.5
"""Terms of at least this weight are significant."""
_MAX_DERIVED_WORDS = 2
"""Significant words up to which a derived word suffices."""
_ABLE = re.compile(r"[a-z]{4,}[ai]b(?:les?|ly|ility)")
_OFF_SUBJECT_RATIO = 0.3
"""Factor for built-in skills that the goal is not about."""
_NAME_WORD_WEIGHT = 0.3
"""Weight of a stop word that distinguishes a few names."""
_GAP_INDEX = 4
_MAX_SUBSTRING_SKILLS = 5_000
_MAX_SEARCH_TERMS = 6
"""Goals with at most this many terms are treated as search words."""

_KEY: Callable[[RankedSkill], str] = itemgetter(0)
_NO_NAMES = LINKS | {"skill", "skills"}
"""Words in names that do not identify a skill."""


class Ranking(NamedTuple):
    """Signals and scores of one goal in one library."""

    terms: dict[str, float]
    signals: dict[str, Signal]
    weights: dict[str, float]
    ranked: list[RankedSkill]
    lookup: SkillLookup
    called: tuple[str, ...]
    """Keys of skills whose name equals the goal."""
    notes: tuple[str, ...]
    off_subject: AbstractSet[str] = frozenset()
    """Keys of built-in skills that the goal is not about; they never fit."""
    pieces: Sequence[str] = ()


def _own_folder(folder: str) -> str:
    """Another Chinese word segmenter produces other terms, so each has its own index."""
    return os.path.join(folder, segmenter() or "plain")


class HybridDetector(BaseDetector):
    """Ranks skills by combined signals and decides whether the best one fits."""

    name = "hybrid"

    def __init__(
        self,
        folder: str | None = None,
        *,
        semantic: Semantic | None = None,
        limit: int = 3,
        patience: float = 0.0,
        on_wait: Callable[[int, int], None] | None = None,
        rows: Callable[[Skill], IndexRow] = make_row,
    ) -> None:
        """Create a detector; nothing is read or built before the first request.

        Args:
            folder: The index folder; None keeps the index in memory.
            semantic: Compares meanings; None compares words alone.
            limit: The maximum number of matches.
            patience: Seconds to wait for an index that is being built, for a command that ends
                after the request.
            on_wait: Called while it waits, with how many are indexed, and of how many.
            rows: Builds the index row of a skill.
        """
        self._keyword = LexicalDetector()
        self._sync = IndexSync(partial(_own_folder, folder) if folder else None, rows, head_row)
        self.semantic = semantic
        self._limit = limit
        self._patience = patience
        self._on_wait = on_wait
        self._lookups = SkillLookups()
        self._heads = LowercaseHeaders()

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Return the best `limit` skills, whether they fit or not."""
        most = max(limit, _MAX_REORDERED_SKILLS)
        many = 0 if limit <= MAX_CANDIDATES else 2 * max(limit, MAX_LONG_GOAL_CANDIDATES)
        goal = goal_text if isinstance(goal_text, GoalText) else GoalText(goal_text)
        found = self.ranking(goal, skills, many, most)
        best = _called_first(found)
        made = _Reasons(found, self._heads)
        if 1 < len(found.terms) <= _MAX_SEARCH_TERMS:
            best = self._whole_first(found, made.sought, best, limit)
        best = _templates_last(found, best)[:limit]
        matches = [self._match(found, made if reasons else None, one) for one in best]
        small = len(skills) <= _MAX_SUBSTRING_SKILLS
        few = small and len(found.terms) < 2 and len(matches) < limit
        if len(goal_text.strip().encode()) > 1 and (
            few or (not matches and (found.terms or small))
        ):
            # Partial words are no terms, but users type them. Substring search is slow in a large
            # library, so it is used only in a small one, or for words without other results.
            known = {one.key for one in best}
            more = self._keyword.detect(goal_text, skills)
            lowest = matches[-1].score if matches else 1.0
            top = more[0].score if more else 1.0
            for match in more:
                if match.skill.path not in known and len(matches) < limit:
                    score = round(
                        min(1.0, match.score / (top or 1.0)) * lowest * _MIN_SCORE_SHARE, 3
                    )
                    matches.append(match.replace(score=score, detector="words"))
        return matches

    def look(self, goal_text: str, skills: Sequence[Skill], limit: int | None = None) -> Detection:
        """Return matches, runners-up, fit and notes."""
        began = time.perf_counter()
        limit = limit or self._limit
        found = self.ranking(goal_text, skills, most=_MAX_RANKED_SKILLS)
        best = _templates_last(found, _called_first(found))[:_MAX_RANKED_SKILLS]
        by_key = found.lookup.by_key
        told = {term for term, weight in found.terms.items() if weight >= _MIN_TERM_WEIGHT}
        kept, copies = drop_near_duplicates(
            [by_key[one.key] for one in best], told, limit + _MAX_RUNNERS_UP
        )
        # "Yes" is an answer, even if a skill is named `yes`.
        fit = (
            1.0
            if found.called and found.terms
            else fit_probability(
                self.features(found),
                meaning="about" in found.signals,
                few=len(by_key) < MIN_LIBRARY_SKILLS,
            )
        )
        chosen: list[int] = []
        if best and best[0].key in found.off_subject:
            fit = 0.0  # only off-subject skills were found
        if best and fit >= FIT_THRESHOLD:
            least = best[0].score * _MIN_SCORE_SHARE
            near = [at for at in kept[:limit] if best[at].score >= least]
            near = [at for at in near if best[at].key not in found.off_subject]
            # Long instructions contain words of every request: they alone make no second choice.
            chosen = [at for at in near if at == kept[0] or best[at].parts.keys() - {"body"}]
        rest = [at for at in kept if at not in chosen][:_MAX_RUNNERS_UP]
        made = _Reasons(found, self._heads)
        matches = [self._match(found, made, best[at]) for at in chosen]
        runners_up = [self._match(found, made, best[at]) for at in rest]
        took = (time.perf_counter() - began) * 1e3
        pairs = [(by_key[best[at].key].name, by_key[best[of].key].name) for at, of in copies]
        return Detection(
            matches,
            runners_up,
            round(fit, 3),
            FIT_THRESHOLD,
            self.name,
            took,
            found.notes,
            tuple(pairs),
        )

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> RankExplanation:
        """Return the rank of a skill, its contributions, and the skills ahead of it."""
        found = self.ranking(goal_text, skills, len(skills))
        key, made = skill.path, _Reasons(found, self._heads)
        order = _templates_last(found, _called_first(found))
        stood = next(((at, one) for at, one in enumerate(order, 1) if one.key == key), None)
        first = order[:MAX_RIVALS] if stood is None else order[: min(MAX_RIVALS, stood[0] - 1)]
        ahead = [(self._match(found, made, one), _contributions(one)) for one in first]
        missing = missing_words(
            found.pieces, found.terms, skill, [match.skill for match, _ in ahead]
        )
        if stood is None:
            return RankExplanation(0, len(skills), None, {}, ahead, missing)
        rank, own = stood
        match = self._match(found, made, own)
        return RankExplanation(rank, len(skills), match, _contributions(own), ahead, missing)

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> IndexReport:
        """Build or update the index and wait for it."""
        began = time.perf_counter()
        changed = 0

        def count(done: int, _total: int) -> None:
            nonlocal changed
            changed = done
            if progress is not None:
                progress(done)

        built = self._sync.build(skills, count, rebuild=rebuild)
        model = ""
        if self.semantic is not None:
            model = self.semantic.prepare(skills, progress, rebuild)
        seconds = time.perf_counter() - began
        engine = built.ready.engine if built.ready is not None else ""
        made = self.semantic.made if self.semantic is not None else 0
        folder = self._sync.folder or ""
        return IndexReport(engine, len(skills), changed, seconds, folder, model, made)

    def ranking(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 0, most: int | None = None
    ) -> Ranking:
        """Compute all signals and the combined order.

        Args:
            goal_text: The request.
            skills: The library.
            limit: Candidates per signal; 0 decides by the goal's length.
            most: How many to sort; None sorts all candidates.
        """
        goal = goal_text if isinstance(goal_text, GoalText) else GoalText(goal_text)
        lookup = self._lookups.of(skills)
        terms = goal.terms
        if len(goal) <= MIN_LONG_GOAL_CHARS:
            terms = _with_named_stopwords(terms, goal.pieces, lookup)
        semantic = self.semantic
        if not limit:
            limit = (
                MAX_CANDIDATES if len(terms) <= _MAX_SHORT_GOAL_TERMS else MAX_LONG_GOAL_CANDIDATES
            )
            limit *= 1 if semantic is None else _SEMANTIC_CANDIDATES_RATIO
        library = skills.whole if isinstance(skills, SkillSubset) else skills
        index, waiting, note = self._sync.current(library, self._patience, self._on_wait)
        notes = [note] if note else []
        if index is None or waiting:
            plain = self._keyword.detect(goal, skills)[:limit]
            signals = {"head": Signal({match.skill.path: match.score for match in plain})}
        else:
            signals = _word_signals(index, terms, lookup.by_key, limit)
        weights = WORDS
        if semantic is not None:
            signals = _only(signals, lookup.by_key)
            known = {key for signal in signals.values() for key in signal.scores}
            more, said = semantic.signals(
                goal, skills, known, lookup.by_key, MAX_CANDIDATES * _SEMANTIC_CANDIDATES_RATIO
            )
            signals.update(more)
            notes += said
            weights = MEANING if more else WORDS
        self.notes = tuple(notes)
        called = tuple(key for key in lookup.by_name.get(goal.name_key, ()) if key in lookup.by_key)
        # Skills named exactly come first, at any rank.
        most = None if called else most
        combined = combine(signals, weights)
        ranked = combined.best(most)
        if not all(map(lookup.by_key.__contains__, map(_KEY, ranked))):
            # Another process changed the index after it was counted.
            signals = _only(signals, lookup.by_key)
            combined = combine(signals, weights)
            ranked = combined.best(most)
        off_subject = irrelevant_builtins(goal.pieces, map(_KEY, ranked), lookup.by_key)
        off_subject -= frozenset(called)
        if off_subject:
            few = [one for one in ranked if one.key in off_subject]
            ranked = combine(signals, weights, off_subject).best(most)
            for one in few:
                insort(ranked, one._replace(score=one.score * _OFF_SUBJECT_RATIO), key=_order)
        return Ranking(
            terms, signals, weights, ranked, lookup, called, self.notes, off_subject, goal.pieces
        )

    def features(self, found: Ranking) -> FitFeatures:
        """Return the features of the best skill."""
        ranked = found.ranked
        if not ranked:
            return FitFeatures()
        first = ranked[0]
        skill = found.lookup.by_key[first.key]
        pieces = [piece for text in head_texts(skill).values() for piece in pieces_of(text)]
        own = set(terms_in(pieces))
        whole = sum(found.terms.values()) or 1.0
        cover = sum(weight for term, weight in found.terms.items() if term in own) / whole
        telling = [term for term, weight in found.terms.items() if weight >= _MIN_TERM_WEIGHT]
        shared = own.intersection(telling)
        matched: float = len(shared)
        fifth = ranked[_GAP_INDEX].score if len(ranked) > _GAP_INDEX else 0.0
        gap = first.score - fifth
        meaning = self.semantic is not None and "about" in found.signals
        some = len(telling) > _MAX_DERIVED_WORDS and 2 * len(shared) <= len(telling)
        if some and not meaning and _derived(found.pieces, pieces, shared):
            cover, matched, gap = cover / 2, matched / 2, 0.0
        features = FitFeatures(cover, math.log1p(matched), gap)
        if self.semantic is None or not meaning:
            return features
        alike, clause, named = self.semantic.features(found.signals, first.key)
        return features._replace(alike=alike, clause=clause, named=named)

    def _whole_first(
        self, found: Ranking, sought: QueryTerms, order: list[RankedSkill], limit: int
    ) -> list[RankedSkill]:
        """For a few words, move the skills that contain all of them to the front."""
        by_key = found.lookup.by_key
        skills = [by_key[one.key] for one in order[:_MAX_REORDERED_SKILLS]]
        whole = set(skills_with_all(self._heads, skills, sought, limit))
        if found.called:
            whole |= {
                at
                for at, one in enumerate(order[:_MAX_REORDERED_SKILLS])
                if one.key in found.called
            }
        if not whole:
            return order
        others = [one for at, one in enumerate(order) if at not in whole]
        # A skill with all words scores at least as high as the best one that lacks one.
        least = others[0].score if others else 0.0
        first = [order[at] for at in sorted(whole)]
        return [one._replace(score=max(one.score, least)) for one in first] + others

    def _match(self, found: Ranking, made: _Reasons | None, one: RankedSkill) -> Match:
        skill, score = found.lookup.by_key[one.key], round(one.score, 3)
        if made is None:
            return Match(skill.name, score, "", (), skill, self.name)
        return Match.lazy(skill.name, score, partial(made.of, one), skill, self.name)


class _Reasons:
    def __init__(self, found: Ranking, headers: LowercaseHeaders) -> None:
        self._found = found
        self._headers = headers

    @cached_property
    def sought(self) -> QueryTerms:
        return QueryTerms(self._found.terms)

    def of(self, one: RankedSkill) -> tuple[str, tuple[str, ...]]:
        skill = self._found.lookup.by_key[one.key]
        called = one.key in self._found.called
        return explain(skill, self._headers.of(skill), self.sought, one.parts, called=called)


def _word_signals(
    index: FieldIndex, terms: dict[str, float], by_key: dict[str, Skill], limit: int
) -> dict[str, Signal]:
    count = index.count()
    # An index may contain skills of other agents; all of ours are in it.
    allowed = by_key if count > len(by_key) else None
    signals = index.search_signals(list(terms.items()), OF_WORDS, limit, allowed)
    found = {name: Signal(scores) for name, scores in signals.items()}
    # Filtering costs as much as a search, so it is limited to shared indexes.
    sure = count == len(by_key) or allowed is not None
    return found if sure else _only(found, by_key)


def _derived(goal: Iterable[str], head: Iterable[str], shared: AbstractSet[str]) -> bool:
    """Whether the skill contains a shared word only in a derived form: `testable` for `tests`."""
    said = set(goal)
    derived: dict[str, bool] = {}
    for piece in head:
        if (term := stem(piece)) in shared:
            able = piece not in said and _ABLE.fullmatch(piece) is not None
            derived[term] = able and derived.get(term, True)
    return any(derived.values())


def _with_named_stopwords(
    terms: dict[str, float], pieces: Iterable[str], lookup: SkillLookup
) -> dict[str, float]:
    """Add the stop words of a goal that occur in a few names of a small library."""
    if not terms or len(lookup.by_key) > MAX_SMALL_LIBRARY_SKILLS:
        return terms
    terms = dict(terms)
    for word in pieces:
        if word in STOPWORDS and word not in _NO_NAMES and lookup.named_by(word):
            terms.setdefault(stem(word), _NAME_WORD_WEIGHT)
    return terms


def _only(signals: dict[str, Signal], keys: Container[str]) -> dict[str, Signal]:
    return {
        name: Signal({key: score for key, score in scores.items() if key in keys}, low)
        for name, (scores, low) in signals.items()
    }


def _order(one: RankedSkill) -> tuple[float, str]:
    """Sort key: best score first, then key."""
    return (-one.score, one.key)


def _contributions(one: RankedSkill) -> dict[str, float]:
    return {signal: round(value, 3) for signal, value in one.parts.items() if value > 0}


def _templates_last(found: Ranking, best: list[RankedSkill]) -> list[RankedSkill]:
    """Move skills whose description is still a placeholder of a template behind all others."""
    by_key = found.lookup.by_key
    late = {
        one.key
        for one in best[:_MAX_REORDERED_SKILLS]
        if UNWRITTEN.match(by_key[one.key].description)
    }
    if not late:
        return best
    last = [one for one in best if one.key in late]
    return [one for one in best if one.key not in late] + last


def _called_first(found: Ranking) -> list[RankedSkill]:
    if not found.called:
        return found.ranked
    named = set(found.called)
    first = [one for one in found.ranked if one.key in named]
    seen = {one.key for one in first}
    first += [RankedSkill(key, 1.0) for key in found.called if key not in seen]
    top = [one._replace(score=1.0) for one in first]
    return top + [one for one in found.ranked if one.key not in named]
