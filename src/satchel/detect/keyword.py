"""Keyword detector: matches words of the request in names and descriptions, without an index.

Every word of the goal is searched in every name and description. Rare words weigh more than common
ones, names more than descriptions, whole words more than prefixes or infixes; rarity is counted in
the same search. A skill whose name equals the goal comes first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import BaseDetector, Match
from satchel.detect.tokenizer import BORDER, lower, normalise_unicode, query_bytes, spaced, words_of
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.tokenizer import Word
    from satchel.skill import Skill

_NAME_RATIO = 1.5
_HIT_WEIGHTS = (1.0, 0.6, 0.3)
"""Whole word, prefix, infix."""
_EXACT_NAME_SCORE = 1_000.0
"""Above any sum of words."""
_MAX_COMPARISONS = 560_000
"""Words times skills per search; beyond it the longest words are kept."""
_MIN_WORDS, _MAX_WORDS = 6, 32


class _KeywordTexts(NamedTuple):
    """The normalised texts of a skill sequence in one buffer."""

    skills: Sequence[Skill]
    text: bytes
    """`name\\ndescription\\n` of each, one after the other."""
    starts: list[int]
    """The start of each skill, and the end."""
    names: list[int]
    """Where each name ends."""


class LexicalDetector(BaseDetector):
    """Finds skills by the words of the goal."""

    name = "lexical"

    def __init__(self, limit: int = 50) -> None:
        """Return at most `limit` matches."""
        self._limit = limit
        self._last: _KeywordTexts | None = None

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return skills whose name or description contains words of the goal, best first."""
        asked = " ".join(goal_text.split())
        query = query_bytes(asked)
        texts = self._prepare(skills)
        words = _choose(words_of(query), len(texts.names))
        scores: dict[int, float] = {}
        named: set[int] = set()
        for word in words:
            _search(word, texts, scores, named)
        for at in named:
            name = spaced(texts.text[texts.starts[at] : texts.names[at]])
            if name == query:
                scores[at] = 2 * _EXACT_NAME_SCORE + scores[at]
            elif name in query:
                # The goal contains the full name: counts as much again as its words.
                scores[at] *= 2
        # A skill whose name equals the goal has its words in the name; all are checked only without
        # words.
        for at in named if words else range(len(skills)):
            if skills[at].head.name == asked:
                scores[at] = 3 * _EXACT_NAME_SCORE + scores.get(at, 0.0)
        best = nsmallest(self._limit, scores.items(), key=lambda pair: (-pair[1], pair[0]))
        return [_explain(skills[at], score, words) for at, score in best]

    def _prepare(self, skills: Sequence[Skill]) -> _KeywordTexts:
        last = self._last
        if last is not None and last.skills is skills:
            return last
        parts: list[bytes] = []
        starts: list[int] = []
        names: list[int] = []
        at = 0
        for skill in skills:
            name, text = _texts(skill)
            starts.append(at)
            names.append(at + len(name))
            parts += (name, text)
            at += len(name) + len(text) + 2
        starts.append(at)
        texts = _KeywordTexts(skills, lower(b"\n".join(parts) + b"\n"), starts, names)
        if isinstance(skills, tuple):
            self._last = texts
        return texts


MinimalSkillDetector = LexicalDetector
"""Alias for the smallest detector."""


def _texts(skill: Skill) -> tuple[bytes, bytes]:
    """Return normalised name and description, still with ASCII capitals."""
    head = skill.head
    name, text = head.name, head.description
    if head.extra:
        text = f"{text}\n{skill.when_to_use}\n{' '.join(skill.tags)}"
    if not name.isascii():
        name = normalise_unicode(name)
    if not text.isascii():
        text = normalise_unicode(text)
    return name.encode("utf-8", "replace"), text.encode("utf-8", "replace")


def _choose(words: list[Word], count: int) -> list[Word]:
    """Limit the words by the comparisons they cost; keeps the longest, which are the rarest."""
    most = max(_MIN_WORDS, min(_MAX_WORDS, _MAX_COMPARISONS // max(count, 1)))
    if len(words) <= most:
        return words
    kept = set(sorted(words, key=lambda word: -len(word.data))[:most])
    return [word for word in words if word in kept]


def _search(word: Word, texts: _KeywordTexts, scores: dict[int, float], named: set[int]) -> None:
    text, starts, names = texts.text, texts.starts, texts.names
    data, size, bordered = word.data, len(word.data), word.bordered
    find, border = text.find, BORDER
    found: dict[int, int] = {}
    in_name: set[int] = set()
    at, until, level = -1, 0, 2
    place = find(data)
    while place >= 0:
        if place >= until:  # hits are ordered: another skill
            at = bisect_right(starts, place) - 1
            until = starts[at + 1]
            level = 2
            if place < names[at]:
                in_name.add(at)
        if not bordered:
            level = 0
        elif not place or border[text[place - 1]]:
            level = 0 if border[text[place + size]] else 1
        found[at] = level
        # A whole word is the best possible hit: continue with the next skill.
        place = find(data, place + 1 if level else until)
    if not found:
        return
    # The rarity of a whole word counts whole words; that of an infix counts all hits.
    counts = [0, 0, 0]
    for level in found.values():
        counts[level] += 1
    total = len(names)
    worth: list[float] = []
    seen = 0
    for weight, count in zip(_HIT_WEIGHTS, counts, strict=True):
        seen += count
        worth.append(weight * math.log(1 + total / max(seen, 1)))
    for at, level in found.items():
        value = worth[level]
        scores[at] = scores.get(at, 0.0) + (value * _NAME_RATIO if at in in_name else value)
    named |= in_name


def _explain(skill: Skill, score: float, words: list[Word]) -> Match:
    name, text = map(lower, _texts(skill))
    in_name = [word.shown for word in words if word.data in name]
    in_text = [word.shown for word in words if word.data in text and word.data not in name]
    parts: list[str] = []
    if score > _EXACT_NAME_SCORE:
        parts.append(Message("called by its name"))
    if in_name:
        parts.append(Message("name has {words}", words=_listed(in_name)))
    if in_text:
        parts.append(Message("description has {words}", words=_listed(in_text)))
    evidence = (
        *(f"name: {word}" for word in in_name),
        *(f"description: {word}" for word in in_text),
    )
    return Match(skill.name, round(score, 3), join_messages(parts), evidence, skill)


def _listed(words: list[str]) -> list[str]:
    return [f"`{word}`" for word in words[:8]]
