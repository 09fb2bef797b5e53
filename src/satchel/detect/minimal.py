"""The smallest detector that is of use: keywords of the goal in names and descriptions.

No model, no ranking, nothing kept. A skill fits when a keyword of the goal is a word of its name or
description, in any case and in singular or plural; words that say nothing are no keywords. Whoever
has more of them comes first, and a name counts twice. A skill that is called by name (`use skill
X`, `--skill X`) is chosen alone, and one that is ruled out is not.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import Answer, Match
from satchel.detect.explicit import ExplicitDetector, as_matches
from satchel.detect.merging import EXPLICIT, each_once, without
from satchel.detect.names import DENSE
from satchel.detect.notes import KEYWORDS_CUT, RULED_OUT
from satchel.detect.words import STOP, even, query_bytes, words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill

_MOST = 64
"""Keywords that are compared."""
_PAIRS = 2
"""Pairs of signs that a text without spaces must share with the goal: one alone is chance."""
_SAME_IN_PLURAL = frozenset(("news", "always", "perhaps", "series", "species", "besides"))
_IDLE = (
    "我的 帮我 一个 这个 那个 请帮 一下 怎么 什么 可以 需要 如何 我想 ます です して した くだ "
    "ださ さい する 해줘 주세 세요"
)
_IDLE_PAIRS = frozenset(_IDLE.split())


class _Keyword(NamedTuple):
    shown: str
    stem: str
    """Looked for first: a text without it cannot have the word."""
    whole: re.Pattern[str] | None
    """None for scripts without spaces."""


class MinimalSkillDetector:
    """Chooses by keywords, and by name."""

    name = "minimal"

    def __init__(self, limit: int = 0) -> None:
        """Choose at most `limit` skills; 0 sets no limit."""
        self._limit = limit
        self._explicit = ExplicitDetector()

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """The skills that fit, those with the most keywords first."""
        return self.look(goal_text, skills).matches

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The same, and what a person should know about it."""
        began = time.perf_counter()
        heard = self._explicit.heard(goal_text, skills)
        found = as_matches(heard)
        notes = heard.notes
        who = EXPLICIT
        if not found and not heard.none:
            who = self.name
            words, all_words = _keywords(goal_text if heard.rest is None else heard.rest)
            if len(words) < all_words:
                notes = (*notes, KEYWORDS_CUT.format(count=len(words)))
            found = _compare(words, skills)
        cut = self._limit if self._limit and who != EXPLICIT else len(found)
        fit = 1.0 if found else 0.0
        answer = Answer(found[:cut], found[cut:], fit, 0.0, who, 0.0, each_once(notes))
        answer = without(answer, {name: RULED_OUT.format(name=name) for name in heard.ruled_out})
        return answer._replace(took_ms=(time.perf_counter() - began) * 1e3)


def _keywords(goal_text: str) -> tuple[list[_Keyword], int]:
    """What is looked for, and how much of it there was."""
    words = [
        word
        for word in words_of(query_bytes(goal_text))
        if word.shown not in STOP and word.shown not in _IDLE_PAIRS
    ]
    return [_keyword(word.shown, spaced=word.bordered) for word in words[:_MOST]], len(words)


def _keyword(word: str, *, spaced: bool) -> _Keyword:
    if not spaced:
        return _Keyword(word, word, None)
    plural = len(word) > 3 and word.endswith("s") and not word.endswith("ss")
    stem = word[:-1] if plural and word not in _SAME_IN_PLURAL else word
    letter = f"[^\\W_{DENSE}]"
    whole = re.compile(f"(?<!{letter}){re.escape(stem)}(?:s|es)?(?!{letter})")
    return _Keyword(word, stem, whole)


def _compare(words: list[_Keyword], skills: Sequence[Skill]) -> list[Match]:
    found: list[Match] = []
    for skill in skills:
        head = skill.head
        name, text = even(head.name).lower(), even(head.description).lower()
        in_name = [word for word in words if _has(name, word)]
        in_text = [word for word in words if word not in in_name and _has(text, word)]
        pairs = sum(word.whole is None and len(word.shown) <= 2 for word in (*in_name, *in_text))
        if pairs == len(in_name) + len(in_text) and pairs < min(_PAIRS, len(words)):
            continue
        if in_name or in_text:
            found.append(_match(skill, in_name, in_text))
    found.sort(key=lambda match: -match.score)
    return found


def _has(text: str, word: _Keyword) -> bool:
    return word.stem in text and (word.whole is None or word.whole.search(text) is not None)


def _match(skill: Skill, in_name: list[_Keyword], in_text: list[_Keyword]) -> Match:
    parts = [
        f"{where} has {', '.join(f'`{word.shown}`' for word in words[:8])}"
        for where, words in (("name", in_name), ("description", in_text))
        if words
    ]
    evidence = (
        *(f"name: {word.shown}" for word in in_name),
        *(f"description: {word.shown}" for word in in_text),
    )
    score = float(2 * len(in_name) + len(in_text))
    return Match(skill.name, score, "; ".join(parts), evidence, skill, "minimal")
