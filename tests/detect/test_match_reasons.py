"""Evidence: words as the skill spells them, looked for and not cut."""

from __future__ import annotations

import pytest

from in_memory import skill
from satchel.detect.match_reasons import LowercaseHeaders, QueryTerms, explain
from satchel.detect.tokenizer import GoalText


def evidence(one, goal: str, **parts: float) -> tuple[str, ...]:
    return explain(one, LowercaseHeaders().of(one), QueryTerms(GoalText(goal).terms), parts)[1]


@pytest.mark.parametrize(
    ("text", "goal", "words"),
    [
        ("Reviews contracts.", "review this contract", ["reviews", "contracts"]),
        ("Previews only.", "review this", []),
        ("Lists libraries.", "a library", ["libraries"]),
        ("审查合同条款", "合同", ["合同"]),
        ("नोटबुकहरू बनाउन", "बनाउन नोटबुकहरू", ["बनाउन", "नोटबुकहरू"]),
        ("Ｐｄｆ forms", "pdf", ["pdf"]),
    ],
)
def test_words_are_told_as_the_skill_spells_them(text, goal, words):
    assert list(evidence(skill("x", text), goal)) == [f"description: {word}" for word in words]


def test_a_word_is_told_once_and_by_its_first_field():
    one = skill("pdf-forms", "Fills in PDF forms.", when_to_use="A form is empty.")
    told = ("name: pdf", "name: forms", "description: fills", "when_to_use: empty")
    assert evidence(one, "fill the empty PDF form") == told
