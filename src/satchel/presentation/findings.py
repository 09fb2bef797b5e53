"""Records of problems and scan findings: what each means, how to fix it, and where it is.

Paths and evidence are untrusted text, which the renderers escape.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.errors import SatchelError
from satchel.i18n import say
from satchel.presentation.skills import skills_called

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.library import Library
    from satchel.satchel import Satchel
    from satchel.security import Finding, ScanReport
    from satchel.skill.model import Skill, SkillDocument
    from satchel.skill.problems import Problem

MAX_PLACES_SHOWN = 50
TONES = {
    "error": "bad", "block": "bad", "blocked": "bad",
    "warning": "warn", "review": "warn", "incomplete": "warn",
    "note": "info", "no findings": "good",
}  # fmt: skip
"""Severity or verdict -> tone."""
MARKS = {"bad": "✗", "warn": "▲", "info": "·", "plain": "·", "good": "✓", "none": "○"}
"""Tone -> symbol, so that it is not shown by colour alone."""
FIELD_PROBLEMS = frozenset(("inert-field", "unknown-field"))


class FindingShown(NamedTuple):
    """One finding of the scan."""

    rule: str
    severity: str
    tone: str
    mark: str
    where: str
    what: str
    fix: str
    evidence: str


def show_finding(one: Finding) -> FindingShown:
    """Return the record of one finding."""
    about = one.about
    tone = TONES[one.severity]
    return FindingShown(
        one.rule, say(one.severity), tone, MARKS[tone], place_of(one), say(about.what),
        say(about.fix), one.evidence,
    )  # fmt: skip


def place_of(finding: Finding) -> str:
    """Return path and line of a finding."""
    return f"{finding.path}:{finding.line}" if finding.line else finding.path


def unscanned_report(exc: SatchelError | OSError) -> ScanReport:
    """Return the report of a skill that could not be scanned."""
    from satchel.security import ScanReport

    reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
    return ScanReport("incomplete", unscanned=((".", reason),))


class FindingPlace(NamedTuple):
    """One place of a problem or finding."""

    where: str
    """The shortest path, with its line."""
    ref: str = ""
    name: str = ""
    words: str = ""
    """What is wrong there. May be untrusted text."""
    fix: str = ""
    """How to fix it there, if that differs between places."""


class FindingGroup(NamedTuple):
    """All places of one kind of problem or finding."""

    key: str
    severity: str
    mood: str
    number: int
    words: str
    fix: str
    places: list[FindingPlace]

    @property
    def mark(self) -> str:
        """A symbol, so that the tone is not shown by colour alone."""
        return MARKS[self.mood]

    @property
    def more(self) -> int:
        """Number of places not shown."""
        return self.number - len(self.places)


def group_findings(found: Iterable[tuple[Skill | None, Finding]]) -> list[FindingGroup]:
    """Group findings by rule, in the order of their first place."""
    by_rule: dict[str, list[tuple[Skill | None, Finding]]] = {}
    for row in found:
        by_rule.setdefault(row[1].rule, []).append(row)
    return [_group(rule, rows) for rule, rows in by_rule.items()]


def _group(rule: str, rows: list[tuple[Skill | None, Finding]]) -> FindingGroup:
    about = rows[0][1].about
    places = [
        FindingPlace(
            place_of(one),
            skill.ref if skill is not None else "",
            skill.name if skill is not None else "",
            one.evidence,
        )
        for skill, one in rows[:MAX_PLACES_SHOWN]
    ]
    return FindingGroup(
        rule,
        say(about.severity),
        TONES[about.severity],
        len(rows),
        say(about.what),
        say(about.fix),
        places,
    )


def shown_path(path: str, project: str, line: int = 0) -> str:
    """Shorten a path relative to the project or the home folder."""
    home = os.path.expanduser("~")
    if path != project and is_inside(path, project):
        path = os.path.relpath(path, project)
    elif path != home and is_inside(path, home):
        path = os.path.join("~", os.path.relpath(path, home))
    return f"{path}:{line}" if line else path


def unique_problems(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Drop duplicates: the scan and the deep check may both find a problem."""
    seen: set[tuple[object, ...]] = set()
    for problem in problems:
        key = (*problem[:3], tuple(sorted(problem.values.items())))
        if key not in seen:
            seen.add(key)
            yield problem


def document_problems(library: Library, skill: Skill, document: SkillDocument) -> list[Problem]:
    """Return the problems of a skill's text, and of its content if that was changed."""
    from satchel.doctor import content_problem
    from satchel.skill.validate import check_document

    problems = list(document.problems) if skill.is_tool else list(check_document(document))
    changed = content_problem(library, skill)
    return problems if changed is None else [changed, *problems]


def skill_at(satchel: Satchel, path: str) -> Skill | None:
    """Return the skill that a file or folder belongs to."""
    for one in (path, os.path.dirname(path)) if os.path.isabs(path) else ():
        if found := skills_called(satchel, one):
            return found[0]
    return None


def generic_text(template: str) -> str:
    """Return a message template with its placeholders left out."""
    return re.sub(r"\{\w+\}", "…", say(template))
