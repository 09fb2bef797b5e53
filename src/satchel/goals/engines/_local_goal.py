"""A goal in the process that runs it: its results so far, and its side of `execute`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from satchel.goals.execution import Progress, Workbench
from satchel.goals.model import OVER
from satchel.goals.perform import perform
from satchel.goals.reports import last_sign, report_of
from satchel.goals.revision import still_known
from satchel.goals.spending import NOTHING, spent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from satchel.goals.engines._local_journal import Journal
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        Plan,
        Step,
        StepCall,
        StepEvent,
        StepResult,
    )

AT_REST: frozenset[str] = OVER | {"asking", "queued"}
"""States in which nothing happens by itself."""


class Held:
    """One goal, in memory."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.first = goal.plan
        """The plan it was submitted with."""
        self.revision = 1
        self.spent = NOTHING
        """What earlier revisions took for results that do not hold any more."""
        self.state: GoalState = "queued"
        self.reason = ""
        self.started = 0.0
        self.over_since = 0.0
        """When the last run ended, where that is known."""
        self.progress = Progress()
        self.ended: GoalReport | None = None
        """How the last run ended."""
        self.answers: dict[str, Answer] = {}
        self.journal: Journal | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False

    @property
    def results(self) -> dict[str, StepResult]:
        """How its steps ended so far."""
        return self.progress.results

    @results.setter
    def results(self, results: dict[str, StepResult]) -> None:
        self.progress.results = results

    def report(self, engine: str = "") -> GoalReport:
        """How far it is."""
        if self.ended is not None:
            return self.ended
        report = report_of(
            self.goal,
            self.progress.seen(),
            self.state,
            reason=self.reason,
            engine=engine,
            started=self.started,
            revision=self.revision,
            spent=self.spent,
            ended=self.over_since,
        )
        if self.state in OVER and not self.over_since:
            return report._replace(ended=last_sign(report))
        return report

    def begin(self) -> None:
        """A run begins."""
        self.ended = None
        self.state, self.reason = "running", ""
        self.started = self.started or time.time()
        self.progress.tries.clear()

    def end(self, report: GoalReport, at: float) -> None:
        """A run has ended."""
        self.over_since = at
        self.ended = report._replace(ended=at) if report.state in OVER else report
        self.state, self.reason = report.state, report.reason

    def revise(self, plan: Plan, from_step: str) -> None:
        """Begin a new revision with the results that still hold."""
        kept = still_known(self.goal.plan, plan, self.results, from_step)
        self.spent = spent(self.goal.plan, self.results, kept, self.spent)
        self.results = kept
        self.goal = self.goal._replace(plan=plan)
        self.revision += 1
        self.answers = {}
        self.ended = None
        self.state, self.reason = "queued", ""

    def tried(self, event: StepEvent) -> None:
        """A try of a step failed, and another one follows."""
        notes = self.progress.tries.get(event.step, ())
        self.progress.tries[event.step] = (*notes, event.text)

    def forgettable(self) -> bool:
        """Whether nothing more happens to it."""
        return self.task is None and self.state in OVER

    def to_go_on(self) -> bool:
        """Whether a step that asks was answered meanwhile."""
        return self.state == "asking" and any(
            name in self.answers and result.state == "asking"
            for name, result in self.results.items()
        )


class LocalExecution:
    """One run of a goal, as `execute` sees this process."""

    def __init__(self, held: Held, bench: Workbench) -> None:
        self._held = held
        self._bench = Workbench(bench.runner, bench.artefacts.of(held.goal.id), bench.large)
        self._journal = held.journal
        self.now: Callable[[], float] = time.time

    def record(
        self, step: Step, body: Callable[[], Awaitable[StepResult]]
    ) -> Awaitable[StepResult]:
        """Run it; with a journal, write down how it ended."""
        del step
        return body() if self._journal is None else self._written(self._journal, body)

    @staticmethod
    async def _written(journal: Journal, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        result = await body()
        if result.state != "waiting":
            journal.add_result(result)
        return result

    def perform(self, call: StepCall) -> Coroutine[Any, Any, StepResult]:
        """Do it here."""
        return perform(call, self._bench, self._held.tried)

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Nobody is waited for: the run ends, and an answer begins the next one."""
        del text
        return self._held.answers.get(step.id)
