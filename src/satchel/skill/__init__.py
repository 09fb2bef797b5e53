"""Parsing and validation of SKILL.md and skill.yaml files.

Reading order: `document` and `model` (records), `header` (fast scan), `reader` (whole files),
`frontmatter` (YAML and repairs), `metadata` (name and description), `validate` (all problems). Tool
skills: `manifest` (records of a skill.yaml), `manifest_parser`.
"""

from __future__ import annotations

from satchel.skill.document import SkillDocument, SkillHeader
from satchel.skill.model import Skill, SkillOrigin
from satchel.skill.problems import PROBLEMS, Problem, ProblemRule, Severity

__all__ = [
    "PROBLEMS",
    "Problem",
    "ProblemRule",
    "Severity",
    "Skill",
    "SkillDocument",
    "SkillHeader",
    "SkillOrigin",
]
