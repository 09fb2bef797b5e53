"""The progress view of a goal."""

from __future__ import annotations

import io
import time

import pytest

from satchel.cli.console import Screen
from satchel.cli.goal_view import GoalProgress, print_steps, report_to_dict
from satchel.goals.model import Goal, Plan, Step, StepResult, Usage
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


def test_every_end_of_a_step_is_printed_once_and_earlier_ones_are_not(screen):
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
        "  ? review  waiting for you",
    ]


def test_a_running_step_names_its_worker_and_a_result_its_version(screen):
    results = {
        "fetch": StepResult("fetch", "done", version="4f2a"),
        "trends": StepResult("trends", "running", started=NOW, worker="71@web1"),
    }
    print_steps(screen, PLAN.steps, results, now=NOW + 3)
    assert "3.0 s · 71@web1" in screen.stream.getvalue()
    fetch, trends, _ = report_to_dict(report_of(GOAL, results, "running"))["steps"]
    assert (fetch["version"], trends["worker"]) == ("4f2a", "71@web1")


@pytest.mark.parametrize(
    ("states", "told"), [({"fetch": "running"}, "still running (11.0 s): fetch"), ({}, "waiting")]
)
def test_a_long_wait_names_the_running_steps(screen, monkeypatch, states, told):
    results = {name: StepResult(name, state) for name, state in states.items()}
    report = report_of(GOAL, results, "running", engine="dbos")
    view = GoalProgress(screen, report)
    view.update(report)
    assert screen.stream.getvalue() == ""
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    view.update(report)
    view.update(report)
    assert screen.stream.getvalue() == f"  {told}\n"
