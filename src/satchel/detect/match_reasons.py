"""Reasons for matches, and the request's words that a skill lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.tokenizer import (
    SIGNED,
    head_texts,
    is_dense,
    shown,
    spell_signs,
    spelt_terms,
    stem,
    terms_of,
    texts_of,
    words_shown,
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
_MEANING = ("about", "name", "clauses")
"""Semantic signals."""
_LETTERS = frozenset(SIGNED.values())
_LABELS = {"when": "when_to_use"}
HAS = {
    "name": "name has {words}",
    "description": "description has {words}",
    "when": "when_to_use has {words}",
    "triggers": "triggers has {words}",
}
"""Field -> reason template."""
_RESTORED_STEM_CHARS = 4
"""Stems of this length may have a restored `e`."""
_REST = re.compile(r"[^\W_]*").match


class _TermPattern(NamedTuple):
    term: str
    start: str
    """The prefix of matching words; the whole term in a dense script."""
    dense: bool


class QueryTerms:
    """The goal's terms, prepared for searching many texts."""

    def __init__(self, terms: Mapping[str, float]) -> None:
        self.terms = terms
        self.parts = [_part(term) for term in terms]
        # Names with signs (`c#`) are rare; other goals skip the respelling.
        self.signed = not _LETTERS.isdisjoint(terms)
        telling = [part for part in self.parts if terms[part.term] >= _MIN_TERM_WEIGHT]
        # Long words are rare: they exclude a skill sooner.
        self.telling = sorted(telling, key=lambda part: -len(part.start))


def _part(term: str) -> _TermPattern:
    if not term.isascii() and is_dense(term):
        return _TermPattern(term, shown(term), dense=True)
    # The stemmer replaces `y` by `i` and restores `e`: `coding` -> `code`.
    is_whole = term[-1] != "i" and (term[-1] != "e" or len(term) != _RESTORED_STEM_CHARS)
    return _TermPattern(term, term if is_whole else term[:-1], dense=False)


class LowercaseHeaders:
    """Caches lowercase names and descriptions of recent skills.

    Keyed by the header object, which is replaced when the skill's file changes.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[SkillHeader, list[tuple[str, str]]]] = {}

    def of(self, skill: Skill) -> list[tuple[str, str]]:
        """Return each field with its text."""
        head = skill.head
        kept = self._kept.get(id(head))
        if kept is not None:
            return kept[1]
        if len(self._kept) >= _MAX_CACHED_HEADERS:
            self._kept = {}
        texts = [(field, text.lower()) for field, text in head_texts(skill).items()]
        self._kept[id(head)] = (head, texts)
        return texts


def explain(
    skill: Skill,
    texts: Iterable[tuple[str, str]],
    sought: QueryTerms,
    parts: Mapping[str, float],
    *,
    called: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """Return the reason in one line, and the matching words by field.

    Args:
        skill: The matched skill.
        texts: Its lowercase fields.
        sought: The goal's terms.
        parts: The contribution of each signal.
        called: Whether the goal equals the skill's name.
    """
    reasons: list[str] = [Message("called by its name")] if called else []
    evidence: list[str] = []
    seen: set[str] = set()
    if sought.signed:
        texts = [(field, spell_signs(low)) for field, low in texts]
    for field, low in texts:
        words = _matching_words(low, sought, seen)
        if not words and not low.isascii():
            words = _cut_words(head_texts(skill)[field], sought, seen)
        if words:
            if sought.signed:
                text = head_texts(skill)[field]
                words = [_as_written(word, text) for word in words]
            label = _LABELS.get(field, field)
            reasons.append(Message(HAS[field], words=_listed(words)))
            evidence += [f"{label}: {word}" for word in words]
    if parts.get("body", 0.0) > 0:
        # The file is read only if the header does not explain the match.
        words = [] if reasons else _body_words(skill, sought, seen)
        told = (
            Message("instructions have {words}", words=_listed(words))
            if words
            else Message("instructions match too")
        )
        reasons.append(told)
        evidence += [f"body: {word}" for word in words] or [f"body: {parts['body']:.2f}"]
    meaning = sum([parts[signal] for signal in _MEANING if signal in parts])
    if meaning > 0:
        reasons.append(Message("its meaning is near"))
        evidence.append(f"meaning: {meaning:.2f}")
    return join_messages(reasons) or Message("a part of a word matches"), tuple(evidence)


def _matching_words(low: str, sought: QueryTerms, seen: set[str]) -> list[str]:
    found = [
        (part[0], word)
        for part in sought.parts
        if part[1] in low and part[0] not in seen and (word := _spelt(part, low))
    ]
    return _unique_words(found, sought, seen) if found else []


def _cut_words(text: str, sought: QueryTerms, seen: set[str]) -> list[str]:
    """Return matching words of a text whose spelling differs from its terms: wide letters."""
    terms = sought.terms
    found = [pair for pair in spelt_terms(text) if pair[0] in terms and pair[0] not in seen]
    return _unique_words(found, sought, seen)


def _body_words(skill: Skill, sought: QueryTerms, seen: set[str]) -> list[str]:
    """Return matching words of the instructions, which are read from disk."""
    try:
        text = texts_of(skill).get("body", "")
    except (SatchelError, OSError):
        return []
    words = _matching_words(spell_signs(text.lower()), sought, seen)
    if not words and not text.isascii():
        words = _cut_words(text, sought, seen)
    return [_as_written(word, text) for word in words]


def _unique_words(found: list[tuple[str, str]], sought: QueryTerms, seen: set[str]) -> list[str]:
    """Return unique words of (term, word) pairs, significant ones only if there are any."""
    terms = sought.terms
    telling = [pair for pair in found if terms[pair[0]] >= _MIN_TERM_WEIGHT]
    for term, _ in telling:
        seen.add(term)
    return list(dict.fromkeys([word for _, word in telling or found]))


def _spelt(part: _TermPattern, text: str) -> str:
    """Return the spelling of a term in a lowercase text; empty if absent.

    Searches by prefix: tokenising ten descriptions takes longer than ranking ten thousand.
    """
    term, start, dense = part
    at = text.find(start)
    if dense:
        return start if at >= 0 else ""
    while at >= 0:
        if at == 0 or not text[at - 1].isalnum():
            rest = _REST(text, at + len(start))
            word = start + rest[0] if rest else start
            if stem(word) == term:
                return word
        at = text.find(start, at + 1)
    return ""


def _as_written(word: str, text: str) -> str:
    """Return a word as the text spells it: `csharp`, or `c#`."""
    if word not in _LETTERS or word in text.lower():
        return word
    return next(signed for signed, letters in SIGNED.items() if letters == word)


def _listed(words: Sequence[str]) -> list[str]:
    return [f"`{word}`" for word in words[:_MAX_WORDS_SHOWN]]


def skills_with_all(
    heads: LowercaseHeaders, skills: Sequence[Skill], sought: QueryTerms, most: int
) -> list[int]:
    """Return the first `most` skills whose header contains every significant term."""
    found: list[int] = []
    telling = sought.telling
    for at, skill in enumerate(skills):
        texts = heads.of(skill)
        if sought.signed:
            texts = [(field, spell_signs(low)) for field, low in texts]
        # Most skills lack one term. This runs for fifty skills per search: loops instead of calls.
        for _, start, _ in telling:
            for _, low in texts:
                if start in low:
                    break
            else:
                break
        else:
            if all(any(_spelt(part, low) for _, low in texts) for part in telling):
                found.append(at)
                if len(found) >= most:
                    break
    return found


def missing_words(
    pieces: Iterable[str], terms: Mapping[str, float], skill: Skill, rivals: Sequence[Skill]
) -> tuple[str, ...]:
    """Return words of the goal that the skill lacks, those of its rivals first."""
    try:
        texts = texts_of(skill)
    except (SatchelError, OSError):
        texts = head_texts(skill)
    own = {term for text in texts.values() for term in terms_of(text)}
    lacking = [
        term for term, weight in terms.items() if weight >= _MIN_TERM_WEIGHT and term not in own
    ]
    theirs = [
        {term for text in head_texts(rival).values() for term in terms_of(text)} for rival in rivals
    ]
    shown = words_shown(pieces, lacking)
    order = sorted(lacking, key=lambda term: -sum(term in some for some in theirs))
    return tuple(dict.fromkeys(shown[term] for term in order))
