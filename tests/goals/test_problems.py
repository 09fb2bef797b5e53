"""What is wrong with a plan is said in the reader's language, down to the last word of ours."""

from __future__ import annotations

import pytest

from satchel.goals.graph import POLICIES, check
from satchel.goals.model import Plan, Step
from satchel.goals.plan_file import read_plan
from satchel.goals.problems import Problem


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")


@pytest.mark.usefixtures("chinese")
def test_where_something_stands_is_translated():
    text = "goal: g\nretry: {x: 1}\nsteps: [{id: a, prompt: x, retry: {y: 1}}]"
    _, found = read_plan(text)
    messages = [problem.message for problem in found]
    assert len(messages) == 2
    for message in messages:
        for phrase in ("`retry` of", "step `a`", "the plan"):
            assert phrase not in message


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    "output",
    [
        {"type": "text"},
        {"maximum": "x"},
        {"enum": 1},
        {"pattern": "(a+)+"},
        {"pattern": "a" * 2000},
    ],
)
def test_why_a_schema_is_refused_is_translated(output):
    (problem,) = check(Plan("g", (Step("a", prompt="x", output=output),)))
    said = problem.message
    english = problem.values["reason"]
    assert english not in said
    assert english in problem.for_model()[0]


@pytest.mark.usefixtures("chinese")
def test_words_of_a_plan_are_not_ours():
    problem = Problem("not-yaml", values={"reason": "it is no mapping"})
    assert "it is no mapping" in problem.message
    wanted = ", ".join(f"`{one}`" for one in POLICIES)
    values = {"key": "k", "value": "the plan", "where": "the plan", "wanted": wanted}
    odd = Problem("bad-choice", values=values)
    assert "`the plan`" in odd.message
