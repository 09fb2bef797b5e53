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
from satchel.detect.index.sync import IndexSync, list_keys
from satchel.detect.keyword import LexicalDetector
from satchel.detect.match_reasons import (
    LowercaseHeaders,
    QueryTerms,
    explain,
    missing_words,
    skills_with_all,
)
from satchel.detect.ranking import (
    EMBEDDING_SIGNAL_WEIGHTS,
    FIT_THRESHOLD,
    MIN_LIBRARY_SKILLS,
    WORD_SIGNAL_FIELDS,
    WORD_SIGNAL_WEIGHTS,
    FitFeatures,
    RankedSkill,
    Signal,
    combine,
    drop_near_duplicates,
    find_irrelevant_builtins,
    fit_probability,
)
from satchel.detect.skill_texts import header_texts, make_header_row, make_row
from satchel.detect.stemmer import stem
from satchel.detect.stop_words import LINKING_WORDS, STOPWORDS
from satchel.detect.tokenizer import (
    MIN_LONG_GOAL_CHARS,
    SYNONYMS,
    GoalText,
    add_synonyms,
    query_key,
    segmenter_name,
    split_pieces,
    terms_of_pieces,
)
from satchel.skill.metadata import UNWRITTEN

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from satchel.detect.index import FieldIndex, IndexRow
    from satchel.detect.semantic import Semantic
    from satchel.skill import Skill

_MAX_LOOKUPS = 4
MAX_SMALL_LIBRARY_SKILLS = 2_000
"""Larger libraries use every word in some name, so stop words in names mean nothing there."""
_MIN_NAMES_PER_WORD = 2
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
_DERIVED_ADJECTIVE = re.compile(r"[a-z]{4,}[ai]b(?:les?|ly|ility)")
_OFF_SUBJECT_RATIO = 0.3
"""Factor for built-in skills that the goal is not about."""
_NAME_WORD_WEIGHT = 0.3
"""Weight of a stop word that distinguishes a few names."""
_GAP_COMPARISON_INDEX = 4
_MAX_SUBSTRING_SKILLS = 5_000
_MAX_SEARCH_TERMS = 6
"""Goals with at most this many terms are treated as search words."""
_key_of: Callable[[RankedSkill], str] = itemgetter(0)
COMMON_NAME_WORDS = LINKING_WORDS | {"skill", "skills"}
"""Words in names that do not identify a skill."""


class SkillLookup:
    """Finds skills by key and by name."""

    def __init__(self, skills: Sequence[Skill], library: SkillLookup | None = None) -> None:
        """Index skills by key.

        Args:
            skills: The skills.
            library: For a subset, the lookup of the whole library.
        """
        self.skills = skills
        self._library = library
        self._keys_by_name: dict[str, list[str]] | None = None
        self._is_name_word: dict[str, bool] = {}
        """Stop word -> whether it distinguishes a few names."""
        if library is None:
            self.by_key: dict[str, Skill] = dict(zip(list_keys(skills), skills, strict=True))
        else:
            ids = set(map(id, skills))
            self.by_key = {key: skill for key, skill in library.by_key.items() if id(skill) in ids}

    @property
    def by_name(self) -> dict[str, list[str]]:
        """Keys by normalised name; those of the whole library for a subset."""
        if self._library is not None:
            return self._library.by_name
        if self._keys_by_name is None:
            keys_by_name: dict[str, list[str]] = {}
            for key, skill in self.by_key.items():
                keys_by_name.setdefault(query_key(skill.name), []).append(key)
            self._keys_by_name = keys_by_name
        return self._keys_by_name

    def is_name_word(self, word: str) -> bool:
        """Whether a stop word distinguishes a few names of a small library: `go` in `go-review`."""
        if len(self.by_key) > MAX_SMALL_LIBRARY_SKILLS or not word.isascii():
            return False
        if word not in self._is_name_word:
            names = (name for name, keys in self.by_name.items() if any(map(self.by_key.get, keys)))
            # Each name is surrounded by spaces.
            count = "".join(names).count(f" {word} ")
            self._is_name_word[word] = 0 < count <= max(_MIN_NAMES_PER_WORD, len(self.by_key) // 20)
        return self._is_name_word[word]


class SkillLookups:
    """Caches the lookups of recent skill sequences."""

    def __init__(self) -> None:
        self._recent: list[SkillLookup] = []

    def lookup_for(self, skills: Sequence[Skill]) -> SkillLookup:
        """Return the lookup of a sequence; cached for tuples only, because a list may change."""
        for lookup in self._recent:
            if lookup.skills is skills:
                return lookup
        if not isinstance(skills, tuple):
            return SkillLookup(skills)
        parent = self.lookup_for(skills.library) if isinstance(skills, SkillSubset) else None
        lookup = SkillLookup(skills, parent)
        # Subsets must not evict the library that they are made of.
        needed = [lookup] if parent is None else [lookup, parent]
        others = [cached for cached in self._recent if cached is not parent]
        self._recent = [*needed, *others][:_MAX_LOOKUPS]
        return lookup


class Ranking(NamedTuple):
    """Signals and scores of one goal in one library."""

    terms: dict[str, float]
    signals: dict[str, Signal]
    weights: dict[str, float]
    ranked: list[RankedSkill]
    lookup: SkillLookup
    exact_name_keys: tuple[str, ...]
    """Keys of skills whose name equals the goal."""
    notes: tuple[str, ...]
    off_subject: AbstractSet[str] = frozenset()
    """Keys of built-in skills that the goal is not about; they never fit."""
    pieces: Sequence[str] = ()


def _segmenter_folder(folder: str) -> str:
    """Return the index folder of this Chinese word segmenter: each produces other terms."""
    return os.path.join(folder, segmenter_name() or "plain")


class HybridDetector(BaseDetector):
    """The default detector: ranks skills by words and by meaning, and decides whether one fits.

    Meaning needs an embedding model (`semantic`).

    Example:
        from satchel.detect import HybridDetector

        detector = HybridDetector(limit=1)
        matches = detector.detect("Can you fill in this PDF form?", satchel.list_skills())
        assert [match.name for match in matches] == ["pdf-forms"]
    """

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
        self._sync = IndexSync(
            partial(_segmenter_folder, folder) if folder else None, rows, make_header_row
        )
        self.semantic = semantic
        self._limit = limit
        self._patience = patience
        self._on_wait = on_wait
        self._lookups = SkillLookups()
        self._headers = LowercaseHeaders()

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Return the best `limit` skills, whether they fit or not."""
        depth = max(limit, _MAX_REORDERED_SKILLS)
        candidates = 0 if limit <= MAX_CANDIDATES else 2 * max(limit, MAX_LONG_GOAL_CANDIDATES)
        goal = goal_text if isinstance(goal_text, GoalText) else GoalText(goal_text)
        ranking = self.ranking(goal, skills, candidates, depth)
        best = _put_exact_names_first(ranking)
        explainer = _Explainer(ranking, self._headers)
        if 1 < len(ranking.terms) <= _MAX_SEARCH_TERMS:
            best = self._put_complete_first(ranking, explainer.query_terms, best, limit)
        best = _put_templates_last(ranking, best)[:limit]
        matches = [self._make_match(ranking, explainer if reasons else None, hit) for hit in best]
        # Partial words are no terms, but users type them. Substring search is slow in a large
        # library, so it is used only in a small one, or for words without other results.
        is_small = len(skills) <= _MAX_SUBSTRING_SKILLS
        may_be_partial = is_small and len(ranking.terms) < 2 and len(matches) < limit
        may_be_partial |= not matches and bool(ranking.terms or is_small)
        if may_be_partial and len(goal_text.strip().encode()) > 1:
            matches += self._find_substrings(goal_text, skills, matches)[: limit - len(matches)]
        return matches

    def _find_substrings(
        self, goal_text: str, skills: Sequence[Skill], ranked: Sequence[Match]
    ) -> list[Match]:
        """Return unranked skills with parts of words, with scores below the ranked ones."""
        ranked_paths = {match.skill.path for match in ranked}
        matches = self._keyword.detect(goal_text, skills)
        max_score = (matches[0].score if matches else 1.0) or 1.0
        min_ranked_score = ranked[-1].score if ranked else 1.0
        return [
            match.replace(
                score=round(
                    min(1.0, match.score / max_score) * min_ranked_score * _MIN_SCORE_SHARE, 3
                ),
                detector="words",
            )
            for match in matches
            if match.skill.path not in ranked_paths
        ]

    def look(self, goal_text: str, skills: Sequence[Skill], limit: int | None = None) -> Detection:
        """Return matches, runners-up, fit and notes."""
        started_at = time.perf_counter()
        limit = limit or self._limit
        ranking = self.ranking(goal_text, skills, depth=_MAX_RANKED_SKILLS)
        best = _put_templates_last(ranking, _put_exact_names_first(ranking))[:_MAX_RANKED_SKILLS]
        by_key = ranking.lookup.by_key
        distinct, duplicates = drop_near_duplicates(
            [by_key[hit.key] for hit in best],
            set(_significant_terms(ranking.terms)),
            limit + _MAX_RUNNERS_UP,
        )
        fit = self._fit_probability(ranking, best)
        matched = _select_fitting(ranking, best, distinct[:limit]) if fit >= FIT_THRESHOLD else []
        runner_up_indexes = [index for index in distinct if index not in matched][:_MAX_RUNNERS_UP]
        explainer = _Explainer(ranking, self._headers)
        matches = [self._make_match(ranking, explainer, best[index]) for index in matched]
        runners_up = [
            self._make_match(ranking, explainer, best[index]) for index in runner_up_indexes
        ]
        took_ms = (time.perf_counter() - started_at) * 1e3
        names = [by_key[hit.key].name for hit in best]
        return Detection(
            matches=matches,
            runners_up=runners_up,
            fit=round(fit, 3),
            threshold=FIT_THRESHOLD,
            detector=self.name,
            took_ms=took_ms,
            notes=ranking.notes,
            collapsed=tuple((names[copy], names[original]) for copy, original in duplicates),
        )

    def _fit_probability(self, ranking: Ranking, best: Sequence[RankedSkill]) -> float:
        """Return the probability that a skill fits."""
        if best and best[0].key in ranking.off_subject:
            return 0.0  # only off-subject skills were found
        # "yes" is an answer, even if a skill is named `yes`: it has no terms.
        if ranking.exact_name_keys and ranking.terms:
            return 1.0
        return fit_probability(
            self.features(ranking),
            has_vectors="about" in ranking.signals,
            is_small_library=len(ranking.lookup.by_key) < MIN_LIBRARY_SKILLS,
        )

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> RankExplanation:
        """Return the rank of a skill, its contributions, and the skills ahead of it."""
        ranking = self.ranking(goal_text, skills, len(skills))
        key, explainer = skill.path, _Explainer(ranking, self._headers)
        order = _put_templates_last(ranking, _put_exact_names_first(ranking))
        index = next((index for index, hit in enumerate(order) if hit.key == key), None)
        rivals = order[:index][:MAX_RIVALS]
        ahead = [(self._make_match(ranking, explainer, hit), _contributions(hit)) for hit in rivals]
        missing = missing_words(
            ranking.pieces, ranking.terms, skill, [match.skill for match, _ in ahead]
        )
        if index is None:
            return RankExplanation(0, len(skills), None, {}, ahead, missing)
        match = self._make_match(ranking, explainer, order[index])
        contributions = _contributions(order[index])
        return RankExplanation(index + 1, len(skills), match, contributions, ahead, missing)

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> IndexReport:
        """Build or update the index and wait for it."""
        started_at = time.perf_counter()
        changed = 0

        def report_progress(indexed: int, _total: int) -> None:
            nonlocal changed
            changed = indexed
            if progress is not None:
                progress(indexed)

        built = self._sync.build(skills, report_progress, rebuild=rebuild)
        model = ""
        if self.semantic is not None:
            model = self.semantic.prepare(skills, progress, rebuild)
        seconds = time.perf_counter() - started_at
        engine = built.field_index.engine if built.field_index is not None else ""
        embedded = self.semantic.made if self.semantic is not None else 0
        folder = self._sync.folder or ""
        return IndexReport(
            engine=engine,
            skills=len(skills),
            changed=changed,
            seconds=seconds,
            folder=folder,
            vectors=model,
            embedded=embedded,
        )

    def ranking(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 0, depth: int | None = None
    ) -> Ranking:
        """Compute all signals and the combined order.

        Args:
            goal_text: The request.
            skills: The library.
            limit: Candidates per signal; 0 decides by the goal's length.
            depth: How many to sort; None sorts all candidates.
        """
        goal = goal_text if isinstance(goal_text, GoalText) else GoalText(goal_text)
        lookup = self._lookups.lookup_for(skills)
        terms = goal.terms
        if len(goal) <= MIN_LONG_GOAL_CHARS:
            terms = _add_name_words(terms, goal.pieces, lookup)
        semantic = self.semantic
        limit = limit or _candidate_count(terms, has_model=semantic is not None)
        index, notes = self._ready_index(skills)
        if index is None:
            matches = self._keyword.detect(goal, skills)[:limit]
            signals = {"head": Signal({match.skill.path: match.score for match in matches})}
        else:
            signals = _search_words(index, add_synonyms(terms), lookup.by_key, limit)
        weights = WORD_SIGNAL_WEIGHTS
        if semantic is not None:
            signals = _restrict(signals, lookup.by_key)
            keys = {key for signal in signals.values() for key in signal.scores}
            semantic_signals, model_notes = semantic.signals(
                goal, skills, keys, lookup.by_key, MAX_CANDIDATES * _SEMANTIC_CANDIDATES_RATIO
            )
            signals.update(semantic_signals)
            notes += model_notes
            weights = EMBEDDING_SIGNAL_WEIGHTS if semantic_signals else WORD_SIGNAL_WEIGHTS
        self.notes = tuple(notes)
        named_keys = lookup.by_name.get(goal.name_key, ())
        exact_name_keys = tuple(key for key in named_keys if key in lookup.by_key)
        # Skills named exactly come first, at any rank.
        depth = None if exact_name_keys else depth
        combined = combine(signals, weights)
        ranked = combined.best(depth)
        if not all(map(lookup.by_key.__contains__, map(_key_of, ranked))):
            # Another process changed the index after it was counted.
            signals = _restrict(signals, lookup.by_key)
            combined = combine(signals, weights)
            ranked = combined.best(depth)
        off_subject = find_irrelevant_builtins(goal.pieces, map(_key_of, ranked), lookup.by_key)
        off_subject -= frozenset(exact_name_keys)
        if off_subject:
            on_subject = combine(signals, weights, off_subject).best(depth)
            ranked = _insert_off_subject(on_subject, ranked, off_subject)
        return Ranking(
            terms=terms,
            signals=signals,
            weights=weights,
            ranked=ranked,
            lookup=lookup,
            exact_name_keys=exact_name_keys,
            notes=self.notes,
            off_subject=off_subject,
            pieces=goal.pieces,
        )

    def _ready_index(self, skills: Sequence[Skill]) -> tuple[FieldIndex | None, list[str]]:
        """Return the index of a library, and notes; None while it is built."""
        library = skills.library if isinstance(skills, SkillSubset) else skills
        state = self._sync.current(library, self._patience, self._on_wait)
        index = None if state.unindexed else state.field_index
        return index, [state.note] if state.note else []

    def features(self, ranking: Ranking) -> FitFeatures:
        """Return the features of the best skill."""
        ranked = ranking.ranked
        if not ranked:
            return FitFeatures()
        first = ranked[0]
        skill = ranking.lookup.by_key[first.key]
        header_words, present = _header_terms(skill, ranking.terms)
        total_weight = sum(ranking.terms.values()) or 1.0
        present_weight = sum(ranking.terms[term] for term in ranking.terms if term in present)
        coverage = present_weight / total_weight
        significant = _significant_terms(ranking.terms)
        shared = present.intersection(significant)
        matched_count: float = len(shared)
        fifth_score = (
            ranked[_GAP_COMPARISON_INDEX].score if len(ranked) > _GAP_COMPARISON_INDEX else 0.0
        )
        gap = first.score - fifth_score
        has_meaning = self.semantic is not None and "about" in ranking.signals
        is_partial = len(significant) > _MAX_DERIVED_WORDS and 2 * len(shared) <= len(significant)
        if (
            is_partial
            and not has_meaning
            and _has_derived_word(ranking.pieces, header_words, shared)
        ):
            coverage, matched_count, gap = coverage / 2, matched_count / 2, 0.0
        features = FitFeatures(coverage, math.log1p(matched_count), gap)
        if self.semantic is None or not has_meaning:
            return features
        goal_cosine, clause_cosine = self.semantic.features(ranking.signals, first.key)
        return features._replace(goal_cosine=goal_cosine, best_clause_cosine=clause_cosine)

    def _put_complete_first(
        self, ranking: Ranking, query_terms: QueryTerms, order: list[RankedSkill], limit: int
    ) -> list[RankedSkill]:
        """For a few words, move the skills that contain all of them to the front."""
        by_key = ranking.lookup.by_key
        skills = [by_key[hit.key] for hit in order[:_MAX_REORDERED_SKILLS]]
        positions = set(skills_with_all(self._headers, skills, query_terms, limit))
        if ranking.exact_name_keys:
            positions |= {
                index
                for index, hit in enumerate(order[:_MAX_REORDERED_SKILLS])
                if hit.key in ranking.exact_name_keys
            }
        if not positions:
            return order
        others = [hit for index, hit in enumerate(order) if index not in positions]
        # A skill with all words scores at least as high as the best one that lacks one.
        min_score = others[0].score if others else 0.0
        complete = [order[index] for index in sorted(positions)]
        return [hit._replace(score=max(hit.score, min_score)) for hit in complete] + others

    def _make_match(
        self, ranking: Ranking, explainer: _Explainer | None, hit: RankedSkill
    ) -> Match:
        skill, score = ranking.lookup.by_key[hit.key], round(hit.score, 3)
        if explainer is None:
            return Match(skill.name, score, "", (), skill, self.name)
        return Match.lazy(skill.name, score, partial(explainer.explain, hit), skill, self.name)


class _Explainer:
    """Makes the reasons of the matches of one ranking."""

    def __init__(self, ranking: Ranking, headers: LowercaseHeaders) -> None:
        self._ranking = ranking
        self._headers = headers

    @cached_property
    def query_terms(self) -> QueryTerms:
        return QueryTerms(self._ranking.terms)

    def explain(self, hit: RankedSkill) -> tuple[str, tuple[str, ...]]:
        skill = self._ranking.lookup.by_key[hit.key]
        is_called = hit.key in self._ranking.exact_name_keys
        return explain(
            skill, self._headers.texts_of(skill), self.query_terms, hit.parts, is_called=is_called
        )


def _header_terms(skill: Skill, terms: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the words of a header, and its terms with those that have a synonym in it."""
    words = [piece for text in header_texts(skill).values() for piece in split_pieces(text)]
    present = set(terms_of_pieces(words))
    present |= {term for term in terms if not present.isdisjoint(SYNONYMS.get(term, ()))}
    return words, present


def _candidate_count(terms: dict[str, float], *, has_model: bool) -> int:
    """Return the number of candidates per signal."""
    is_short = len(terms) <= _MAX_SHORT_GOAL_TERMS
    count = MAX_CANDIDATES if is_short else MAX_LONG_GOAL_CANDIDATES
    return count * _SEMANTIC_CANDIDATES_RATIO if has_model else count


def _significant_terms(terms: dict[str, float]) -> list[str]:
    return [term for term, weight in terms.items() if weight >= _MIN_TERM_WEIGHT]


def _select_fitting(
    ranking: Ranking, best: Sequence[RankedSkill], distinct: Sequence[int]
) -> list[int]:
    """Return the positions of the skills that fit, where the first one does."""
    if not best:
        return []
    min_score = best[0].score * _MIN_SCORE_SHARE
    fitting = [
        index
        for index in distinct
        if best[index].score >= min_score and best[index].key not in ranking.off_subject
    ]
    # Long instructions contain words of every request: they alone make no second choice.
    return [
        index for index in fitting if index == distinct[0] or best[index].parts.keys() - {"body"}
    ]


def _search_words(
    index: FieldIndex, terms: dict[str, float], by_key: dict[str, Skill], limit: int
) -> dict[str, Signal]:
    count = index.count()
    # An index may contain skills of other agents; all of ours are in it.
    allowed = by_key if count > len(by_key) else None
    signals = index.search_signals(list(terms.items()), WORD_SIGNAL_FIELDS, limit, allowed)
    word_signals = {name: Signal(scores) for name, scores in signals.items()}
    # Filtering costs as much as a search, so it is limited to shared indexes.
    is_restricted = count == len(by_key) or allowed is not None
    return word_signals if is_restricted else _restrict(word_signals, by_key)


def _has_derived_word(goal: Iterable[str], header: Iterable[str], shared: AbstractSet[str]) -> bool:
    """Whether the skill contains a shared word only in a derived form: `testable` for `tests`."""
    goal_words = set(goal)
    is_derived: dict[str, bool] = {}
    for piece in header:
        if (term := stem(piece)) in shared:
            is_adjective = _DERIVED_ADJECTIVE.fullmatch(piece) is not None
            is_new = is_adjective and piece not in goal_words
            is_derived[term] = is_new and is_derived.get(term, True)
    return any(is_derived.values())


def _add_name_words(
    terms: dict[str, float], pieces: Iterable[str], lookup: SkillLookup
) -> dict[str, float]:
    """Add the stop words of a goal that occur in a few names of a small library."""
    if not terms or len(lookup.by_key) > MAX_SMALL_LIBRARY_SKILLS:
        return terms
    terms = dict(terms)
    for word in pieces:
        if word in STOPWORDS and word not in COMMON_NAME_WORDS and lookup.is_name_word(word):
            terms.setdefault(stem(word), _NAME_WORD_WEIGHT)
    return terms


def _restrict(signals: dict[str, Signal], keys: Container[str]) -> dict[str, Signal]:
    """Return the signals with the scores of these keys only."""
    return {
        name: Signal({key: score for key, score in scores.items() if key in keys}, low)
        for name, (scores, low) in signals.items()
    }


def _insert_off_subject(
    order: list[RankedSkill], ranked: Iterable[RankedSkill], off_subject: Container[str]
) -> list[RankedSkill]:
    """Insert the off-subject ones of the ranked skills into an order, with lower scores."""
    for hit in ranked:
        if hit.key in off_subject:
            insort(order, hit._replace(score=hit.score * _OFF_SUBJECT_RATIO), key=_ranking_order)
    return order


def _ranking_order(hit: RankedSkill) -> tuple[float, str]:
    """Return the sort key: best score first, then key."""
    return (-hit.score, hit.key)


def _contributions(hit: RankedSkill) -> dict[str, float]:
    return {signal: round(value, 3) for signal, value in hit.parts.items() if value > 0}


def _put_templates_last(ranking: Ranking, best: list[RankedSkill]) -> list[RankedSkill]:
    """Move skills whose description is still a placeholder of a template behind all others."""
    by_key = ranking.lookup.by_key
    template_keys = {
        hit.key
        for hit in best[:_MAX_REORDERED_SKILLS]
        if UNWRITTEN.match(by_key[hit.key].description)
    }
    if not template_keys:
        return best
    templates = [hit for hit in best if hit.key in template_keys]
    return [hit for hit in best if hit.key not in template_keys] + templates


def _put_exact_names_first(ranking: Ranking) -> list[RankedSkill]:
    """Return the ranked skills after those whose name equals the goal."""
    if not ranking.exact_name_keys:
        return ranking.ranked
    called_keys = set(ranking.exact_name_keys)
    called = [hit._replace(score=1.0) for hit in ranking.ranked if hit.key in called_keys]
    ranked_keys = {hit.key for hit in called}
    called += [RankedSkill(key, 1.0) for key in ranking.exact_name_keys if key not in ranked_keys]
    return called + [hit for hit in ranking.ranked if hit.key not in called_keys]
