"""The progress view of a goal."""

from __future__ import annotations

import io
import time

import pytest

from satchel.cli.console import Screen
from satchel.cli.goal_view import GoalProgress, count_states, report_dict
from satchel.goals.model import (
    Goal,
    Plan,
    Step,
    StepError,
    StepEvent,
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


def event(step, state, at=NOW, **result):
    found = StepResult(step, state, started=at, **result) if state != "running" else None
    return StepEvent("week", step, state, at, result=found)


def test_every_end_is_told_once_and_the_past_not_at_all(screen):
    view = GoalProgress(screen)
    known = {"fetch": StepResult("fetch", "done", attempts=1, started=NOW - 60, seconds=2)}
    view.begin(report_of(GOAL, known, "running"), NOW)
    view.tell(event("fetch", "running", NOW - 60))
    view.tell(event("fetch", "done", NOW - 58))
    view.tell(event("trends", "running"))
    done = {"attempts": 2, "usage": Usage(1, 900, 100), "seconds": 3.04}
    view.tell(event("trends", "done", NOW + 3, **done))
    view.tell(event("trends", "done", NOW + 3, **done))
    asks = StepResult("review", "asking", "Well?")
    ended = {**known, "trends": StepResult("trends", "done", **done), "review": asks}
    view.end(report_of(GOAL, ended, "asking"))
    lines = screen.stream.getvalue().splitlines()
    assert lines[:3] == [
        "week: 3 steps",
        "  ✓ trends  3.0 s · 1,000 tokens · 2 tries",
        "  ? review  asking",
    ]
    assert lines[3].startswith("? week is asking: 2 done, 1 asking · ")


def test_a_long_silence_names_what_is_at_work(screen, monkeypatch):
    view = GoalProgress(screen)
    view.begin(report_of(GOAL, {}, "running"), NOW)
    view.tell(event("fetch", "running"))
    view.tick()
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    view.tick()
    view.tick()
    assert screen.stream.getvalue().count("still running (11.0 s): fetch") == 1


def test_a_large_plan_shows_what_matters_in_the_rows_there_are(screen):
    plan = Plan("x", tuple(Step(f"s{number}", prompt="x") for number in range(200)))
    known = {
        "s150": StepResult("s150", "running", started=NOW),
        "s199": StepResult("s199", "failed", error=StepError("X", "no")),
    }
    view = GoalProgress(screen)
    report = report_of(Goal("x", plan), known, "running")
    view.begin(report, NOW)
    rows = view.rows(10)
    assert len(rows) == 10
    assert any("s150" in row for row in rows)
    assert any("s199" in row for row in rows)
    assert rows[-1] == "  … and 191 more"
    assert count_states(report.steps) == "1 failed, 1 running, 198 waiting"


def test_pipes_and_ci_get_lines(screen, monkeypatch):
    assert not GoalProgress(screen).redraws
    screen.is_terminal = True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("CI", "true")
    assert not GoalProgress(screen).redraws
    monkeypatch.delenv("CI")
    assert GoalProgress(screen).redraws


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


@pytest.mark.parametrize("redraws", [False, True])
@pytest.mark.parametrize(
    ("engine", "began", "told"),
    [
        ("dbos", None, True),
        ("temporal", None, True),
        ("temporal", "", True),
        ("local", None, False),
        ("dbos", "", False),
        ("temporal", "fetch", False),
    ],
)
def test_a_goal_that_nobody_begins_says_how_to_start_a_worker(
    screen, monkeypatch, redraws, engine, began, told
):
    view = GoalProgress(screen, "no worker yet")
    view.redraws = redraws
    view.begin(report_of(GOAL, {}, "queued", engine=engine), NOW)
    if began is not None:
        view.tell(StepEvent("week", began, "running", NOW + 1))
    view.tick()
    assert "no worker yet" not in screen.stream.getvalue()
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    view.tick()
    text = " ".join(screen.stream.getvalue().split())
    assert ("no worker yet" in text) == told
    view.end(None)
