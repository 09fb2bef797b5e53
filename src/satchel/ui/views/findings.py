"""Problems and findings as pages show them: what each means, what to do, and where it is."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel._language import say
from satchel.tools.frame import printable

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.security import Finding
    from satchel.skill.model import Skill

SHOWN = 50
"""Places of one kind that are shown."""
MOODS = {
    "error": "bad", "block": "bad", "blocked": "bad",
    "warning": "warn", "review": "warn", "incomplete": "warn",
    "note": "info", "no findings": "good",
}  # fmt: skip
"""Severity or verdict -> how it is coloured."""
MARKS = {"bad": "✗", "warn": "▲", "info": "·", "good": "✓", "none": "○"}


class FindingShown(NamedTuple):
    """One thing that the scan found."""

    rule: str
    severity: str
    """As people read it."""
    tone: str
    mark: str
    where: str
    what: str
    why: str
    fix: str
    evidence: str
    """A piece of the file: untrusted text."""


def show_finding(one: Finding) -> FindingShown:
    """One finding in the reader's language."""
    about = one.about
    tone = MOODS[one.severity]
    words = {"block": say("blocks"), "review": say("look at it"), "note": say("note")}
    where = f"{one.path}:{one.line}" if one.line else one.path
    return FindingShown(
        one.rule, words[one.severity], tone, MARKS[tone], printable(where), say(about.what),
        say(about.why), say(about.fix), printable(one.evidence),
    )  # fmt: skip


class Place(NamedTuple):
    """Where it is."""

    where: str
    """A path as short as it can be, with its line."""
    ref: str = ""
    """The skill's, where it is one."""
    name: str = ""
    words: str = ""
    """What is wrong there. May be a stranger's text."""
    fix: str = ""
    """What to do there, where that is not the same everywhere."""


class Group(NamedTuple):
    """One kind of thing that is wrong."""

    key: str
    severity: str
    """As people read it."""
    mood: str
    number: int
    words: str
    """What it means."""
    fix: str
    places: list[Place]
    why: str = ""

    @property
    def mark(self) -> str:
        """A sign for those who see no colours."""
        return MARKS[self.mood]

    @property
    def more(self) -> int:
        """Places that are not shown."""
        return self.number - len(self.places)


def shown_path(path: str, project: str, line: int = 0) -> str:
    """A path as people know it: from the project, or from their home."""
    home = os.path.expanduser("~")
    if path != project and is_inside(path, project):
        path = os.path.relpath(path, project)
    elif path != home and is_inside(path, home):
        path = os.path.join("~", os.path.relpath(path, home))
    return f"{path}:{line}" if line else path


def skill_at(satchel: Satchel, path: str) -> Skill | None:
    """The skill whose file or folder it is."""
    for one in (path, os.path.dirname(path)):
        found = satchel.library.find(one) if os.path.isabs(one) else []
        here = [skill for skill in found if one in (skill.path, skill.base_dir)]
        if here:
            return here[0]
    return None


def in_general(template: str) -> str:
    """A sentence without what differs from place to place."""
    return re.sub(r"\{\w+\}", "…", say(template))
