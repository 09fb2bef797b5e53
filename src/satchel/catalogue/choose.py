"""Which skills fit, which are shortened, and what is said about the rest?

    1. Everything in full, if that fits.
    2. All descriptions cut to one common length; short ones stay whole.
    3. If even stubs do not fit for all: every name, and descriptions for the first of them.
    4. If not even the names fit: as many names as fit, and the rest as a count.

Pinned skills come first and in full. All others keep the order they are given in, which is the
order of the locations. How often a skill was used plays no part: a skill that was never used must
stay findable, or it never will be; and a block that follows usage changes from turn to turn, which
costs the provider's prompt cache.

Nothing here looks at more skills than could be listed, plus one fixed sample.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from satchel.catalogue.candidate import Candidate, shown_name
from satchel.catalogue.render import TOPICS, Counts, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.catalogue.budget import Budget
    from satchel.catalogue.render import Form
    from satchel.skill.model import Skill

STUB = 24
"""Shorter than this, a description says nothing and the name alone is better."""
_FULL = sys.maxsize
_NAME = 0
_TOPIC_ROOM = 160
_TOPIC_SHARE = 50
"""Topics take at most a fiftieth of the budget."""
_TOPIC_LEAST = 12
"""And none are named where not even one word would fit."""


class Choice(NamedTuple):
    """The block's parts, ready to be joined, and whose they are."""

    entries: list[str]
    names: list[str]
    note: str
    full: tuple[str, ...]
    shortened: tuple[str, ...]
    named: tuple[str, ...]
    unlisted: int


class Chooser:
    """Decides for one set of skills, one budget and one form."""

    def __init__(
        self,
        skills: Sequence[Skill],
        pinned: Sequence[Skill],
        offered: int,
        form: Form,
        scale: Budget,
    ) -> None:
        """Take what there is to choose from.

        Args:
            skills: All skills, those withheld from models among them.
            pinned: Those that come first; none of them withheld.
            offered: How many of `skills` are not withheld.
            form: How the block is written.
            scale: How much room there is.
        """
        self._skills = skills
        self._pinned = pinned
        self._pinned_names = frozenset(skill.head.name for skill in pinned)
        self._offered = offered
        self._form = form
        self._scale = scale
        self._names_frame = scale.weigh(form.names_head + form.names_tail)

    def choose(self) -> Choice | None:
        """The best block that fits; None when the intro and the counts alone are too much."""
        candidates: list[Candidate] = []
        unshown = spent = 0
        room = self._room(unlisted=False)
        for candidate in self._candidates():
            if candidate is None:
                unshown += 1
                room = self._room(unlisted=True)
            else:
                candidates.append(candidate)
                spent += candidate.name_cost
            if spent + unshown > room:
                return self._choose_some(candidates)
        limits = self._share_out(candidates, room)
        if limits is None:
            return self._choose_some(candidates)
        return self._write(list(zip(candidates, limits, strict=True)), ())

    def _room(self, *, unlisted: bool) -> int:
        """What is left for entries and names; the counts are reserved at their widest."""
        most = self._offered
        tail = self._form.tail(note(Counts(most, most, most, most if unlisted else 0)))
        return self._scale.room - self._scale.weigh(
            self._form.head + self._form.entries_head + tail
        )

    def _candidates(self) -> Iterator[Candidate | None]:
        """The offered skills in order; None for one whose name cannot be shown."""
        for place, skill in self._in_order():
            shown = shown_name(skill)
            yield Candidate(skill, shown, place, self._form, self._scale) if shown else None

    def _in_order(self) -> Iterator[tuple[int, Skill]]:
        for skill in self._pinned:
            yield -1, skill
        for place, skill in enumerate(self._skills):
            if not self._skip(skill):
                yield place, skill

    def _skip(self, skill: Skill) -> bool:
        return skill.head.name in self._pinned_names or not skill.for_model

    def _share_out(self, candidates: Sequence[Candidate], room: int) -> list[int] | None:
        """A length for every candidate's description, 0 for the name alone.

        None when not even the names fit.
        """
        if _total(candidates, _FULL, room) <= room:
            return [_FULL] * len(candidates)
        start = STUB
        spent = _total(candidates, STUB, room)
        if spent > room:
            start = _NAME
            spent = self._names_frame + sum(candidate.name_cost for candidate in candidates)
            if spent > room:
                return None
        limits = [start] * len(candidates)
        for at, candidate in enumerate(candidates):
            if candidate.place < 0:
                spent, limits[at] = _improve(candidate, start, _FULL, spent, room)
        for at, candidate in enumerate(candidates):
            if limits[at] == _NAME:
                spent, limits[at] = _improve(candidate, _NAME, STUB, spent, room)
                if limits[at] == _NAME:
                    break
        stubs = [candidate for at, candidate in enumerate(candidates) if limits[at] == STUB]
        level = _level(stubs, room - spent + _total(stubs, STUB, room))
        return [level if limit == STUB else limit for limit in limits]

    def _choose_some(self, candidates: Sequence[Candidate]) -> Choice | None:
        """Pinned skills in full, then names, then a count and a few words about the rest."""
        room = self._room(unlisted=True)
        if room < 0:
            return None
        topic_room = self._topic_room(room)
        left = room - topic_room
        spent = 0
        chosen: list[tuple[Candidate, int]] = []
        rest: list[Candidate] = []
        for candidate in candidates:
            if candidate.place < 0 and spent + candidate.description.cost(_FULL) <= left:
                spent += candidate.description.cost(_FULL)
                chosen.append((candidate, _FULL))
            else:
                rest.append(candidate)
        spent += self._names_frame
        begin = len(self._skills)
        for candidate in rest:
            spent += candidate.name_cost
            if spent > left:
                begin = max(candidate.place, 0)
                break
            chosen.append((candidate, _NAME))
        return self._write(chosen, self._topics(begin, topic_room))

    def _topic_room(self, room: int) -> int:
        """What the words about the rest may take."""
        most = min(_TOPIC_ROOM, self._scale.room // _TOPIC_SHARE, room)
        return most if most >= self._scale.weigh(TOPICS) + _TOPIC_LEAST else 0

    def _topics(self, begin: int, room: int) -> list[str]:
        """Words about what is not listed, as many as there is room for."""
        words: list[str] = []
        if not room:
            return words
        room -= self._scale.weigh(f"{TOPICS}.")
        for word in topics(self._skills, begin, self._skip, self._scale.room):
            room -= self._scale.weigh(f"{word}, ")
            if room < 0:
                break
            words.append(word)
        return words

    def _write(self, chosen: Sequence[tuple[Candidate, int]], words: Sequence[str]) -> Choice:
        entries: list[str] = []
        names: list[str] = []
        full: list[str] = []
        shortened: list[str] = []
        named: list[str] = []
        for candidate, limit in chosen:
            name = candidate.skill.head.name
            if limit == _NAME:
                names.append(candidate.name)
                named.append(name)
            else:
                entries.append(candidate.description.write(limit))
                (full if candidate.description.is_full(limit) else shortened).append(name)
        unlisted = self._offered - len(chosen)
        counts = Counts(len(full), len(shortened), len(named), unlisted)
        return Choice(
            entries,
            names,
            note(counts, words),
            tuple(full),
            tuple(shortened),
            tuple(named),
            unlisted,
        )


def _total(candidates: Sequence[Candidate], limit: int, enough: int) -> int:
    """The price of all entries at one length; counting stops beyond `enough`."""
    spent = 0
    for candidate in candidates:
        spent += candidate.description.cost(limit)
        if spent > enough:
            break
    return spent


def _improve(candidate: Candidate, old: int, new: int, spent: int, room: int) -> tuple[int, int]:
    """Describe a candidate at a greater length if that fits: the new total and its length."""
    description = candidate.description
    before = candidate.name_cost if old == _NAME else description.cost(old)
    total = spent - before + description.cost(new)
    return (total, new) if total <= room else (spent, old)


def _level(candidates: Sequence[Candidate], room: int) -> int:
    """The greatest common length that fits; a stub is known to."""
    low, high = STUB, max((len(item.description.text) for item in candidates), default=STUB)
    while low < high:
        middle = (low + high + 1) // 2
        if _total(candidates, middle, room) <= room:
            low = middle
        else:
            high = middle - 1
    return max(low, STUB)


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
