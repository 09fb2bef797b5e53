"""A person's word counts once, for a step that asks."""

from __future__ import annotations

import pytest

from satchel.errors import Conflict, InvalidInput, NotFound
from satchel.goals.answers import is_new
from satchel.goals.model import Answer, Goal, Plan, Step, StepResult
from satchel.goals.reports import report_of

PLAN = Plan(
    "g", (Step("h", "human", prompt="?", output={"type": "integer"}), Step("a", prompt="p"))
)
REPORT = report_of(Goal("g", PLAN), {"h": StepResult("h", "asking")}, "asking")


def test_an_answer_that_fits_is_new():
    assert is_new(REPORT, "h", Answer(value=3))
    assert is_new(REPORT, "h", Answer(approved=False))


def test_the_same_answer_again_is_fine_and_another_is_not():
    assert not is_new(REPORT, "h", Answer(value=3), Answer(value=3))
    with pytest.raises(Conflict, match="answered already, with another answer"):
        is_new(REPORT, "h", Answer(value=4), Answer(value=3))


def test_what_does_not_fit_is_refused():
    with pytest.raises(InvalidInput, match="The output must be integer"):
        is_new(REPORT, "h", Answer(value="three"))
    with pytest.raises(InvalidInput, match="integer"):
        is_new(REPORT, "h", Answer())
    with pytest.raises(Conflict, match="`a` does not ask anybody: it is waiting"):
        is_new(REPORT, "a", Answer())
    with pytest.raises(NotFound, match="`g` has no step `z`"):
        is_new(REPORT, "z", Answer())
