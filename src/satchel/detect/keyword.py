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
from satchel.detect.stop_words import STOPWORDS
from satchel.detect.tokenizer import normalise_unicode, query_key, split_query
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.tokenizer import Word
    from satchel.skill import Skill

_NAME_RATIO = 1.5
_LEVEL_WEIGHTS = (1.0, 0.6, 0.3)
"""Whole word, prefix, infix."""
_EXACT_NAME_SCORE = 1_000.0
"""Above any sum of words."""
_MAX_COMPARISONS = 560_000
"""Words times skills per search; beyond it the longest words are kept."""
_MIN_WORDS, _MAX_WORDS = 6, 32
_CONTRACTION = re.compile(r"\b\w+n['’]t\b|(?<=\w)['’](?:s|re|ve|ll|d|m)\b", re.IGNORECASE)
"""Without them `don't` would be searched as the letter `t`."""


class LexicalDetector(BaseDetector):
    """Finds skills by the words of the goal."""

    name = "lexical"

    def __init__(self, limit: int = 50) -> None:
        """Create a detector; it has no index.

        Args:
            limit: The maximum number of matches.
        """
        self._limit = limit
        self._cached_texts: tuple[Sequence[Skill], list[tuple[str, str]]] = ((), [])
        """A sequence of skills, and the normalised name and texts of each."""

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return skills whose name or description contains words of the goal, best first."""
        goal = " ".join(goal_text.split())
        query = query_key(goal)
        texts = self._read_texts(skills)
        words = _limit_words(self._split(query_key(_CONTRACTION.sub("", goal))), len(texts))
        scores: dict[int, float] = {}
        with_word_in_name: set[int] = set()
        for word in words:
            _score_word(word, texts, scores, with_word_in_name)
        for index in with_word_in_name:
            name = query_key(texts[index][0])
            if name == query:
                scores[index] = 2 * _EXACT_NAME_SCORE + scores[index]
            elif name in query:
                # The goal contains the full name: counts as much again as its words.
                scores[index] *= 2
        # A skill whose name equals the goal has its words in the name; all are checked only without
        # words.
        for index in with_word_in_name if words else range(len(skills)):
            if skills[index].head.name == goal:
                scores[index] = 3 * _EXACT_NAME_SCORE + scores.get(index, 0.0)
        best = nsmallest(self._limit, scores.items(), key=lambda pair: (-pair[1], pair[0]))
        return [_explain(skills[index], texts[index], score, words) for index, score in best]

    def _split(self, query: str) -> list[Word]:
        return split_query(query)

    def _read_texts(self, skills: Sequence[Skill]) -> list[tuple[str, str]]:
        if self._cached_texts[0] is skills:
            return self._cached_texts[1]
        texts = [_normalise_texts(skill) for skill in skills]
        if isinstance(skills, tuple):
            self._cached_texts = (skills, texts)
        return texts


class MinimalSkillDetector(LexicalDetector):
    """A `LexicalDetector` to use alone: it returns the skills that the request names, if any.

    Skills that the request rules out, stop words and single letters do not match.

    Example:
        from satchel.detect import MinimalSkillDetector

        detector = MinimalSkillDetector(limit=1)
        best = detector.detect("look over the code", satchel.list_skills())[0]
        assert best.name == "code-review"
    """

    def __init__(self, limit: int = 50) -> None:
        """Create a detector; it has no index.

        Args:
            limit: The maximum number of matches.
        """
        super().__init__(limit)
        self._names = NameTables()

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return the skills that the goal names, else those with words of the goal, best first."""
        mentions = parse_mentions(goal_text, self._names.table_for(skills))
        if mentions.wanted:
            reason = Message("called by its name")
            named = mentions.wanted[: self._limit]
            return [
                Match(mention.skill.name, 1.0, reason, (mention.phrase,), mention.skill)
                for mention in named
            ]
        ruled_out = mentions.ruled_out
        if ruled_out:
            skills = [skill for skill in skills if skill.name not in ruled_out]
        return super().detect(
            goal_text if mentions.remaining_request is None else mentions.remaining_request, skills
        )

    def _split(self, query: str) -> list[Word]:
        words = split_query(query)
        return [
            word
            for word in words
            if word.text not in STOPWORDS and (len(word.text) > 1 or not word.text.isascii())
        ]


def _normalise_texts(skill: Skill) -> tuple[str, str]:
    """Return the normalised name, and the other texts."""
    text = skill.head.description
    if skill.head.extra:
        text = f"{text}\n{skill.when_to_use}\n{' '.join(skill.tags)}"
    return normalise_unicode(skill.head.name), normalise_unicode(text)


def _limit_words(words: list[Word], count: int) -> list[Word]:
    """Limit the words by the comparisons they cost; keeps the longest, which are the rarest."""
    max_words = max(_MIN_WORDS, min(_MAX_WORDS, _MAX_COMPARISONS // max(count, 1)))
    if len(words) <= max_words:
        return words
    longest = set(sorted(words, key=lambda word: -len(word.text.encode()))[:max_words])
    return [word for word in words if word in longest]


def _score_word(
    word: Word, texts: list[tuple[str, str]], scores: dict[int, float], with_word_in_name: set[int]
) -> None:
    """Add the scores of a word.

    Args:
        word: The word.
        texts: The normalised name and texts of each skill.
        scores: Position of a skill -> its score.
        with_word_in_name: The positions of skills with a word in their names.
    """
    searched = word.text
    word_start = re.compile(rf"(?<![a-z0-9]){re.escape(searched)}(?P<goes_on>[a-z0-9])?")
    levels: dict[int, int] = {}
    for index, (name, text) in enumerate(texts):
        if searched in name:
            with_word_in_name.add(index)
        elif searched not in text:
            continue
        levels[index] = _rate_hit(word_start, name, text) if word.is_bordered else 0
    # The rarity of a whole word counts whole words; that of an infix counts all hits.
    level_scores: list[float] = []
    hit_count = 0
    for level, weight in enumerate(_LEVEL_WEIGHTS):
        hit_count += sum(hit_level == level for hit_level in levels.values())
        level_scores.append(weight * math.log(1 + len(texts) / max(hit_count, 1)))
    for index, level in levels.items():
        ratio = _NAME_RATIO if searched in texts[index][0] else 1.0
        scores[index] = scores.get(index, 0.0) + ratio * level_scores[level]


def _rate_hit(word_start: re.Pattern[str], *texts: str) -> int:
    """Return 0 for a whole word, 1 for the beginning of one, 2 for another part."""
    continuations = [
        hit["goes_on"] is not None for text in texts for hit in word_start.finditer(text)
    ]
    return 2 if not continuations else int(all(continuations))


def _explain(skill: Skill, texts: tuple[str, str], score: float, words: list[Word]) -> Match:
    name, text = texts
    name_words = [word.text for word in words if word.text in name]
    text_words = [word.text for word in words if word.text in text and word.text not in name]
    reasons: list[str] = []
    if score > _EXACT_NAME_SCORE:
        reasons.append(Message("called by its name"))
    if name_words:
        reasons.append(Message("name has {words}", words=_quote_words(name_words)))
    if text_words:
        reasons.append(Message("description has {words}", words=_quote_words(text_words)))
    evidence = (
        *(f"name: {word}" for word in name_words),
        *(f"description: {word}" for word in text_words),
    )
    return Match(skill.name, round(score, 3), join_messages(reasons), evidence, skill)


def _quote_words(words: list[str]) -> list[str]:
    return [f"`{word}`" for word in words[:8]]
