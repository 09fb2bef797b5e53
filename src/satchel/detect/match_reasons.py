"""Reasons for matches, and the request's words that a skill lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.tokenizer import (
    SIGNED,
    head_texts,
    is_dense,
    pieces_of,
    shown,
    stem,
    terms_in,
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
_MEANING = ("about", "name", "clauses")
"""Semantic signals."""
_LABELS = {"when": "when_to_use"}
HAS = {
    "name": "name has {words}",
    "description": "description has {words}",
    "when": "when_to_use has {words}",
    "triggers": "triggers has {words}",
}
"""Field -> reason template."""


class FieldTerms(NamedTuple):
    """The terms of a field of a skill."""

    field: str
    low: str
    """Its text in lower case."""
    words: dict[str, str]
    """Term -> its first spelling."""


class HeaderTerms:
    """Caches the terms of names and descriptions of recent skills.

    Keyed by the header object, which is replaced when the skill's file changes.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[SkillHeader, list[FieldTerms]]] = {}

    def of(self, skill: Skill) -> list[FieldTerms]:
        """Return the terms of each field."""
        head = skill.head
        kept = self._kept.get(id(head))
        if kept is not None:
            return kept[1]
        if len(self._kept) >= _MAX_CACHED_HEADERS:
            self._kept = {}
        fields = [_field_terms(field, text) for field, text in head_texts(skill).items()]
        self._kept[id(head)] = (head, fields)
        return fields


def _field_terms(field: str, text: str) -> FieldTerms:
    low = text.lower()
    words: dict[str, str] = {}
    for piece in pieces_of(text):
        if piece.isascii() or not is_dense(piece):
            words.setdefault(stem(piece), piece)
        else:
            words.update((term, shown(term)) for term in terms_in([piece]))
    for signed, letters in SIGNED.items():  # `c#` is searched as `csharp`
        if letters in words and letters not in low:
            words[letters] = signed
    return FieldTerms(field, low, words)


def _has(field: FieldTerms, term: str) -> bool:
    # A dictionary may cut the two texts differently.
    cut = not term.isascii() and is_dense(term)
    return term in field.words or (cut and shown(term) in field.low)


def explain(
    skill: Skill,
    fields: Iterable[FieldTerms],
    terms: Mapping[str, float],
    parts: Mapping[str, float],
    *,
    called: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """Return the reason in one line, and the matching words by field.

    Args:
        skill: The matched skill.
        fields: The terms of its fields.
        terms: The goal's terms with their weights.
        parts: The contribution of each signal.
        called: Whether the goal equals the skill's name.
    """
    reasons: list[str] = [Message("called by its name")] if called else []
    evidence: list[str] = []
    seen: set[str] = set()
    for field in fields:
        words = _matching_words(field, terms, seen)
        if words:
            label = _LABELS.get(field.field, field.field)
            reasons.append(Message(HAS[field.field], words=_listed(words)))
            evidence += [f"{label}: {word}" for word in words]
    if parts.get("body", 0.0) > 0:
        # The file is read only if the header does not explain the match.
        words = [] if reasons else _body_words(skill, terms, seen)
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


def _matching_words(field: FieldTerms, terms: Mapping[str, float], seen: set[str]) -> list[str]:
    """Return unique matching words, significant ones only if there are any."""
    found = [
        (term, field.words.get(term) or shown(term))
        for term in terms
        if term not in seen and _has(field, term)
    ]
    telling = [pair for pair in found if terms[pair[0]] >= _MIN_TERM_WEIGHT]
    seen.update(term for term, _ in telling)
    return list(dict.fromkeys([word for _, word in telling or found]))


def _body_words(skill: Skill, terms: Mapping[str, float], seen: set[str]) -> list[str]:
    """Return matching words of the instructions, which are read from disk."""
    try:
        text = texts_of(skill).get("body", "")
    except (SatchelError, OSError):
        return []
    return _matching_words(_field_terms("body", text), terms, seen)


def _listed(words: Sequence[str]) -> list[str]:
    return [f"`{word}`" for word in words[:_MAX_WORDS_SHOWN]]


def skills_with_all(
    heads: HeaderTerms, skills: Sequence[Skill], terms: Mapping[str, float], most: int
) -> list[int]:
    """Return the first `most` skills whose header contains every significant term."""
    found: list[int] = []
    telling = [term for term, weight in terms.items() if weight >= _MIN_TERM_WEIGHT]
    for at, skill in enumerate(skills):
        fields = heads.of(skill)
        if all(any(_has(field, term) for field in fields) for term in telling):
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
