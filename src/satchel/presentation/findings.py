"""Records of problems and scan findings: what each means, how to fix it, and where it is.

Paths and evidence are untrusted text, which the renderers escape.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.i18n import say
from satchel.presentation.skill_lookup import skills_called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.satchel import Satchel
    from satchel.security import Finding
    from satchel.skill.model import Skill

MAX_LOCATIONS_SHOWN = 50
TONES = {
    "error": "bad", "block": "bad", "blocked": "bad",
    "warning": "warn", "review": "warn", "incomplete": "warn",
    "note": "info", "no findings": "good",
}  # fmt: skip
"""Severity or verdict -> tone."""
SYMBOLS = {"bad": "✗", "warn": "▲", "info": "·", "plain": "·", "good": "✓", "none": "○"}
"""Tone -> symbol, so that it is not shown by colour alone."""


class FindingShown(NamedTuple):
    """One finding of the scan."""

    rule: str
    severity: str
    tone: str
    symbol: str
    location: str
    message: str
    fix: str
    evidence: str


def show_finding(finding: Finding) -> FindingShown:
    """Return the record of one finding."""
    rule = finding.about
    tone = TONES[finding.severity]
    return FindingShown(
        rule=finding.rule,
        severity=say(finding.severity),
        tone=tone,
        symbol=SYMBOLS[tone],
        location=location_of(finding),
        message=say(rule.what),
        fix=say(rule.fix),
        evidence=finding.evidence,
    )


def location_of(finding: Finding) -> str:
    """Return path and line of a finding."""
    return f"{finding.path}:{finding.line}" if finding.line else finding.path


class FindingLocation(NamedTuple):
    """One location of a problem or finding."""

    location: str
    """The shortest path, with its line."""
    ref: str = ""
    name: str = ""
    message: str = ""
    """What is wrong there. May be untrusted text."""
    fix: str = ""
    """How to fix it there, if that differs between locations."""


class FindingGroup(NamedTuple):
    """All locations of one kind of problem or finding."""

    key: str
    severity: str
    tone: str
    total: int
    message: str
    fix: str
    locations: list[FindingLocation]

    @property
    def symbol(self) -> str:
        """A symbol, so that the tone is not shown by colour alone."""
        return SYMBOLS[self.tone]

    @property
    def hidden_count(self) -> int:
        """Number of locations not shown."""
        return self.total - len(self.locations)


def group_findings(findings: Iterable[tuple[Skill | None, Finding]]) -> list[FindingGroup]:
    """Group findings by rule, in the order of their first location."""
    by_rule: dict[str, list[tuple[Skill | None, Finding]]] = {}
    for skill, finding in findings:
        by_rule.setdefault(finding.rule, []).append((skill, finding))
    return [_make_group(same_rule) for same_rule in by_rule.values()]


def _make_group(findings: list[tuple[Skill | None, Finding]]) -> FindingGroup:
    """Return the group of findings of the same rule."""
    first = findings[0][1]
    rule = first.about
    locations = [
        FindingLocation(
            location_of(finding),
            skill.ref if skill is not None else "",
            skill.name if skill is not None else "",
            finding.evidence,
        )
        for skill, finding in findings[:MAX_LOCATIONS_SHOWN]
    ]
    return FindingGroup(
        key=first.rule,
        severity=say(rule.severity),
        tone=TONES[rule.severity],
        total=len(findings),
        message=say(rule.what),
        fix=say(rule.fix),
        locations=locations,
    )


def short_path(path: str, project: str, line: int = 0) -> str:
    """Shorten a path relative to the project or the home folder."""
    home = os.path.expanduser("~")
    if path != project and is_inside(path, project):
        path = os.path.relpath(path, project)
    elif path != home and is_inside(path, home):
        path = os.path.join("~", os.path.relpath(path, home))
    return f"{path}:{line}" if line else path


def skill_at(satchel: Satchel, path: str) -> Skill | None:
    """Return the skill that a file or folder belongs to."""
    if not os.path.isabs(path):
        return None
    skills = skills_called(satchel, path) or skills_called(satchel, os.path.dirname(path))
    return skills[0] if skills else None


def generic_text(template: str) -> str:
    """Return a message template with its placeholders left out."""
    return re.sub(r"\{\w+\}", "…", say(template))
