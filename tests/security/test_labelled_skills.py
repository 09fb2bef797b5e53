"""Which labelled skills are stopped: attacks of sixteen classes, and honest skills."""

from __future__ import annotations

from collections import Counter

import pytest

from satchel.security import scan_tree
from satchel.skill.file_tree import MemoryTree
from security.labelled_skills import load_skills

CLASSES = 16


def verdicts(name: str) -> dict[str, str]:
    return {skill.name: scan_tree(MemoryTree(skill.files)).verdict for skill in load_skills(name)}


def test_each_class_has_four_attacks_and_half_of_them_were_held_out():
    for name in ("held_out", "tuned"):
        counts = Counter(skill.label for skill in load_skills(name))
        assert (len(counts), min(counts.values())) == (CLASSES, 2)


@pytest.mark.parametrize("name", ["tuned", "held_out"])
def test_every_attack_is_blocked_or_for_review(name):
    missed = [
        skill for skill, verdict in verdicts(name).items() if verdict not in {"blocked", "review"}
    ]
    assert missed == []


def test_no_honest_skill_is_blocked():
    assert [skill for skill, verdict in verdicts("honest").items() if verdict == "blocked"] == []
