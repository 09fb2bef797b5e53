"""The keyword detector: words of the request in names and descriptions, without an index.

Every word of the goal is looked for in every name and description. A rare word weighs more than a
common one, a name more than a description, a whole word more than the beginning or the middle of
one; how rare a word is follows from this very search. A skill called by its name comes first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import Message, several
from satchel.detect.base import BaseDetector, Match
from satchel.detect.terms import BORDER, even, lower, query_bytes, spaced, words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.terms import Word
    from satchel.skill import Skill

_IN_NAME = 1.5
"""How much more a hit in the name weighs than one in the description."""
_WEIGHTS = (1.0, 0.6, 0.3)
"""A whole word, the beginning of one, the middle of one."""
_CALLED = 1_000.0
"""Above any sum of words: the goal is the skill's name and nothing else."""
_WORK = 560_000
"""Words times skills that one search may cost; beyond it the longest words are kept."""
_FEWEST, _MOST = 6, 32


class _Shelf(NamedTuple):
    """The comparable texts of some skills in one piece, made once for each snapshot."""

    skills: Sequence[Skill]
    text: bytes
    """`name\\ndescription\\n` of each, one after the other."""
    starts: list[int]
    """Where each skill begins, and the end."""
    names: list[int]
    """Where each name ends."""


class LexicalDetector(BaseDetector):
    """Finds skills by the words of the goal."""

    name = "lexical"

    def __init__(self, limit: int = 50) -> None:
        """Return at most `limit` matches."""
        self._limit = limit
        self._last: _Shelf | None = None

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """The skills whose name or description has words of the goal, best first."""
        asked = " ".join(goal_text.split())
        query = query_bytes(asked)
        shelf = self._prepare(skills)
        words = _choose(words_of(query), len(shelf.names))
        scores: dict[int, float] = {}
        named: set[int] = set()
        for word in words:
            _search(word, shelf, scores, named)
        for at in named:
            name = spaced(shelf.text[shelf.starts[at] : shelf.names[at]])
            if name == query:
                scores[at] = 2 * _CALLED + scores[at]
            elif name in query:
                # The goal mentions the name whole: worth as much again as its words.
                scores[at] *= 2
        # Whose name is the goal has its words in the name: all are asked only where it has none.
        for at in named if words else range(len(skills)):
            if skills[at].head.name == asked:
                scores[at] = 3 * _CALLED + scores.get(at, 0.0)
        best = nsmallest(self._limit, scores.items(), key=lambda pair: (-pair[1], pair[0]))
        return [_explain(skills[at], score, words) for at, score in best]

    def _prepare(self, skills: Sequence[Skill]) -> _Shelf:
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
        shelf = _Shelf(skills, lower(b"\n".join(parts) + b"\n"), starts, names)
        if isinstance(skills, tuple):  # a list may change under us
            self._last = shelf
        return shelf


MinimalSkillDetector = LexicalDetector
"""The same under the name of the smallest detector."""


def _texts(skill: Skill) -> tuple[bytes, bytes]:
    """Name and description in comparable form, ASCII capitals still to be lowered."""
    head = skill.head
    name, text = head.name, head.description
    if head.extra:
        text = f"{text}\n{skill.when_to_use}\n{' '.join(skill.tags)}"
    if not name.isascii():
        name = even(name)
    if not text.isascii():
        text = even(text)
    return name.encode("utf-8", "replace"), text.encode("utf-8", "replace")


def _choose(words: list[Word], count: int) -> list[Word]:
    """As many words as the work allows; of too many, the longest, which are the rarest."""
    most = max(_FEWEST, min(_MOST, _WORK // max(count, 1)))
    if len(words) <= most:
        return words
    kept = set(sorted(words, key=lambda word: -len(word.data))[:most])
    return [word for word in words if word in kept]


def _search(word: Word, shelf: _Shelf, scores: dict[int, float], named: set[int]) -> None:
    """Look for one word everywhere and add to the scores."""
    text, starts, names = shelf.text, shelf.starts, shelf.names
    data, size, bordered = word.data, len(word.data), word.bordered
    find, border = text.find, BORDER
    found: dict[int, int] = {}
    in_name: set[int] = set()
    at, until, level = -1, 0, 2
    place = find(data)
    while place >= 0:
        if place >= until:  # hits come in order: another skill
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
        # Nothing better than a whole word is to be found here: on to the next skill.
        place = find(data, place + 1 if level else until)
    if not found:
        return
    # A whole word is as rare as its whole words are; the middle of one as all its hits are.
    counts = [0, 0, 0]
    for level in found.values():
        counts[level] += 1
    total = len(names)
    worth: list[float] = []
    seen = 0
    for weight, count in zip(_WEIGHTS, counts, strict=True):
        seen += count
        worth.append(weight * math.log(1 + total / max(seen, 1)))
    for at, level in found.items():
        value = worth[level]
        scores[at] = scores.get(at, 0.0) + (value * _IN_NAME if at in in_name else value)
    named |= in_name


def _explain(skill: Skill, score: float, words: list[Word]) -> Match:
    """The match for one skill, with what was seen where."""
    name, text = map(lower, _texts(skill))
    in_name = [word.shown for word in words if word.data in name]
    in_text = [word.shown for word in words if word.data in text and word.data not in name]
    parts: list[str] = []
    if score > _CALLED:
        parts.append(Message("called by its name"))
    if in_name:
        parts.append(Message("name has {words}", words=_listed(in_name)))
    if in_text:
        parts.append(Message("description has {words}", words=_listed(in_text)))
    evidence = (
        *(f"name: {word}" for word in in_name),
        *(f"description: {word}" for word in in_text),
    )
    return Match(skill.name, round(score, 3), several(parts), evidence, skill)


def _listed(words: list[str]) -> list[str]:
    return [f"`{word}`" for word in words[:8]]
