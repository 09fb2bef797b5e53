"""The progress view of a goal."""

from __future__ import annotations

import io
import time

import pytest

from satchel.cli.console import Screen
from satchel.cli.goal_view import GoalProgress, report_dict
from satchel.goals.model import (
    Goal,
    Plan,
    Step,
    StepResult,
    Usage,
)
from satchel.goals.reports import report_of

PLAN = Plan(
    "Report",
    (
        Step("fetch", "tool", tool="week_data"),
        Step("trends", "skill", skill="trend-analysis", needs=("fetch",)),
        Step("review", "human", prompt="Well?", needs=("trends",)),
    ),
)
GOAL = Goal("week", PLAN)
NOW = 1_000_000.0


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return Screen(io.StringIO(), colour=False)


def test_every_end_is_told_once_and_the_past_not_at_all(screen):
    known = {"fetch": StepResult("fetch", "done", attempts=1, started=NOW - 60, seconds=2)}
    view = GoalProgress(screen, report_of(GOAL, known, "running"))
    view.begin(NOW)
    done = {"attempts": 2, "usage": Usage(1, 900, 100), "seconds": 3.04}
    known["trends"] = StepResult("trends", "done", **done)
    view.update(report_of(GOAL, known, "running"))
    view.update(report_of(GOAL, known, "running"))
    view.update(report_of(GOAL, {**known, "review": StepResult("review", "asking", "?")}, "asking"))
    assert screen.stream.getvalue().splitlines() == [
        "week: 3 steps",
        "  ✓ trends  3.0 s · 1,000 tokens · 2 tries",
        "  ? review  asking",
    ]


@pytest.mark.parametrize(
    ("engine", "state", "told"),
    [
        ("dbos", "queued", "no worker yet"),
        ("local", "running", "still running (11.0 s): fetch"),
        ("temporal", "running", "still running (11.0 s): fetch"),
    ],
)
def test_a_long_silence_says_what_is_at_work_or_that_nothing_is(
    screen, monkeypatch, engine, state, told
):
    report = report_of(GOAL, {"fetch": StepResult("fetch", "running")}, state, engine=engine)
    view = GoalProgress(screen, report, "no worker yet")
    view.update(report)
    assert screen.stream.getvalue() == ""
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    view.update(report)
    view.update(report)
    assert screen.stream.getvalue() == f"  {told}\n"


def test_json_has_all_its_keys_always():
    found = report_dict(report_of(GOAL, {}, "queued"))
    assert set(found) == {
        "id", "state", "goal", "engine", "revision", "started", "ended", "seconds", "usage",
        "reason", "steps",
    }  # fmt: skip
    assert set(found["steps"][0]) == {
        "id", "title", "action_type", "needs", "state", "output", "error", "attempts", "started",
        "seconds", "usage", "skills", "tools", "notes",
    }  # fmt: skip
    assert found["steps"][1]["needs"] == ["fetch"]
    assert (found["started"], found["ended"]) == (None, None)
