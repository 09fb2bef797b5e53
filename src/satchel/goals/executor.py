"""Engine-neutral execution of a goal: order, budget, parallelism, failures and approvals of steps.

An engine provides an `Execution` (records results, runs steps on workers, waits for answers) and a
`StepContext` per worker. This module uses no file, clock or environment of its own: durable engines
replay it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from satchel.errors import InternalError
from satchel.goals import artifacts
from satchel.goals.model import NO_USAGE, GoalBudget, StepCall, StepError, StepResult
from satchel.goals.plan_checks import wire_steps
from satchel.goals.reports import report_of, run_seconds
from satchel.goals.step_runner import error_of
from satchel.goals.step_timer import attached_usage
from satchel.goals.templates import TemplateValues, fill, referenced_steps
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from satchel.goals.model import Answer, Goal, GoalReport, GoalState, Plan, Step, Usage


class RunProgress:
    """The visible state of a run in progress."""

    __slots__ = ("results", "running")

    def __init__(self) -> None:
        self.results: dict[str, StepResult] = {}
        """Results of steps that ended or wait for an answer."""
        self.running: dict[str, float] = {}

    def all_results(self) -> dict[str, StepResult]:
        """All results, including those of running steps."""
        return self.results | {
            name: StepResult(name, "running", started=since) for name, since in self.running.items()
        }


class Execution(Protocol):
    """One run of a goal, as the engine implements it."""

    def now(self) -> float:
        """Seconds since the epoch; the recorded value in a replay."""
        ...

    def record(
        self, step: Step, body: Callable[[], Awaitable[StepResult]]
    ) -> Awaitable[StepResult]:
        """Run the body once and record its result; a replay returns the record and does not run it.

        Called for every step in the order of `plan_checks.order`, before any of them waits for
        another: the body waits for what the step needs. The order of calls never depends on which
        step finished first.
        """
        ...

    def perform(self, call: StepCall) -> Awaitable[StepResult]:
        """Run one step on a worker: `step_runner.perform` with that worker's `StepContext`."""
        ...

    def ask(self, step: Step, text: str) -> Awaitable[Answer | None]:
        """Return a person's answer; None when there is none and the run ends without it."""
        ...


class BudgetTracker:
    """Usage of a goal with a budget so far.

    A retry counts the results that it keeps, and starts from zero for the rest. Steps that run at
    the same time are not coordinated: together they may exceed the budget.
    """

    def __init__(self, plan: Plan, progress: RunProgress) -> None:
        self._plan = plan
        self._progress = progress
        self._tokens = 0
        self._cost = 0.0

    def add(self, result: StepResult) -> None:
        """Add the usage of a step that ended."""
        usage = result.usage
        self._tokens += usage.input_tokens + usage.output_tokens
        self._cost += usage.cost or 0.0

    def used_up(self, now: float) -> str:
        """The part of the budget that is used up; empty when none is."""
        tokens, cost, seconds = self._plan.budget
        shown = (f"{tokens} tokens", f"${cost or 0:g}", f"{seconds or 0:g} s")
        left = self.remaining(now)
        for amount, budget in zip(left, shown, strict=True):
            if amount is not None and amount <= 0:
                return Message("The budget of {budget} is used up", budget=budget)
        return ""

    def remaining(self, now: float) -> GoalBudget:
        """The remaining budget; None where there is no limit."""
        tokens, cost, seconds = self._plan.budget
        if seconds is not None:
            live = {
                name: StepResult(name, "running", started=since, seconds=max(0.0, now - since))
                for name, since in self._progress.running.items()
            }
            seconds -= run_seconds(self._plan, {**self._progress.results, **live})
        return GoalBudget(
            None if tokens is None else tokens - self._tokens,
            None if cost is None else cost - self._cost,
            seconds,
        )


# --- results of steps that were not run ----------------------------------------------------


def _final_error(code: str, message: str) -> StepError:
    return StepError(code, message, retryable=False)


def _answered_result(step: Step, answer: Answer, since: float, now: float) -> StepResult:
    by = Message("answered by {name}", name=answer.by) if answer.by else ""
    notes = tuple(note for note in (by, answer.note) if note)
    result = StepResult(
        step.id, "done", attempts=1, started=since, seconds=max(0.0, now - since), notes=notes
    )
    if not answer.approved:
        said = join_messages((Message("The answer was no"), *notes))
        return result._replace(state="failed", error=_final_error("REJECTED", said))
    return result._replace(output="approved" if answer.value is None else answer.value)


def _skipped_result(step: Step, cause: StepResult) -> StepResult:
    if cause.error is not None and cause.state == "skipped":
        return StepResult(step.id, "skipped", error=cause.error)  # the root cause
    why = Message("It needs step `{name}`, which is not done", name=cause.step)
    return StepResult(step.id, "skipped", error=_final_error("SKIPPED", why))


def _outcome(
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    first_failure: StepResult | None = None,
    budget_exceeded: str = "",
) -> tuple[GoalState, str]:
    """The final state of a goal, and why it is not `done`."""
    if first_failure is not None:
        return "failed", _why(first_failure)
    if budget_exceeded:
        return "failed", budget_exceeded
    bad = [result for result in results.values() if result.state != "done"]
    if not bad:
        return "done", ""
    states = {result.state for result in results.values()}
    if "asking" in states:
        return "asking", ""
    bad = [results[step.id] for step in steps if results[step.id].state != "done"]
    first = next((result for result in bad if result.state == "failed"), bad[0])
    return ("partial" if "done" in states else "failed"), _why(first)


def _why(result: StepResult) -> str:
    return Message(
        "Step `{name}`: {why}",
        name=result.step,
        why=result.error.message if result.error else result.state,
    )


_T = TypeVar("_T")
_NOTHING: Mapping[str, Any] = {}
_UNLIMITED = GoalBudget()
_MORE = Message("Give the goal a larger `budget` with `satchel goal retry --plan`")
_REST = frozenset(("asking", "waiting"))
_MAX_QUESTION_CHARS = 20_000
"""Questions are part of every report."""


async def execute(
    goal: Goal,
    execution: Execution,
    *,
    known: Mapping[str, StepResult] = _NOTHING,
    answers: Mapping[str, Answer] = _NOTHING,
    revision: int = 1,
    started: float = 0.0,
    progress: RunProgress | None = None,
    engine: str = "",
) -> GoalReport:
    """Run a goal until it ends, or until all that is left waits for people.

    Args:
        goal: Its plan has passed `plan_checks.check`.
        execution: The engine's implementation of this run.
        known: Results of earlier runs; these steps do not run again.
        answers: Answers of people so far, by step.
        revision: The goal's revision.
        started: When the goal first ran; now when 0.
        progress: Updated while the run goes on.
        engine: The engine's name, for the report.

    Raises:
        InternalError: the engine returned the result of another step.
    """
    run = _Run(goal, execution, known, answers, revision, progress or RunProgress())
    started = started or execution.now()
    await run.finish()
    return run.report(started, engine)


class _Run:
    def __init__(
        self,
        goal: Goal,
        execution: Execution,
        known: Mapping[str, StepResult],
        answers: Mapping[str, Answer],
        revision: int,
        progress: RunProgress,
    ) -> None:
        plan = goal.plan
        self.goal = goal
        self.plan = plan
        self.execution = execution
        self.known = known
        self.answers = answers
        self.revision = revision
        self.results = progress.results
        self.running = progress.running
        self.steps, self.needs, self.dependents = wire_steps(plan)
        self.by_id = {step.id: step for step in self.steps}
        self.open_needs = {name: len(needs) for name, needs in self.needs.items()}
        """Step -> number of its dependencies that have not ended."""
        self.unfinished = len(self.steps)
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.tasks: list[asyncio.Task[None]] = []
        self.ready: dict[str, asyncio.Event] = {}
        self.active: dict[str, asyncio.Task[Any]] = {}
        """Step -> the task inside `perform` or `ask`. Only there may it be cancelled: elsewhere the
        engine is recording something."""
        self.stop_requested: set[str] = set()
        self.stopped_usage: dict[str, Usage] = {}
        """Step -> usage until it was stopped."""
        self.first_failure: StepResult | None = None
        self.engine_error: BaseException | None = None
        """An error of the engine itself; it ends the run."""
        self.budget_exceeded = ""
        self.budget = BudgetTracker(plan, progress) if plan.budget != _UNLIMITED else None
        self.slots: asyncio.Semaphore | None = None

    async def finish(self) -> None:
        for step in self.steps if self.known else ():
            result = self.known.get(step.id)
            if result is not None:
                self.finish_step(step, result)
        if self.plan.parallel < len(self.steps):
            self.slots = asyncio.Semaphore(self.plan.parallel)
        self.tasks = [
            asyncio.create_task(self.record_step(step))
            for step in self.steps
            if step.id not in self.known
        ]
        try:
            await self.ended
        except GeneratorExit:
            raise  # the run was discarded: there is nothing to clean up for
        except BaseException:
            # No task of a run outlives it. Tasks that are cleaning up are not cancelled again.
            for task in self.tasks:
                if not task.done() and not task.cancelling():
                    task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            raise

    async def record_step(self, step: Step) -> None:
        if self.ended.done():
            return  # an error occurred, and everything is about to be cancelled
        try:
            result = await self.execution.record(step, partial(self.run_step, step))
            self.finish_step(step, result)
        except GeneratorExit:
            raise  # the run was discarded
        except BaseException as exc:
            if not self.ended.done():
                if isinstance(exc, asyncio.CancelledError):
                    self.ended.cancel()
                else:
                    self.ended.set_exception(exc)
            if not isinstance(exc, Exception):
                raise

    async def run_step(self, step: Step) -> StepResult:
        """Wait for the dependencies, check whether the step may begin, and run it."""
        if self.open_needs[step.id] and self.first_failure is None:
            event = self.ready[step.id] = asyncio.Event()
            await event.wait()
        try:
            if self.needs[step.id] or self.first_failure is not None or self.budget is not None:
                result = self.blocked_result(step)
                if result is not None:
                    return result
            if step.action_type == "human":
                return await self.ask(step)
            if self.slots is None:
                return await self.perform(step) or self.cancelled_result(step)
            # Taken last: no step that holds a slot waits for another step.
            async with self.slots:
                result = self.blocked_result(step)  # may have changed since
                return result or await self.perform(step) or self.cancelled_result(step)
        except Exception as exc:
            if exc is self.engine_error or isinstance(exc, InternalError):
                raise
            # A replaying engine would retry an exception for ever.
            return StepResult(step.id, "failed", error=error_of(exc))

    def blocked_result(self, step: Step) -> StepResult | None:
        """The result of a step that may not begin; None when it may."""
        if self.first_failure is not None:
            return self.cancelled_result(step)
        waits = False
        for need in self.needs[step.id]:
            result = self.results[need]
            state = result.state
            if state == "done" or (state == "failed" and self.policy(need) == "continue"):
                continue
            if state in _REST:
                waits = True
                continue
            return _skipped_result(step, result)
        if waits:
            return StepResult(step.id, "waiting")
        if self.budget is not None and step.action_type != "human":
            now = self.execution.now()
            self.budget_exceeded = self.budget_exceeded or self.budget.used_up(now)
            if self.budget_exceeded:
                error = _final_error("BUDGET", self.budget_exceeded)._replace(hint=_MORE)
                return StepResult(step.id, "skipped", error=error)
        return None

    def cancelled_result(self, step: Step) -> StepResult:
        """The result of a step that ends because another one failed; its usage still counts."""
        failed = self.first_failure.step if self.first_failure else ""
        why = Message("Step `{name}` failed, which stops the goal", name=failed)
        usage = self.stopped_usage.get(step.id, NO_USAGE)
        return StepResult(step.id, "cancelled", error=_final_error("CANCELLED", why), usage=usage)

    def perform(self, step: Step) -> Awaitable[StepResult | None]:
        """Run the step on a worker; None when it was stopped."""
        plan = self.plan
        call = StepCall(
            self.goal.id,
            step,
            plan.inputs,
            self.outputs(step),
            plan.goal,
            self.revision,
            plan.retry if step.retry is None else step.retry,
            plan.timeout if step.timeout is None else step.timeout,
        )
        if self.budget is not None:
            call = call._replace(left=self.budget.remaining(self.execution.now()))
        return self.stoppable(step, self.execution.perform(call))

    def outputs(self, step: Step) -> dict[str, Any]:
        """The outputs that the step's texts reference; None for a failed step."""
        if "{{" not in step.prompt and not step.arguments:
            return {}
        return {
            name: self.results[name].output if self.results[name].state == "done" else None
            for name in referenced_steps(step)
        }

    async def ask(self, step: Step) -> StepResult:
        outputs = {name: artifacts.preview_of(value) for name, value in self.outputs(step).items()}
        text = fill(step.prompt, TemplateValues(self.plan.inputs, outputs, self.plan.goal))
        if len(text) > _MAX_QUESTION_CHARS:
            text = f"{text[:_MAX_QUESTION_CHARS]}… ({len(text)} characters)"
        since = self.execution.now()
        answer = self.answers.get(step.id)
        if answer is None:
            answer = await self.stoppable(step, self.execution.ask(step, text))
        if answer is None:
            if self.first_failure is not None:
                return self.cancelled_result(step)
            return StepResult(step.id, "asking", text, started=since)
        return _answered_result(step, answer, since, self.execution.now())

    async def stoppable(self, step: Step, work: Awaitable[_T]) -> _T | None:
        """Await something; None when the step was stopped because another one failed."""
        task = asyncio.current_task(self.loop)
        if task is None:  # pragma: no cover - a body always runs in a task
            raise InternalError("A step runs outside of any task")
        name = step.id
        self.active[name] = task
        if step.action_type != "human":
            self.running[name] = self.execution.now()
        try:
            result = await work
        except BaseException as exc:
            if name not in self.stop_requested or not isinstance(
                exc, Exception | asyncio.CancelledError
            ):
                self.engine_error = exc
                raise
            if task.uncancel() > 0:
                raise  # the whole run is cancelled as well
            self.stopped_usage[name] = attached_usage(exc)
            return None
        else:
            if name in self.stop_requested:
                task.uncancel()  # the step ended before the cancellation reached it
            return result
        finally:
            del self.active[name]
            self.running.pop(name, None)

    def finish_step(self, step: Step, result: StepResult) -> None:
        """Record the end of a step, in this run or an earlier one, and wake its dependents."""
        name = step.id
        state = result.state
        if result.step != name:
            raise InternalError(
                f"Step `{name}` was given the result of `{result.step}`", "Please report this"
            )
        self.results[name] = result
        if self.budget is not None:
            self.budget.add(result)
        if state == "failed" and self.policy(name) == "fail_fast":
            self.stop(result)
        elif state == "skipped" and result.error and result.error.code == "BUDGET":
            self.budget_exceeded = result.error.message  # decided before a crash
        for other in self.dependents[name]:
            self.open_needs[other] -= 1
            if not self.open_needs[other] and other in self.ready:
                self.ready[other].set()
        self.unfinished -= 1
        if not self.unfinished and not self.ended.done():
            self.ended.set_result(None)

    def policy(self, name: str) -> str:
        return self.by_id[name].on_failure or self.plan.on_failure

    def stop(self, first_failure: StepResult) -> None:
        """Cancel everything that runs, and begin nothing more."""
        if self.first_failure is not None:
            return
        self.first_failure = first_failure
        for event in self.ready.values():
            event.set()
        for name, task in self.active.items():
            self.stop_requested.add(name)
            task.cancel()

    def report(self, started: float, engine: str) -> GoalReport:
        state, reason = _outcome(self.steps, self.results, self.first_failure, self.budget_exceeded)
        return report_of(
            self.goal,
            self.results,
            state,
            reason=reason,
            engine=engine,
            started=started,
            revision=self.revision,
        )
