"""Records are plain, and a goal's name is its own."""

from __future__ import annotations

import re

from satchel.goals.graph import GOAL_ID
from satchel.goals.model import Goal, Plan, Step, StepCall


def test_a_goal_gets_a_name_that_says_what_it_is_about():
    plan = Plan("Report: what changed this week, and why?", (Step("a"),))
    one, other = Goal.of(plan), Goal.of(plan)
    assert re.fullmatch(r"report-what-changed-this-week-an-[0-9a-f]{8}", one.id)
    assert one.id != other.id
    assert GOAL_ID.fullmatch(Goal.of(plan._replace(goal="写周报")).id)


def test_the_key_is_the_same_for_every_try():
    call = StepCall("g", Step("a"), {}, {}, revision=2)
    assert call.key == "g:a:2"
