"""What is known of a plan's steps holds for these steps, and for no others."""

from __future__ import annotations

import gc

from satchel.goals.graph import check
from satchel.goals.model import Plan, Step
from satchel.goals.seen import Seen
from satchel.goals.wiring import wire


def test_the_same_steps_are_known_and_equal_ones_are_not():
    seen: Seen[str] = Seen()
    steps = (Step("a", prompt="p"),)
    assert seen.get(steps) is None
    assert seen.keep(steps, "found") == "found"
    assert seen.get(steps) == "found"
    assert seen.get((Step("a", prompt="p"),)) is None


def test_what_may_change_is_not_kept():
    seen: Seen[str] = Seen()
    for step in (
        Step("a", tool="t", arguments={"x": 1}),
        Step("a", output={"type": "string"}),
        Step("a", needs=["b"]),  # type: ignore[arg-type]
    ):
        steps = (step,)
        seen.keep(steps, "found")
        assert seen.get(steps) is None


def test_nobody_inherits_a_place_in_memory():
    for number in range(500):
        names = [f"{number}-{place}" for place in range(3)]
        plan = Plan("g", tuple(Step(name, prompt="p") for name in names))
        assert check(plan) == []
        assert list(wire(plan).needs) == names
        del plan
        gc.collect(0)


def test_a_plan_that_was_sound_is_looked_at_again_with_other_steps():
    steps = (Step("a", prompt="p"), Step("b", prompt="p", needs=("a",)))
    plan = Plan("g", steps)
    assert check(plan) == []
    assert check(plan._replace(goal=" ")) != []
    worse = plan._replace(steps=(*steps, Step("c", prompt="p", needs=("nobody",))))
    assert check(worse) != []
