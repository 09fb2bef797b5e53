"""What does the process that runs a goal know of it? Its results so far, and who is watching."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from satchel.goals.execution import Progress, Workbench
from satchel.goals.model import OVER, StepEvent, StepResult
from satchel.goals.perform import perform
from satchel.goals.reports import last_sign, report_of
from satchel.goals.revision import still_known
from satchel.goals.spending import NOTHING, spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from typing import Any

    from satchel.goals.engines._local_journal import Journal
    from satchel.goals.model import Answer, Goal, GoalReport, GoalState, Plan, Step, StepCall

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
        self.progress.watched = False
        self.ended: GoalReport | None = None
        """How the last run ended."""
        self.answers: dict[str, Answer] = {}
        self.events: list[StepEvent] = []
        """What happened since somebody watches."""
        self.journal: Journal | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False
        self._waiting: list[asyncio.Future[None]] = []

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
        results = self.results
        if self.progress.running:
            running = self.progress.running.items()
            results = {
                **results,
                **{name: StepResult(name, "running", started=since) for name, since in running},
            }
        report = report_of(
            self.goal,
            results,
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
        self._tell_all("running")

    def end(self, report: GoalReport, at: float) -> None:
        """A run has ended."""
        self.over_since = at
        self.ended = report._replace(ended=at) if report.state in OVER else report
        self.state, self.reason = report.state, report.reason
        self._tell_all(report.state, report.reason)

    def _tell_all(self, state: str, reason: str = "") -> None:
        if self.progress.watched:
            self.tell(StepEvent(self.goal.id, "", state, time.time(), reason))

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

    def tell(self, event: StepEvent) -> None:
        """Something happened: whoever watches is woken."""
        self.events.append(event)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Let everybody look who waits for a change."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def changed(self) -> asyncio.Future[None]:
        """Done as soon as it runs no more; once it is watched, as soon as anything happens."""
        if len(self._waiting) > 100:  # of those who looked only for a while
            self._waiting = [future for future in self._waiting if not future.done()]
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def watch(self) -> None:
        """From now on keep what happens; what has happened is told from the results."""
        if self.progress.watched:
            return
        self.progress.watched = True
        goal = self.goal.id
        events = [StepEvent(goal, "", "running", self.started)]
        for result in sorted(self.results.values(), key=lambda one: one.started):
            if result.state in {"done", "failed"} and result.attempts:
                events.append(StepEvent(goal, result.step, "running", result.started))
            if result.state != "waiting":
                at = result.started + result.seconds
                text = str(result.output) if result.state == "asking" else ""
                events.append(StepEvent(goal, result.step, result.state, at, text, result))
        events += [
            StepEvent(goal, name, "running", since) for name, since in self.progress.running.items()
        ]
        if self.state != "running":
            events.append(StepEvent(goal, "", self.state, time.time(), self.reason))
        self.events = events

    async def watched(self) -> AsyncIterator[StepEvent]:
        """What happens to it, until it runs no more."""
        self.watch()
        seen = 0
        while True:
            changed = self.changed()
            while seen < len(self.events):
                yield self.events[seen]
                seen += 1
            if self.task is None:
                return
            await changed

    def forgettable(self) -> bool:
        """Whether nothing more happens to it, and nobody looks."""
        return self.task is None and self.state in OVER and not self._waiting

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
        self.tell: Callable[[StepEvent], None] = held.tell

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
        return perform(call, self._bench, self.tell)

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Nobody is waited for: the run ends, and an answer begins the next one."""
        del text
        return self._held.answers.get(step.id)
