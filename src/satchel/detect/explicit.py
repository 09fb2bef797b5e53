"""The detector that listens: which skills does the goal call by name, and which does it rule out?

Heard are `use skill X`, `use the X skill`, `skill: X`, `--skill X`, `$X`, `/X`, 「使用 X 技能」,
「Xスキルを使って」, "X 스킬을 사용" and their kin. `@X` alone is not: everywhere else it means a
person or a file. A plain word is only a name where the goal says that it is a skill; one that looks
like a name (`pdf-forms`, in quotes, after `$`) may also follow a bare "use". What is ruled out ("do
not use X", "without X", 不要用 X) is never chosen, whatever else the goal says about it. A question
("why did you use X?", "can I use X?"), a report ("it does not run with X") and talk about a skill
("a problem with the X skill") are no orders. The other detectors search with what is left of the
goal without all that.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import Answer, Match
from satchel.detect.idle import IDLE, IDLE_SIGNS, IDLE_WORDS
from satchel.detect.merging import EXPLICIT
from satchel.detect.notes import (
    BOTH,
    MEANT,
    NO_SKILL,
    NO_SUCH,
    NO_SUCH_MORE,
    NO_SUCH_NEAR,
    OUT_OF_SCOPE,
    PEOPLE_ONLY,
    RULED_OUT,
    RULED_OUT_MORE,
    UNHEARD,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.skill import Skill

_MAY_CALL = re.compile(
    "skill|[$/`\"'\\d_:-]|[^\\0-\\x7f]|\\b(?:no|not|never|nor|neither|without|instead|rather|"
    "other than|anything but|place of|avoid|skip|ignore|disable|exclud|omit|drop|bypass|dont|"
    "cannot|stop|quit|refrain|forbidden|banned|prohibited|off|sans|au lieu|ohne|statt|anstatt|sin|"
    "sem|vez|pas|nicht|kein)",
    re.IGNORECASE,
).search
"""A goal without any of this calls nobody: most goals need no table of names."""
_DENIED = re.compile(r"There is no skill `([^`]+)`").match
_LETTERS = re.compile(r"[^\W_]+").findall
_UNKNOWN = 3
"""Names without a skill that are told one by one."""
_LEFT_OUT = 8
"""Skills that are ruled out and told one by one."""


class Named(NamedTuple):
    """A skill that was named, and the words that did it."""

    skill: Skill
    said: str


class Unknown(NamedTuple):
    """A name that no skill has."""

    name: str
    near: tuple[str, ...] = ()
    """Names that are written much like it."""


class Heard(NamedTuple):
    """What a goal says about skills by name."""

    wanted: tuple[Named, ...] = ()
    unwanted: tuple[Named, ...] = ()
    """Never chosen for this goal, by any detector."""
    unknown: tuple[Unknown, ...] = ()
    notes: tuple[str, ...] = ()
    """What a person should know about it."""
    meant: tuple[Named, ...] = ()
    """Whose name differs by one slip of the pen from a name that no skill has."""
    none: bool = False
    """No skill at all is wanted."""
    rest: str | None = None
    """The goal without what it says about skills by name; None when it says nothing of the kind."""

    @property
    def ruled_out(self) -> frozenset[str]:
        """The names of the unwanted ones."""
        return frozenset(one.skill.name for one in self.unwanted)


NOTHING = Heard()


class ExplicitDetector:
    """Chooses what is called by name, and nothing else."""

    name = EXPLICIT

    def __init__(self) -> None:
        from satchel.detect.names import NamesKept

        self._names = NamesKept()

    def heard(self, goal_text: str, skills: Sequence[Skill]) -> Heard:
        """What the goal wants by name, what it rules out, and which names nothing has."""
        if not skills or _MAY_CALL(goal_text) is None:
            return NOTHING
        from satchel.detect.calls import listen

        names = self._names.of(skills)
        spoken = listen(goal_text, names)
        if not spoken.said:
            if spoken.unheard:
                return Heard(notes=(UNHEARD.format(count=spoken.unheard),))
            return NOTHING
        wanted: dict[int, str] = {}
        unwanted: dict[int, str] = {}
        for call in spoken.calls:
            (wanted if call.wanted else unwanted).setdefault(call.at, call.said)
        notes: list[str] = []
        unknown = list(spoken.unknown)
        told = tuple(Unknown(name, tuple(names.near(name))) for name in unknown[:_UNKNOWN])
        slips = {names.meant(one.name): one.name for one in told}
        for one in told:
            close = ", ".join(f"`{name}`" for name in one.near)
            text = NO_SUCH_NEAR if close else NO_SUCH
            notes.append(text.format(name=one.name, names=close))
        if len(unknown) > _UNKNOWN:
            notes.append(NO_SUCH_MORE.format(count=len(unknown) - _UNKNOWN))
        notes += [BOTH.format(name=skills[at].name) for at in wanted if at in unwanted]
        chosen = [Named(skills[at], said) for at, said in wanted.items() if at not in unwanted]
        notes += _left_out([skills[at].name for at in unwanted if at not in wanted])
        none = spoken.none and not chosen
        if none:
            notes.append(NO_SKILL)
        if spoken.unheard:
            notes.append(UNHEARD.format(count=spoken.unheard))
        return Heard(
            tuple(chosen),
            tuple(Named(skills[at], said) for at, said in unwanted.items()),
            told,
            tuple(notes),
            tuple(
                Named(skills[at], said)
                for at, said in slips.items()
                if at is not None and at not in unwanted
            ),
            none,
            spoken.rest(),
        )

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """The skills that the goal calls by name, in the order of the goal."""
        return as_matches(self.heard(goal_text, skills))

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The same, with a note for every name that no skill has."""
        began = time.perf_counter()
        heard = self.heard(goal_text, skills)
        found = as_matches(heard)
        took = (time.perf_counter() - began) * 1e3
        others = [] if found or heard.none else suggested(heard)
        return Answer(found, others, 1.0 if found else 0.0, 0.0, self.name, took, heard.notes)


def _left_out(names: list[str]) -> list[str]:
    """A note for each that is ruled out, and one for all that are too many."""
    notes = [RULED_OUT.format(name=name) for name in names[:_LEFT_OUT]]
    if len(names) > _LEFT_OUT:
        notes.append(RULED_OUT_MORE.format(count=len(names) - _LEFT_OUT))
    return notes


def as_matches(heard: Heard) -> list[Match]:
    """What is wanted, as matches; each is as sure as the other."""
    return [
        Match(
            one.skill.name,
            1.0,
            f"called by name: `{one.said}`",
            (f"goal: {one.said}",),
            one.skill,
            EXPLICIT,
        )
        for one in heard.wanted
    ]


def suggested(heard: Heard) -> list[Match]:
    """Who was perhaps meant by a name that no skill has: to be named, and not to be chosen."""
    return [
        Match(one.skill.name, 0.0, MEANT.format(said=one.said), (), one.skill, EXPLICIT)
        for one in heard.meant
    ]


def says_something(text: str) -> bool:
    """Whether anything is left to search with: `please do it` says nothing."""
    for word in _LETTERS(text.lower()):
        if word.isascii():
            if word not in IDLE:
                return True
        elif not IDLE_SIGNS.issuperset(_eastern().sub("", word)):
            return True
    return False


@cache
def _eastern() -> re.Pattern[str]:
    """Words that say nothing, the longest first."""
    words = sorted((word for word in IDLE_WORDS if len(word) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)))


def search_words(heard: Heard, goal_text: str) -> str:
    """What a search of skills, which always finds somebody, should search with."""
    rest = goal_text if heard.rest is None else heard.rest
    if says_something(rest):
        return rest
    return " ".join(one.name for one in heard.unknown) or goal_text


def set_right(
    notes: Iterable[str], offered: Sequence[Skill], everything: Iterable[Skill]
) -> tuple[str, ...]:
    """The notes, where "there is no skill X" is said only of what is really not there.

    Args:
        notes: Of an answer.
        offered: The skills that the detector was given.
        everything: All that the library has.
    """
    notes = tuple(notes)
    denied = {found[1]: note for note in notes if (found := _DENIED(note)) is not None}
    if not denied:
        return notes
    from satchel.detect.names import key_of

    keys = {key_of(name): note for name, note in denied.items()}
    here = {skill.path for skill in offered}
    truth: dict[str, str] = {}
    for skill in everything:
        head = skill.head
        note = keys.get(key_of(head.name)) or keys.get(key_of(head.id))
        if note is not None and skill.path not in here:
            sentence = OUT_OF_SCOPE if skill.for_model else PEOPLE_ONLY
            truth.setdefault(note, sentence.format(name=head.name))
    return tuple(truth.get(note, note) for note in notes)
