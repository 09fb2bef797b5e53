"""A goal of the engine `local`: its state, read from its journal, and the `Execution` of a run."""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Any

from satchel.errors import InvalidInput
from satchel.goals.engines import base
from satchel.goals.engines.local_journal import DamagedLine, damage_message, read_lines
from satchel.goals.executor import RunProgress
from satchel.goals.model import FINAL_GOAL_STATES, Answer, Goal, Plan, StepBegun, StepResult
from satchel.goals.reports import add_begun, last_event_time, report_of, unpack
from satchel.goals.step_runner import AttemptLog, perform
from satchel.i18n import unpack_messages

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine

    from satchel.goals.engines.local_journal import Journal
    from satchel.goals.model import GoalReport, GoalState, Step, StepCall
    from satchel.goals.step_runner import StepContext

IDLE: frozenset[str] = base.AT_REST | {"queued"}
"""States of a goal that no process runs."""


class LocalGoal:
    """One goal, in memory."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.first_plan = goal.plan
        self.revision = 1
        self.state: GoalState = "queued"
        self.reason = ""
        self.started = 0.0
        self.ended_at = 0.0
        """When the last run ended, if known."""
        self.progress = RunProgress()
        self.begun: dict[str, StepBegun] = {}
        """Steps that have begun and have no result."""
        self.last_report: GoalReport | None = None
        self.answers: dict[str, Answer] = {}
        self.journal: Journal | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False

    @property
    def results(self) -> dict[str, StepResult]:
        """Results of its steps so far."""
        return self.progress.results

    @results.setter
    def results(self, results: dict[str, StepResult]) -> None:
        self.progress.results = results

    def report(self, engine: str = "") -> GoalReport:
        """Return the current report."""
        if self.last_report is not None:
            return self.last_report
        results = dict(self.progress.results)
        state = "cancelling" if self.is_cancelling else self.state
        if self.state == "running":
            add_begun(results, self.begun.values())
        report = report_of(
            self.goal,
            results,
            state,
            reason=self.reason,
            engine=engine,
            started=self.started,
            revision=self.revision,
            ended=self.ended_at,
        )
        if self.state in FINAL_GOAL_STATES and not self.ended_at:
            return report._replace(ended=last_event_time(report))
        return report

    @property
    def is_cancelling(self) -> bool:
        """Whether it was cancelled, and steps of it still run, here or in another process."""
        if self.state != "running":
            return False
        requested = self.journal is not None and self.journal.cancel_requested()
        return self.cancelled or requested

    def begin(self) -> None:
        """Begin a run."""
        self.last_report = None
        self.state, self.reason = "running", ""
        self.started = self.started or time.time()

    def end(self, report: GoalReport, now: float) -> None:
        """End a run."""
        self.ended_at = now
        self.last_report = (
            report._replace(ended=now) if report.state in FINAL_GOAL_STATES else report
        )
        self.state, self.reason = report.state, report.reason

    def revise(self, plan: Plan | None, from_step: str) -> None:
        """Begin a new revision with the results that are still valid."""
        self.goal, self.results = base.new_revision(self.goal, self.results, plan, from_step)
        self.revision += 1
        self.answers, self.begun = {}, {}
        self.last_report = None
        self.state, self.reason = "queued", ""

    def count_deaths(self) -> None:
        """Count the death of the last process for the steps whose attempts it has not ended."""
        for name, begun in self.begun.items():
            if begun.worker:
                self.begun[name] = begun._replace(worker="", deaths=begun.deaths + 1)

    def has_new_answer(self) -> bool:
        """Whether a step that asks was answered meanwhile."""
        return self.state == "asking" and any(
            name in self.answers and result.state == "asking"
            for name, result in self.results.items()
        )


def read_goal(journal: Journal) -> LocalGoal | None:
    """Read a goal from its journal, as far as it is readable; None when there is none."""
    goal: LocalGoal | None = None
    line_number = 1
    try:
        for line_number, line in read_lines(journal.path):  # noqa: B007 - named when damaged
            if goal is not None:
                _apply_line(goal, line)
            else:
                goal = LocalGoal(unpack(Goal, line["goal"]))
                goal.started = float(line.get("at", 0.0))
    except (DamagedLine, InvalidInput, LookupError, TypeError, ValueError) as exc:
        if isinstance(exc, DamagedLine):
            line_number = exc.line_number
        elif goal is None:
            line_number = 1
        goal = goal or LocalGoal(Goal(os.path.basename(journal.folder), Plan("", ())))
        goal.state = "damaged"
        goal.reason = damage_message(journal.path, line_number)
    return goal


def _apply_line(goal: LocalGoal, line: dict[str, Any]) -> None:
    """Bring a goal to the state after a line of its journal."""
    if "step" in line:
        result = unpack(StepResult, line["step"])
        goal.results[result.step] = result
        goal.begun.pop(result.step, None)
    elif "begun" in line:
        begun = unpack(StepBegun, line["begun"])
        goal.begun[begun.step] = begun
    elif "answer" in line:
        if line.get("of", goal.revision) == goal.revision:
            goal.answers[line["to"]] = unpack(Answer, line["answer"])
    elif "revision" in line:
        valid_steps = set(line["keep"])
        goal.results = {
            name: result for name, result in goal.results.items() if name in valid_steps
        }
        goal.goal = goal.goal._replace(plan=unpack(Plan, line["plan"]))
        goal.revision = int(line["revision"])
        goal.answers, goal.begun = {}, {}
        goal.state, goal.reason = "queued", ""
    elif "end" in line:
        goal.state = line["end"]
        goal.reason = unpack_messages(line).get("reason", "")
        goal.ended_at = float(line.get("at", 0.0))  # missing in journals of older versions
    elif "run" in line:
        goal.state, goal.reason = "running", ""
        goal.count_deaths()


class LocalAttempts(AttemptLog):
    """The records of begun steps, in the journal of their goal."""

    worker = f"{os.getpid()}@{platform.node()}"

    def __init__(self, goal: LocalGoal) -> None:
        self._goal = goal

    def begun(self, step: str) -> StepBegun:
        """The record of a step, as earlier processes left it."""
        return self._goal.begun.get(step) or super().begun(step)

    async def write(self, begun: StepBegun) -> None:
        """Write a line."""
        self._goal.begun[begun.step] = begun
        if self._goal.journal is not None:
            self._goal.journal.add_begun(begun)


class LocalExecution:
    """One run of a goal: the `Execution` of this engine."""

    def __init__(self, goal: LocalGoal, context: StepContext) -> None:
        self._goal = goal
        artifacts = context.artifacts.of(goal.goal.id)
        self._context = context._replace(artifacts=artifacts, log=LocalAttempts(goal))
        self._journal = goal.journal
        self.now: Callable[[], float] = time.time

    async def record(self, step: Step, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        """Run the body, and write its result."""
        del step
        result = await body()
        self._goal.begun.pop(result.step, None)
        if result.state != "waiting" and self._journal is not None:
            self._journal.add_result(result)
        return result

    def perform(self, call: StepCall) -> Coroutine[Any, Any, StepResult]:
        """Run the step in this process."""
        return perform(call, self._context)

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Return the recorded answer; without one the run ends, and an answer starts the next."""
        del text
        return self._goal.answers.get(step.id)
