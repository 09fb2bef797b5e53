"""What are the skills about that could not be listed? A few words, so that a model knows to search.

The words come from the names of an even sample: looking at all of 100,000 names for eight words
would cost more than the rest of the block.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.skill.model import Skill

MOST = 8
SAMPLE = 500
_WORD = re.compile(r"[^\W\d_][^\W_]{1,23}")
# fmt: off
_EMPTY = frozenset((
    "ai", "skill", "skills", "agent", "agents", "agentic", "tool", "tools", "helper", "guide",
    "guidelines", "expert", "best", "practices", "practice", "pattern", "patterns",
    "specialist", "workflow", "workflows", "manager", "management", "builder", "creator",
    "generator", "generate", "create", "development", "developer", "engineer", "engineering",
    "use", "using", "used", "usage", "how", "what", "when", "my", "your", "our", "this", "that",
    "the", "and", "for", "with", "from", "into", "about", "all", "any", "an", "as", "at", "by",
    "in", "is", "it", "of", "on", "or", "to", "up", "via", "vs", "no", "not", "new", "old",
    "get", "set", "run", "make", "add", "do", "one", "two", "co", "re", "de",
))
# fmt: on
"""Words that say nothing about a subject."""


def topics(
    skills: Sequence[Skill], start: int, skip: Callable[[Skill], bool], most: int = SAMPLE
) -> list[str]:
    """The most frequent telling words in the names from `start` on; at most eight.

    Args:
        skills: All of them.
        start: The first one that is not listed.
        skip: True for skills that the model is not told about or that are listed.
        most: Look at no more names than this, and never at more than `SAMPLE`.
    """
    step = max(1, -(-(len(skills) - start) // max(1, min(most, SAMPLE))))
    count: dict[str, int] = {}
    for at in range(start, len(skills), step):
        skill = skills[at]
        if skip(skill):
            continue
        for word in dict.fromkeys(_WORD.findall(skill.head.name[:200].lower())):
            count[word] = count.get(word, 0) + 1
    telling = ((-number, word) for word, number in count.items() if word not in _EMPTY)
    return [word for _, word in sorted(telling)[:MOST]]
