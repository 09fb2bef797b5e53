"""Drawings of plans: valid files, hostile titles, states without colour."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from satchel.goals.drawing.labels import MARKS
from satchel.goals.drawing.svg import to_svg
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


def words_of(svg: str) -> list[str]:
    tree = ET.fromstring(svg)
    return [element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_an_svg_shows_every_step_and_every_need():
    svg = to_svg(PLAN)
    tree = ET.fromstring(svg)
    assert len(tree.findall(".//{*}g/{*}rect")) == 4
    assert len(tree.findall(".//{*}g/{*}path")) == 4, "the one that a template mentions too"
    assert {
        "Fetch numbers",
        "tool week_numbers",
        "趋势分析",
        "skill trend-analysis",
        "a person",
    } <= set(words_of(svg))
    assert "prefers-color-scheme:dark" in svg


def test_a_hostile_title_is_text():
    svg = to_svg(PLAN)
    assert "<script" not in svg
    assert not re.search("[\x00-\x08\x1b\u202e]", svg)
    assert any("<script>" in word for word in words_of(svg))
    tree = ET.fromstring(svg)
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert kinds == {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"}


@pytest.mark.parametrize("state", MARKS)
def test_a_state_has_a_mark_and_a_colour(state):
    shown = to_svg(PLAN, report(fetch=state))
    assert MARKS[state] in words_of(shown)
    assert f'<g class="{state}">' in shown


def test_what_a_step_took_and_why_it_failed_is_on_its_box():
    done = StepResult("fetch", "done", attempts=2, usage=Usage(1, 1200, 34), seconds=3.21)
    failed = StepResult("odd", "failed", error=StepError("X", "no such place"), seconds=1)
    found = report()._replace(steps={**report().steps, "fetch": done, "odd": failed})
    svg = to_svg(PLAN, found)
    assert "no such place" in words_of(svg)
    assert "done, 3.2 s · 1,234 tokens · 2 tries</title>" in svg
