"""How a goal ended is said the same way on every engine."""

from __future__ import annotations

import pytest

from satchel.goals.endings import ending, final, skipped
from satchel.goals.model import Step, StepResult

STEPS = (Step("a"), Step("b"), Step("c"))
BAD = StepResult("b", "failed", error=final("X", "it broke"))


def results(*states):
    return {
        step.id: BAD if state == "failed" else StepResult(step.id, state)
        for step, state in zip(STEPS, states, strict=True)
    }


@pytest.mark.parametrize(
    ("states", "state", "reason"),
    [
        (("done", "done", "done"), "done", ""),
        (("done", "failed", "skipped"), "partial", "Step `b`: it broke"),
        (("done", "failed", "asking"), "asking", ""),
        (("skipped", "failed", "skipped"), "failed", "Step `b`: it broke"),
        (("done", "skipped", "done"), "partial", "Step `b`: skipped"),
    ],
)
def test_the_state_of_a_goal(states, state, reason):
    assert ending(STEPS, results(*states)) == (state, reason)


def test_what_stopped_everything_comes_first():
    found = results("asking", "failed", "waiting")
    assert ending(STEPS, found, BAD) == ("failed", "Step `b`: it broke")
    assert ending(STEPS, found, None, "No money") == ("failed", "No money")


def test_who_is_left_out_knows_why():
    first = skipped(STEPS[2], BAD)
    assert first.error.message == "It needs step `b`, which failed"
    assert skipped(STEPS[0], first).error == first.error
    cancelled = StepResult("b", "cancelled")
    assert skipped(STEPS[0], cancelled).error.message == "It needs step `b`, which was cancelled"
