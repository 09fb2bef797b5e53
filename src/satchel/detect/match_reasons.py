"""Reasons for matches, and the request's words that a skill lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.skill_texts import header_texts, read_texts
from satchel.detect.stemmer import stem
from satchel.detect.tokenizer import (
    SIGNED_NAMES,
    SYNONYMS,
    add_synonyms,
    display_term,
    extract_spelt_terms,
    extract_terms,
    find_spellings,
    is_dense,
    spell_signs,
)
from satchel.errors import SatchelError
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.skill import Skill, SkillHeader

_MAX_WORDS_SHOWN = 8
_MIN_TERM_WEIGHT = 0.5
"""Terms of at least this weight are significant."""
_MAX_CACHED_HEADERS = 4_000
"""About two megabytes."""
_SEMANTIC_SIGNALS = ("about", "name", "clauses")
"""Semantic signals."""
_SIGNED_NAME_SPELLINGS = frozenset(SIGNED_NAMES.values())
_FIELD_LABELS = {"when": "when_to_use"}
REASON_TEMPLATES = {
    "name": "name has {words}",
    "description": "description has {words}",
    "when": "when_to_use has {words}",
    "triggers": "triggers has {words}",
}
"""Field -> reason template."""
_RESTORED_STEM_CHARS = 4
"""Stems of this length may have a restored `e`."""
_match_ending = re.compile(r"[^\W_]*").match


class _TermPattern(NamedTuple):
    term: str
    start: str
    """The prefix of matching words; the whole term in a dense script."""
    is_dense: bool


class QueryTerms:
    """The goal's terms, prepared for searching many texts."""

    def __init__(self, terms: dict[str, float]) -> None:
        self.terms = add_synonyms(terms)
        self.patterns = [_make_pattern(term) for term in self.terms]
        # Names with signs (`c#`) are rare; other goals skip the respelling.
        self.has_signed_names = not _SIGNED_NAME_SPELLINGS.isdisjoint(terms)
        significant = [
            each for each in self.patterns if terms.get(each.term, 0.0) >= _MIN_TERM_WEIGHT
        ]
        # Long words are rare: they exclude a skill sooner.
        significant.sort(key=lambda pattern: -len(pattern.start))
        self.significant_patterns = [
            (pattern, *map(_make_pattern, SYNONYMS.get(pattern.term, ())))
            for pattern in significant
        ]
        """Each with the patterns of its synonyms."""


def _make_pattern(term: str) -> _TermPattern:
    if not term.isascii() and is_dense(term):
        return _TermPattern(term, display_term(term), is_dense=True)
    # The stemmer replaces `y` by `i` and restores `e`: `coding` -> `code`.
    is_whole = term[-1] != "i" and (term[-1] != "e" or len(term) != _RESTORED_STEM_CHARS)
    return _TermPattern(term, term if is_whole else term[:-1], is_dense=False)


class LowercaseHeaders:
    """Caches lowercase names and descriptions of recent skills.

    Keyed by the header object, which is replaced when the skill's file changes.
    """

    def __init__(self) -> None:
        self._recent: dict[int, tuple[SkillHeader, list[tuple[str, str]]]] = {}

    def texts_of(self, skill: Skill) -> list[tuple[str, str]]:
        """Return each field with its text."""
        head = skill.head
        cached = self._recent.get(id(head))
        if cached is not None:
            return cached[1]
        if len(self._recent) >= _MAX_CACHED_HEADERS:
            self._recent = {}
        texts = [(field, text.lower()) for field, text in header_texts(skill).items()]
        self._recent[id(head)] = (head, texts)
        return texts


def explain(
    skill: Skill,
    texts: Iterable[tuple[str, str]],
    query_terms: QueryTerms,
    parts: Mapping[str, float],
    *,
    is_called: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """Return the reason in one line, and the matching words by field.

    Args:
        skill: The matched skill.
        texts: Its lowercase fields.
        query_terms: The goal's terms.
        parts: The contribution of each signal.
        is_called: Whether the goal equals the skill's name.
    """
    reasons: list[str] = [Message("called by its name")] if is_called else []
    evidence: list[str] = []
    explained: set[str] = set()
    if query_terms.has_signed_names:
        texts = [(field, spell_signs(lowered)) for field, lowered in texts]
    for field_text in texts:
        field = field_text[0]
        if words := _find_field_words(skill, field_text, query_terms, explained):
            label = _FIELD_LABELS.get(field, field)
            reasons.append(Message(REASON_TEMPLATES[field], words=_quote_words(words)))
            evidence += [f"{label}: {word}" for word in words]
    if parts.get("body", 0.0) > 0:
        # The file is read only if the header does not explain the match.
        words = [] if reasons else _find_body_words(skill, query_terms, explained)
        reason = (
            Message("instructions have {words}", words=_quote_words(words))
            if words
            else Message("instructions match too")
        )
        reasons.append(reason)
        evidence += [f"body: {word}" for word in words] or [f"body: {parts['body']:.2f}"]
    meaning = sum([parts.get(signal, 0.0) for signal in _SEMANTIC_SIGNALS])
    if meaning > 0:
        reasons.append(Message("its meaning is near"))
        evidence.append(f"meaning: {meaning:.2f}")
    return join_messages(reasons) or Message("a part of a word matches"), tuple(evidence)


def _find_field_words(
    skill: Skill, field_text: tuple[str, str], query_terms: QueryTerms, explained: set[str]
) -> list[str]:
    """Return matching words of a lowercase field, as the skill writes them."""
    field, lowered = field_text
    words = _find_words(lowered, query_terms, explained)
    if not words and not lowered.isascii():
        words = _find_spelt_words(header_texts(skill)[field], query_terms, explained)
    if words and query_terms.has_signed_names:
        text = header_texts(skill)[field]
        words = [_restore_signs(word, text) for word in words]
    return words


def _find_words(lowered: str, query_terms: QueryTerms, explained: set[str]) -> list[str]:
    pairs = [
        (pattern.term, word)
        for pattern in query_terms.patterns
        if pattern.start in lowered
        and pattern.term not in explained
        and (word := _find_spelling(pattern, lowered))
    ]
    return _unique_words(pairs, query_terms, explained) if pairs else []


def _find_spelt_words(text: str, query_terms: QueryTerms, explained: set[str]) -> list[str]:
    """Return matching words of a text whose spelling differs from its terms: wide letters."""
    terms = query_terms.terms
    pairs = [
        pair for pair in extract_spelt_terms(text) if pair[0] in terms and pair[0] not in explained
    ]
    return _unique_words(pairs, query_terms, explained)


def _find_body_words(skill: Skill, query_terms: QueryTerms, explained: set[str]) -> list[str]:
    """Return matching words of the instructions, which are read from disk."""
    try:
        text = read_texts(skill).get("body", "")
    except (SatchelError, OSError):
        return []
    words = _find_words(spell_signs(text.lower()), query_terms, explained)
    if not words and not text.isascii():
        words = _find_spelt_words(text, query_terms, explained)
    return [_restore_signs(word, text) for word in words]


def _unique_words(
    pairs: list[tuple[str, str]], query_terms: QueryTerms, explained: set[str]
) -> list[str]:
    """Return unique words of (term, word) pairs, significant ones only if there are any."""
    terms = query_terms.terms
    significant = [pair for pair in pairs if terms[pair[0]] >= _MIN_TERM_WEIGHT]
    explained.update(term for term, _ in significant)
    return list(dict.fromkeys([word for _, word in significant or pairs]))


def _find_spelling(pattern: _TermPattern, text: str) -> str:
    """Return the spelling of a term in a lowercase text; empty if absent.

    Searches by prefix: tokenising ten descriptions takes longer than ranking ten thousand.
    """
    term, start, is_dense = pattern
    position = text.find(start)
    if is_dense:
        return start if position >= 0 else ""
    while position >= 0:
        if position == 0 or not text[position - 1].isalnum():
            ending = _match_ending(text, position + len(start))
            word = start + ending[0] if ending else start
            if stem(word) == term:
                return word
        position = text.find(start, position + 1)
    return ""


def _restore_signs(word: str, text: str) -> str:
    """Return a word as the text spells it: `csharp`, or `c#`."""
    if word not in _SIGNED_NAME_SPELLINGS or word in text.lower():
        return word
    return next(signed for signed, letters in SIGNED_NAMES.items() if letters == word)


def _quote_words(words: Sequence[str]) -> list[str]:
    return [f"`{word}`" for word in words[:_MAX_WORDS_SHOWN]]


def _has_all(texts: Sequence[tuple[str, str]], patterns: Sequence[Sequence[_TermPattern]]) -> bool:
    """Whether lowercase texts contain a word for each pattern, or for one of its synonyms."""
    # Most skills lack one term: parts of words are searched first.
    for alternatives in patterns:
        if not any(each.start in lowered for each in alternatives for _, lowered in texts):
            return False
    return all(
        any(_find_spelling(each, lowered) for each in alternatives for _, lowered in texts)
        for alternatives in patterns
    )


def skills_with_all(
    headers: LowercaseHeaders, skills: Sequence[Skill], query_terms: QueryTerms, limit: int
) -> list[int]:
    """Return the first `limit` skills whose header contains every significant term."""
    positions: list[int] = []
    patterns = query_terms.significant_patterns
    for position, skill in enumerate(skills):
        texts = headers.texts_of(skill)
        if query_terms.has_signed_names:
            texts = [(field, spell_signs(lowered)) for field, lowered in texts]
        if _has_all(texts, patterns):
            positions.append(position)
            if len(positions) >= limit:
                break
    return positions


def missing_words(
    pieces: Iterable[str], terms: Mapping[str, float], skill: Skill, rivals: Sequence[Skill]
) -> tuple[str, ...]:
    """Return words of the goal that the skill lacks, those of its rivals first."""
    try:
        texts = read_texts(skill)
    except (SatchelError, OSError):
        texts = header_texts(skill)
    skill_terms = {term for text in texts.values() for term in extract_terms(text)}
    missing_terms = [
        term
        for term, weight in terms.items()
        if weight >= _MIN_TERM_WEIGHT and term not in skill_terms
    ]
    rival_terms = [
        {term for text in header_texts(rival).values() for term in extract_terms(text)}
        for rival in rivals
    ]
    spellings = find_spellings(pieces, missing_terms)
    order = sorted(
        missing_terms, key=lambda term: -sum(term in own_terms for own_terms in rival_terms)
    )
    return tuple(dict.fromkeys(spellings[term] for term in order))
