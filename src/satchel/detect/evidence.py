"""Why was a skill found, and which words would have helped?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.detect.stems import stem
from satchel.detect.terms import is_dense, shown, spelt_terms, terms_of, words_shown
from satchel.detect.texts import head_texts, texts_of
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.skill import Skill

_SHOWN = 8
_TELLING = 0.5
"""A term of at least this weight says something."""
_LABELS = {"when": "when_to_use", "triggers": "triggers"}


def explain(
    skill: Skill, terms: Mapping[str, float], parts: Mapping[str, float], *, called: bool = False
) -> tuple[str, tuple[str, ...]]:
    """One line, and what was seen where.

    Args:
        skill: Who was found.
        terms: The goal's terms and weights.
        parts: What each leg gave to the score.
        called: The goal is the skill's name and nothing else.
    """
    reasons = ["called by its name"] if called else []
    evidence: list[str] = []
    seen: set[str] = set()
    for field, text in head_texts(skill).items():
        words = _words(text, terms, seen)
        if words:
            label = _LABELS.get(field, field)
            reasons.append(f"{label} has {_listed(words)}")
            evidence += [f"{label}: {word}" for word in words]
    if parts.get("body", 0.0) > 0:
        # Who is found by the head needs no look at the file; who is not deserves one.
        words = [] if reasons else _words(_body(skill), terms, seen)
        told = f"instructions have {_listed(words)}" if words else "instructions match too"
        reasons.append(told)
        evidence += [f"body: {word}" for word in words] or [f"body: {parts['body']:.2f}"]
    meaning = sum(parts.get(leg, 0.0) for leg in ("about", "name", "clauses"))
    if meaning > 0:
        reasons.append("its meaning is near")
        evidence.append(f"meaning: {meaning:.2f}")
    return "; ".join(reasons) or "a part of a word matches", tuple(evidence)


def _words(text: str, terms: Mapping[str, float], seen: set[str]) -> list[str]:
    """The words of a text that the goal has too, each once; first those that say something."""
    low = text.lower()
    found = [(term, word) for term in terms if term not in seen and (word := _spelt(term, low))]
    if not found and not text.isascii():  # wide letters, say: spelt otherwise than they are cut
        found = [pair for pair in spelt_terms(text) if pair[0] in terms and pair[0] not in seen]
    telling = [(term, word) for term, word in found if terms[term] >= _TELLING]
    seen.update(term for term, _ in telling)
    return list(dict.fromkeys(word for _, word in telling or found))


def _spelt(term: str, text: str) -> str:
    """How a term is spelt in a text in lower case; empty when it is not there.

    Looked for by its beginning, since to cut ten descriptions into terms takes longer than to rank
    ten thousand.
    """
    if is_dense(term):
        word = shown(term)
        return word if word in text else ""
    start = term[:-1] if term[-1] == "i" else term
    at = text.find(start)
    while at >= 0:
        if at == 0 or not text[at - 1].isalnum():
            end = at + len(start)
            while end < len(text) and text[end].isalnum():
                end += 1
            if stem(text[at:end]) == term:
                return text[at:end]
        at = text.find(start, at + 1)
    return ""


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words[:_SHOWN])


def _body(skill: Skill) -> str:
    try:
        return texts_of(skill).get("body", "")
    except (SatchelError, OSError):
        return ""


def has_all(skill: Skill, terms: Mapping[str, float]) -> bool:
    """Whether name and description have every telling term."""
    low = "\n".join(head_texts(skill).values()).lower()
    return all(_spelt(term, low) for term, weight in terms.items() if weight >= _TELLING)


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
