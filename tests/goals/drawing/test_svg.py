"""Drawings of plans: valid files, hostile titles, states without colour."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from satchel.goals.drawing import to_inline_svg
from satchel.goals.labels import MARKS
from satchel.goals.model import GoalReport, Plan, Step, StepError, StepResult, Usage

HOSTILE = '"><script>alert(1)</script> & `x`\x00\x1b[31m\u202e]]>'
PLAN = Plan(
    "Report of the week",
    (
        Step("fetch", "tool", "Fetch numbers", tool="week_numbers"),
        Step("trends", "skill", "趋势分析", skill="trend-analysis", needs=("fetch",)),
        Step("odd", "llm", HOSTILE, prompt="Look at {{steps.fetch.output}}"),
        Step("review", "human", "Review", prompt="Well?", needs=("trends", "odd")),
    ),
)


def report(**states) -> GoalReport:
    steps = {step.id: StepResult(step.id, states.get(step.id, "waiting")) for step in PLAN.steps}
    return GoalReport("goal", "running", PLAN, steps)


def draw(goal: GoalReport) -> str:
    svg = to_inline_svg(goal, lambda step: f"/goals/goal?step={step}")
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')  # as in a page


def words_of(svg: str) -> list[str]:
    tree = ET.fromstring(svg)
    return [element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_an_svg_shows_every_step_and_every_need():
    svg = draw(report())
    tree = ET.fromstring(svg)
    assert len(tree.findall(".//{*}a/{*}rect")) == 4
    assert len(tree.findall(".//{*}g/{*}path")) == 4, "the one that a template mentions too"
    assert {
        "Fetch numbers",
        "tool week_numbers",
        "趋势分析",
        "skill trend-analysis",
        "a person",
    } <= set(words_of(svg))


def test_a_hostile_title_is_text():
    svg = draw(report())
    assert "<script" not in svg
    assert not re.search("[\x00-\x08\x1b\u202e]", svg)
    assert any("<script>" in word for word in words_of(svg))
    tree = ET.fromstring(svg)
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert kinds == {"svg", "a", "title", "defs", "marker", "path", "rect", "g", "text"}


@pytest.mark.parametrize("state", MARKS)
def test_a_state_has_a_mark_and_a_class(state):
    shown = draw(report(fetch=state))
    assert MARKS[state] in words_of(shown)
    assert f'<a class="{state}"' in shown


def test_what_a_step_took_and_why_it_failed_is_on_its_box():
    done = StepResult("fetch", "done", attempts=2, usage=Usage(1, 1200, 34), seconds=3.21)
    failed = StepResult("odd", "failed", error=StepError("X", "no such place"), seconds=1)
    found = report()._replace(steps={**report().steps, "fetch": done, "odd": failed})
    svg = draw(found)
    assert "no such place" in words_of(svg)
    assert "done, 3.2 s · 1,234 tokens · 2 tries</title>" in svg
