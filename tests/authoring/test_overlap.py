"""Skills that take each other's requests are found, the same from either side, with their words."""

from __future__ import annotations

from satchel.authoring.overlap import find_overlap
from satchel.detect import HybridDetector
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill, SkillOrigin

ORIGIN = SkillOrigin("/nowhere", "extra", "here")
DESCRIPTIONS = {
    "code-review": "Reviews pull requests for bugs, security and style.",
    "review-changes": "Reviewing a pull request: bugs, tests and style.",
    "pdf-forms": "Fills in PDF forms.",
    "tables": "Extracts tables from PDF files.",
    "bake-bread": "Kneads dough and bakes loaves.",
    "hetong": "审查合同条款的风险。",
    "tiaokuan": "合同条款的风险审查",
}
SKILLS = [
    Skill(SkillHeader(name, text, name, "SKILL.md", 0, 0, 0), ORIGIN)
    for name, text in DESCRIPTIONS.items()
]


def test_pairs_are_near_duplicates_first_and_name_the_shared_words():
    found = find_overlap(SKILLS, HybridDetector())
    copies, close = found.pairs
    assert (copies.first.name, copies.other.name, copies.is_near_copy) == (
        "hetong",
        "tiaokuan",
        True,
    )
    assert (close.first.name, close.other.name, close.is_near_copy) == (
        "code-review",
        "review-changes",
        False,
    )
    assert 0.5 < close.score < 1
    assert {"pull", "bugs", "style"} <= set(close.shared)
    assert (found.skill_count, found.is_cut) == (7, False)
    assert find_overlap(SKILLS, HybridDetector(), limit=1).is_cut


def test_one_skill_has_the_same_pairs_as_in_the_whole_library():
    (pair,) = find_overlap(SKILLS, HybridDetector(), SKILLS[1]).pairs
    assert (pair.first.name, pair.other.name) == ("review-changes", "code-review")
    assert find_overlap(SKILLS, HybridDetector(), SKILLS[4]).pairs == []
