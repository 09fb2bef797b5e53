"""Keyword detector: matches words of the request in names and descriptions, without an index.

Every word of the goal is searched in every name and description. Rare words weigh more than common
ones, names more than descriptions, whole words more than prefixes or infixes; rarity is counted in
the same search. A skill whose name equals the goal comes first.
"""

from __future__ import annotations

import math
import re
from heapq import nsmallest
from typing import TYPE_CHECKING

from satchel.detect.base import BaseDetector, Match
from satchel.detect.mentions import NameTables, parse_mentions
from satchel.detect.tokenizer import STOPWORDS, normalise_unicode, query_key, words_of
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
_CONTRACTIONS = re.compile(r"\b\w+n['’]t\b|(?<=\w)['’](?:s|re|ve|ll|d|m)\b", re.IGNORECASE)
"""Without them `don't` would be searched as the letter `t`."""


class LexicalDetector(BaseDetector):
    """Finds skills by the words of the goal."""

    name = "lexical"

    def __init__(self, limit: int = 50) -> None:
        """Return at most `limit` matches."""
        self._limit = limit
        self._last: tuple[Sequence[Skill], list[tuple[str, str]]] = ((), [])
        """A sequence of skills, and the normalised name and texts of each."""

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return skills whose name or description contains words of the goal, best first."""
        asked = " ".join(goal_text.split())
        query = query_key(asked)
        texts = self._prepare(skills)
        words = _choose(self._words(query_key(_CONTRACTIONS.sub("", asked))), len(texts))
        scores: dict[int, float] = {}
        named: set[int] = set()
        for word in words:
            _search(word, texts, scores, named)
        for at in named:
            name = query_key(texts[at][0])
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
        return [_explain(skills[at], texts[at], score, words) for at, score in best]

    def _words(self, query: str) -> list[Word]:
        return words_of(query)

    def _prepare(self, skills: Sequence[Skill]) -> list[tuple[str, str]]:
        if self._last[0] is skills:
            return self._last[1]
        texts = [_texts(skill) for skill in skills]
        if isinstance(skills, tuple):
            self._last = (skills, texts)
        return texts


class MinimalSkillDetector(LexicalDetector):
    """A `LexicalDetector` to use alone: it returns the skills that the request names, if any.

    Skills that the request rules out, stop words and single letters do not match.
    """

    def __init__(self, limit: int = 50) -> None:
        """Return at most `limit` matches."""
        super().__init__(limit)
        self._names = NameTables()

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return the skills that the goal names, else those with words of the goal, best first."""
        found = parse_mentions(goal_text, self._names.of(skills))
        if found.wanted:
            reason = Message("called by its name")
            named = found.wanted[: self._limit]
            return [Match(one.skill.name, 1.0, reason, (one.said,), one.skill) for one in named]
        ruled_out = found.ruled_out
        if ruled_out:
            skills = [skill for skill in skills if skill.name not in ruled_out]
        return super().detect(goal_text if found.rest is None else found.rest, skills)

    def _words(self, query: str) -> list[Word]:
        words = words_of(query)
        return [
            word
            for word in words
            if word.text not in STOPWORDS and (len(word.text) > 1 or not word.text.isascii())
        ]


def _texts(skill: Skill) -> tuple[str, str]:
    """Return the normalised name, and the other texts."""
    text = skill.head.description
    if skill.head.extra:
        text = f"{text}\n{skill.when_to_use}\n{' '.join(skill.tags)}"
    return normalise_unicode(skill.head.name), normalise_unicode(text)


def _choose(words: list[Word], count: int) -> list[Word]:
    """Limit the words by the comparisons they cost; keeps the longest, which are the rarest."""
    most = max(_MIN_WORDS, min(_MAX_WORDS, _MAX_COMPARISONS // max(count, 1)))
    if len(words) <= most:
        return words
    kept = set(sorted(words, key=lambda word: -len(word.text.encode()))[:most])
    return [word for word in words if word in kept]


def _search(
    word: Word, texts: list[tuple[str, str]], scores: dict[int, float], named: set[int]
) -> None:
    sought = word.text
    begins = re.compile(rf"(?<![a-z0-9]){re.escape(sought)}(?P<goes_on>[a-z0-9])?")
    levels: dict[int, int] = {}
    for at, (name, text) in enumerate(texts):
        if sought in name:
            named.add(at)
        elif sought not in text:
            continue
        levels[at] = _level(begins, name, text) if word.bordered else 0
    # The rarity of a whole word counts whole words; that of an infix counts all hits.
    worth: list[float] = []
    seen = 0
    for level, weight in enumerate(_HIT_WEIGHTS):
        seen += sum(one == level for one in levels.values())
        worth.append(weight * math.log(1 + len(texts) / max(seen, 1)))
    for at, level in levels.items():
        ratio = _NAME_RATIO if sought in texts[at][0] else 1.0
        scores[at] = scores.get(at, 0.0) + ratio * worth[level]


def _level(begins: re.Pattern[str], *texts: str) -> int:
    """Return 0 for a whole word, 1 for the beginning of one, 2 for another part."""
    found = [hit["goes_on"] is not None for text in texts for hit in begins.finditer(text)]
    return 2 if not found else int(all(found))


def _explain(skill: Skill, texts: tuple[str, str], score: float, words: list[Word]) -> Match:
    name, text = texts
    in_name = [word.text for word in words if word.text in name]
    in_text = [word.text for word in words if word.text in text and word.text not in name]
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
