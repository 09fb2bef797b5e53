"""WHAT A SKILL IS: from the bytes of a SKILL.md to a record, its problems and its body.

Reading order: `model` (the records), `head` (the fast scan), `frontmatter` (the real parser, and
what broken files still say), `validate` (everything an author should know).
Tool skills: `manifest` (what a skill.yaml declares), `manifest_read` (from its bytes to that).
"""

from __future__ import annotations

from satchel.skill.model import Document, Head, Origin, Skill
from satchel.skill.problems import PROBLEMS, Problem, Rule, Severity

__all__ = ["PROBLEMS", "Document", "Head", "Origin", "Problem", "Rule", "Severity", "Skill"]
