"""A small library whose skills are told apart at a glance, and a detector that is foreseen."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from satchel import Satchel
from satchel.detect import BaseDetector, Match
from satchel.skill.triggers import Prompt
from satchel.testing import make_skill

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from satchel.skill import Skill

SKILLS = {
    "code-review": "Reviews source code for bugs, security holes and style.",
    "git-helper": "Explains a diff, a branch or a merge conflict, and opens a pull request.",
    "release-notes": "Writes release notes from commits when a version is published.",
    "pdf-forms": "Fills in PDF forms and extracts their fields.",
    "translation": "Translates text between German, French and Spanish.",
    "spreadsheets": "Builds spreadsheets with formulas, charts and pivot tables.",
}


def make_library(folder: Path, more: dict[str, str] | None = None) -> Satchel:
    """A project with these skills, all of them trusted."""
    for name, text in {**SKILLS, **(more or {})}.items():
        make_skill(folder / ".agents/skills", name, text)
    return Satchel.for_project(folder, trust="all", builtin=False)


def should(*texts: str) -> list[Prompt]:
    """Prompts that should choose the skill."""
    return [Prompt(text, fires=True, line=at) for at, text in enumerate(texts, 1)]


def should_not(*texts: str, instead: str = "") -> list[Prompt]:
    """Prompts that should not."""
    return [Prompt(text, fires=False, line=at, instead=instead) for at, text in enumerate(texts, 1)]


class Counting(BaseDetector):
    """Chooses the two skills that share most words with the goal: a user's own, with one method."""

    def __init__(self) -> None:
        self.asked = 0

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        self.asked += 1
        wanted = _words(goal_text)
        found: list[Match] = []
        for skill in skills:
            both = sorted(wanted & _words(f"{skill.name} {skill.description}"))
            if both:
                evidence = tuple(f"description: {word}" for word in both)
                found.append(Match(skill.name, len(both), "", evidence, skill))
        return sorted(found, key=lambda match: (-match.score, match.name))[:2]


def _words(text: str) -> set[str]:
    words = re.findall(r"[a-z]{4,}", text.lower())
    dense = re.findall(r"[\u4e00-\u9fff]", text)
    return {*words, *(one + other for one, other in pairwise(dense))}
