"""What does the detector hear that listens for names? Shared by the tests of calls and denials."""

from __future__ import annotations

from satchel.detect import ExplicitDetector
from satchel.skill import Head, Origin, Skill

ORIGIN = Origin("/skills", "project", "skills")
DETECTOR = ExplicitDetector()
NAMES = (
    "api", "code-review", "debug", "deploy", "docker", "docx", "excel", "git", "pdf", "pdf-forms",
    "python", "react", "release-notes", "review", "search", "sql", "test", "翻译",
)  # fmt: skip
"""Names that are words of every day: what is a call is hardest to tell there."""


def skill(name: str, folder: str = "", origin: Origin = ORIGIN) -> Skill:
    return Skill(Head(name, "d", folder or name, "SKILL.md", 0, 0, 0), origin)


COMMON = tuple(skill(name) for name in NAMES)


def heard(goal: str, skills: tuple[Skill, ...] = COMMON) -> str:
    """What was heard in short: `+pdf -docx ?foo`."""
    found = DETECTOR.heard(goal, skills)
    parts = [f"+{one.skill.name}" for one in found.wanted]
    parts += [f"-{one.skill.name}" for one in found.unwanted]
    parts += [f"?{one.name}" for one in found.unknown]
    return " ".join(parts)
