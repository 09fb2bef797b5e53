"""Why was a skill found, and which words would have helped?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import Message, several
from satchel.detect.terms import (
    SIGNED,
    head_texts,
    is_dense,
    shown,
    spelt_terms,
    stem,
    terms_of,
    texts_of,
    unsigned,
    words_shown,
)
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.skill import Head, Skill

_SHOWN = 8
_TELLING = 0.5
"""A term of at least this weight says something."""
_HEADS = 4_000
"""Skills whose heads are kept in lower case: two megabytes or so."""
_MEANING = ("about", "name", "clauses")
"""The legs of a model."""
_LETTERS = frozenset(SIGNED.values())
_LABELS = {"when": "when_to_use"}
HAS = {
    "name": "name has {words}",
    "description": "description has {words}",
    "when": "when_to_use has {words}",
    "triggers": "triggers has {words}",
}
"""Field -> what is said of words in it."""
_SHORT_E = 4
"""Letters of a stem that may have got its last one back."""
_REST = re.compile(r"[^\W_]*").match


class _Part(NamedTuple):
    """One term to look for."""

    term: str
    start: str
    """How a word that stands for it begins; all of it, if it is of a dense script."""
    dense: bool


class Sought:
    """A goal's terms, made ready once to be looked for in many texts."""

    def __init__(self, terms: Mapping[str, float]) -> None:
        self.terms = terms
        self.parts = [_part(term) for term in terms]
        # Few goals have a name of signs: texts are not spelt otherwise for the others.
        self.signed = not _LETTERS.isdisjoint(terms)
        telling = [part for part in self.parts if terms[part.term] >= _TELLING]
        # Long words are rare.
        self.telling = sorted(telling, key=lambda part: -len(part.start))


def _part(term: str) -> _Part:
    if not term.isascii() and is_dense(term):
        return _Part(term, shown(term), dense=True)
    # What a stem has put in place of a `y`, or back for an `e`: `coding` is of `code`.
    is_whole = term[-1] != "i" and (term[-1] != "e" or len(term) != _SHORT_E)
    return _Part(term, term if is_whole else term[:-1], dense=False)


class Heads:
    """Names and descriptions in lower case, of the skills that were looked at last.

    They follow from the head, which stays the same object until the skill's file changes.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Head, list[tuple[str, str]]]] = {}

    def of(self, skill: Skill) -> list[tuple[str, str]]:
        """Each field that has a text, and the text."""
        head = skill.head
        kept = self._kept.get(id(head))
        if kept is not None:
            return kept[1]
        if len(self._kept) >= _HEADS:
            self._kept = {}
        texts = [(field, text.lower()) for field, text in head_texts(skill).items()]
        self._kept[id(head)] = (head, texts)
        return texts


def explain(
    skill: Skill,
    texts: Iterable[tuple[str, str]],
    sought: Sought,
    parts: Mapping[str, float],
    *,
    called: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """One line, and what was seen where.

    Args:
        skill: Who was found.
        texts: Its head as `Heads` keeps it.
        sought: The goal's terms.
        parts: What each leg gave to the score.
        called: The goal is the skill's name and nothing else.
    """
    reasons: list[str] = [Message("called by its name")] if called else []
    evidence: list[str] = []
    seen: set[str] = set()
    if sought.signed:
        texts = [(field, unsigned(low)) for field, low in texts]
    for field, low in texts:
        words = _words(low, sought, seen)
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
        # Who is found by the head needs no look at the file; who is not deserves one.
        words = [] if reasons else _body_words(skill, sought, seen)
        told = (
            Message("instructions have {words}", words=_listed(words))
            if words
            else Message("instructions match too")
        )
        reasons.append(told)
        evidence += [f"body: {word}" for word in words] or [f"body: {parts['body']:.2f}"]
    meaning = sum([parts[leg] for leg in _MEANING if leg in parts])
    if meaning > 0:
        reasons.append(Message("its meaning is near"))
        evidence.append(f"meaning: {meaning:.2f}")
    return several(reasons) or Message("a part of a word matches"), tuple(evidence)


def _words(low: str, sought: Sought, seen: set[str]) -> list[str]:
    """The words of a text in lower case that the goal has too."""
    found = [
        (part[0], word)
        for part in sought.parts
        if part[1] in low and part[0] not in seen and (word := _spelt(part, low))
    ]
    return _told(found, sought, seen) if found else []


def _cut_words(text: str, sought: Sought, seen: set[str]) -> list[str]:
    """The same of a text that is spelt otherwise than it is cut: in wide letters, say."""
    terms = sought.terms
    found = [pair for pair in spelt_terms(text) if pair[0] in terms and pair[0] not in seen]
    return _told(found, sought, seen)


def _body_words(skill: Skill, sought: Sought, seen: set[str]) -> list[str]:
    """The same of a skill's instructions, which are read for it."""
    try:
        text = texts_of(skill).get("body", "")
    except (SatchelError, OSError):
        return []
    words = _words(unsigned(text.lower()), sought, seen)
    if not words and not text.isascii():
        words = _cut_words(text, sought, seen)
    return [_as_written(word, text) for word in words]


def _told(found: list[tuple[str, str]], sought: Sought, seen: set[str]) -> list[str]:
    """The words of some pairs of term and word, each once; first those that say something."""
    terms = sought.terms
    telling = [pair for pair in found if terms[pair[0]] >= _TELLING]
    for term, _ in telling:
        seen.add(term)
    return list(dict.fromkeys([word for _, word in telling or found]))


def _spelt(part: _Part, text: str) -> str:
    """How a term is spelt in a text in lower case; empty when it is not there.

    Looked for by its beginning, since to cut ten descriptions into terms takes longer than to rank
    ten thousand.
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
    """A word as it stands in a text: `csharp` where it says so, else `c#`."""
    if word not in _LETTERS or word in text.lower():
        return word
    return next(signed for signed, letters in SIGNED.items() if letters == word)


def _listed(words: Sequence[str]) -> list[str]:
    return [f"`{word}`" for word in words[:_SHOWN]]


def having_all(heads: Heads, skills: Sequence[Skill], sought: Sought, most: int) -> list[int]:
    """Which of some skills have every telling term in name and description; the first `most`."""
    found: list[int] = []
    telling = sought.telling
    for at, skill in enumerate(skills):
        texts = heads.of(skill)
        if sought.signed:
            texts = [(field, unsigned(low)) for field, low in texts]
        # Most lack one, and are told by it. Fifty are asked for every search: loops, no calls.
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
    goal: str, terms: Mapping[str, float], skill: Skill, rivals: Sequence[Skill]
) -> tuple[str, ...]:
    """Words of the goal that the skill has nowhere; first those that its rivals have."""
    try:
        texts = texts_of(skill)
    except (SatchelError, OSError):
        texts = head_texts(skill)
    own = {term for text in texts.values() for term in terms_of(text)}
    lacking = [term for term, weight in terms.items() if weight >= _TELLING and term not in own]
    theirs = [
        {term for text in head_texts(rival).values() for term in terms_of(text)} for rival in rivals
    ]
    shown = words_shown(goal, lacking)
    order = sorted(lacking, key=lambda term: -sum(term in some for some in theirs))
    return tuple(dict.fromkeys(shown[term] for term in order))
