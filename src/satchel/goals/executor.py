"""Engine-neutral execution of a goal: order, budget, parallelism, failures and approvals of steps.

An engine provides an `Execution` (records results, runs steps on workers, waits for answers) and a
`StepContext` per worker. This module uses no file, clock or environment of its own: durable engines
replay it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from satchel.errors import InternalError
from satchel.goals import artifacts
from satchel.goals.model import (
    DEADLINE,
    NO_USAGE,
    Answer,
    GoalBudget,
    StepCall,
    StepError,
    StepResult,
    resource_of,
)
from satchel.goals.plan_graph import wire_steps
from satchel.goals.reports import report_of, run_seconds
from satchel.goals.step_runner import attached_usage, error_of
from satchel.goals.substeps import (
    END_NOTICE,
    expand_plan,
    is_substep,
    item_number,
    list_id,
    parent_id,
)
from satchel.goals.templates import TemplateValues, fill, may_have_references, referenced_steps
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from satchel.goals.model import Goal, GoalReport, GoalState, Plan, Step, Usage


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

        Called for every step in the order of `plan_graph.order`, before any of them waits for
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
        limits = (f"{tokens} tokens", f"${cost or 0:g}", f"{seconds or 0:g} s")
        remaining = self.remaining(now)
        for amount, budget in zip(remaining, limits, strict=True):
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
    if answer.by == DEADLINE:
        late = Message("No answer came within {seconds} seconds", seconds=f"{step.deadline:g}")
        if not answer.approved:
            return result._replace(state="failed", notes=(), error=_final_error("DEADLINE", late))
        return result._replace(output=answer.value, notes=(late,))
    if not answer.approved:
        message = join_messages((Message("The answer was no"), *notes))
        return result._replace(state="failed", error=_final_error("REJECTED", message))
    return result._replace(output="approved" if answer.value is None else answer.value)


def default_answer(step: Step) -> Answer:
    """Return the answer that counts when no person answered before the deadline of a step."""
    return Answer(approved=step.default is not None, value=step.default, by=DEADLINE)


def is_left_out(result: StepResult) -> bool:
    """Whether a step was left out by a condition, its own or that of a step before it."""
    error = result.error
    return result.state == "skipped" and error is not None and error.code == "CONDITION"


def _skipped_result(step: Step, cause: StepResult) -> StepResult:
    if cause.error is not None and cause.state == "skipped":
        return StepResult(step.id, "skipped", error=cause.error)  # the root cause
    why = Message("It needs step `{name}`, which is not done", name=cause.step)
    return StepResult(step.id, "skipped", error=_final_error("SKIPPED", why))


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
    known_results: Mapping[str, StepResult] = _NOTHING,
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
        known_results: Results of earlier runs; these steps do not run again.
        answers: Answers of people so far, by step.
        revision: The goal's revision.
        started: When the goal first ran; now when 0.
        progress: Updated while the run goes on.
        engine: The engine's name, for the report.

    Raises:
        InternalError: the engine returned the result of another step.
    """
    run = _Run(goal, execution, known_results, answers, revision, progress or RunProgress())
    started = started or execution.now()
    await run.finish()
    return run.report(started, engine)


class _Run:
    def __init__(
        self,
        goal: Goal,
        execution: Execution,
        known_results: Mapping[str, StepResult],
        answers: Mapping[str, Answer],
        revision: int,
        progress: RunProgress,
    ) -> None:
        plan = goal.plan
        self.goal = goal
        self.plan = plan
        self.execution = execution
        self.known_results = known_results
        self.answers = answers
        self.revision = revision
        self.results = progress.results
        self.running = progress.running
        self.steps, self.needs, self.dependents = wire_steps(expand_plan(plan, known_results))
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
        self.item_slots: dict[str, asyncio.Semaphore] = {
            step.id: asyncio.Semaphore(step.for_each.at_once)
            for step in plan.steps
            if step.for_each is not None
        }
        self.failed_items: dict[str, set[str]] = {}
        """Step -> the items that have failed."""

    async def finish(self) -> None:
        for step in self.steps if self.known_results else ():
            result = self.known_results.get(step.id)
            if result is not None:
                self.finish_step(step, result)
        if self.plan.parallel < len(self.steps):
            self.slots = asyncio.Semaphore(self.plan.parallel)
        self.tasks = [
            asyncio.create_task(self.record_step(step))
            for step in self.steps
            if step.id not in self.known_results
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
        if self.open_needs[step.id] and (self.first_failure is None or step.id == END_NOTICE):
            event = self.ready[step.id] = asyncio.Event()
            await event.wait()
        try:
            if step.id == END_NOTICE:
                return await self.notify(step, self.outcome()[0])
            if self.needs[step.id] or self.first_failure is not None or self.budget is not None:
                result = self.blocked_result(step)
                if result is not None:
                    return result
            return await self.begin_step(step)
        except Exception as exc:
            if exc is self.engine_error or isinstance(exc, InternalError):
                raise
            # A replaying engine would retry an exception for ever.
            return StepResult(step.id, "failed", error=error_of(exc))

    async def begin_step(self, step: Step) -> StepResult:
        """Run a step whose dependencies have ended."""
        if step.action_type == "notify":
            return await self.notify(step, "asking")
        if step.action_type == "human":
            checked = await self.perform(step) if step.when is not None else None
            return checked if checked and checked.state != "done" else await self.ask(step)
        if self.slots is None and step.for_each is None:
            return await self.perform(step) or self.cancelled_result(step)
        return await self.perform_in_slot(step)

    async def perform_in_slot(self, step: Step) -> StepResult:
        # Slots are taken last: no step that holds one waits for another step.
        async with AsyncExitStack() as slots:
            if item_number(step.id) is not None:
                await slots.enter_async_context(self.item_slots[parent_id(step.id)])
            if self.slots is not None:
                await slots.enter_async_context(self.slots)
            result = self.blocked_result(step)  # may have changed since
            result = result or await self.perform(step) or self.cancelled_result(step)
            self.count_failed_item(result)  # before the next item gets the slot
        if result.state == "done" and self.failed_items.get(step.id):
            return result._replace(notes=(*result.notes, self.failed_items_message(step.id)))
        return result

    def blocked_result(self, step: Step) -> StepResult | None:
        """Return the result of a step that may not begin; None when it may."""
        if self.is_beyond_list(step):
            return StepResult(step.id, "waiting")
        if self.first_failure is not None:
            return self.cancelled_result(step)
        result = None if step.for_each is None else self.blocked_items_result(step)
        if result is not None:
            return result
        result = self.blocked_by_needs(step)
        return result if result is not None else self.blocked_by_budget(step)

    def blocked_by_needs(self, step: Step) -> StepResult | None:
        """Return the result of a step whose dependencies do not let it begin."""
        waits = False
        for need in self.needs[step.id]:
            if is_substep(need):
                continue  # the step decides what its items mean for it
            result = self.results[need]
            state = result.state
            may_continue = state == "failed" or is_left_out(result)
            if state == "done" or (may_continue and self.policy(need) == "continue"):
                continue
            if state in _REST:
                waits = True
                continue
            return _skipped_result(step, result)
        return StepResult(step.id, "waiting") if waits else None

    def blocked_by_budget(self, step: Step) -> StepResult | None:
        """Return the result of a step that may not begin, because the budget is used up."""
        if self.budget is None or step.action_type in {"human", "notify"}:
            return None
        now = self.execution.now()
        self.budget_exceeded = self.budget_exceeded or self.budget.used_up(now)
        if not self.budget_exceeded:
            return None
        error = _final_error("BUDGET", self.budget_exceeded)._replace(hint=_MORE)
        return StepResult(step.id, "skipped", error=error)

    # --- substeps ---------------------------------------------------------------------------

    def item_count(self, step_id: str) -> int:
        """Return how many items a step has; 0 as long as that is not known."""
        result = self.results.get(list_id(step_id))
        return result.output if result is not None and result.state == "done" else 0

    def is_beyond_list(self, step: Step) -> bool:
        """Whether a step is for an item that the list does not have."""
        number = item_number(step.id)
        return number is not None and number >= self.item_count(step.id)

    def blocked_items_result(self, step: Step) -> StepResult | None:
        """Return the result of an item that may not begin, or of a step whose items failed."""
        parent = self.by_id[parent_id(step.id)]
        failed_count = len(self.failed_items.get(parent.id, ()))
        too_many = parent.for_each is not None and failed_count > parent.for_each.failures
        if is_substep(step.id):
            error = _final_error("SKIPPED", Message("Too many items failed"))
            return StepResult(step.id, "skipped", error=error) if too_many else None
        list_result = self.results[list_id(step.id)]
        if list_result.state != "done":
            return list_result._replace(step=step.id)
        if too_many:
            error = _final_error("ITEMS_FAILED", self.failed_items_message(step.id))
            return StepResult(step.id, "failed", error=error)
        results = (self.results[name] for name in self.item_ids(step.id))
        skipped = next((result for result in results if result.state == "skipped"), None)
        return None if skipped is None else _skipped_result(step, skipped)

    def item_ids(self, step_id: str) -> list[str]:
        return [f"{step_id}.{number}" for number in range(self.item_count(step_id))]

    def failed_items_message(self, step_id: str) -> str:
        """Return how many items of a step failed, and why the first one did."""
        failed = sorted(self.failed_items[step_id], key=lambda name: item_number(name) or 0)
        failures, count = len(failed), self.item_count(step_id)
        return join_messages((
            Message("{failures} of {count} items failed", failures=failures, count=count),
            _why(self.results[failed[0]]),
        ))  # fmt: skip

    def count_failed_item(self, result: StepResult) -> None:
        if result.state == "failed" and item_number(result.step) is not None:
            self.failed_items.setdefault(parent_id(result.step), set()).add(result.step)

    async def notify(self, step: Step, event: str) -> StepResult:
        """Send a notification, if it is asked for; a goal that only asks has not ended."""
        notify = self.plan.notify
        about: dict[str, Any] = {"goal": self.goal.id, "revision": self.revision}
        if step.id == END_NOTICE:
            has_happened = event != "asking"
        else:
            about["step"] = parent_id(step.id)
            has_happened = about["step"] not in self.answers
        if notify is None or event not in notify.events or not has_happened:
            return StepResult(step.id, "waiting")
        body = {"type": f"goal.{event}", "data": about}
        notice = step._replace(arguments={**step.arguments, "body": body})
        return await self.perform(notice) or self.cancelled_result(step)

    def cancelled_result(self, step: Step) -> StepResult:
        """Return the result of a step that another one stopped; its usage still counts."""
        failed = self.first_failure.step if self.first_failure else ""
        why = Message("Step `{name}` failed, which stops the goal", name=failed)
        usage = self.stopped_usage.get(step.id, NO_USAGE)
        return StepResult(step.id, "cancelled", error=_final_error("CANCELLED", why), usage=usage)

    def perform(self, step: Step) -> Awaitable[StepResult | None]:
        """Run the step on a worker; None when it was stopped."""
        plan = self.plan
        call = StepCall(
            goal=self.goal.id,
            step=step,
            inputs=plan.inputs,
            outputs=self.outputs(step),
            text=plan.goal,
            revision=self.revision,
            retry=plan.retry if step.retry is None else step.retry,
            timeout=plan.timeout if step.timeout is None else step.timeout,
            version=self.goal.versions.get(resource_of(step), ""),
        )
        if self.budget is not None:
            call = call._replace(left=self.budget.remaining(self.execution.now()))
        return self.stoppable(step, self.execution.perform(call))

    def outputs(self, step: Step) -> dict[str, Any]:
        """Return the outputs that a step uses, or those of its items; None for failures."""
        if not may_have_references(step):
            return {}
        collects_items = step.id in self.item_slots
        names = self.item_ids(step.id) if collects_items else referenced_steps(step)
        return {
            name: self.results[name].output if self.results[name].state == "done" else None
            for name in names
        }

    async def ask(self, step: Step) -> StepResult:
        outputs = {name: artifacts.preview_of(value) for name, value in self.outputs(step).items()}
        text = fill(step.prompt, TemplateValues(self.plan.inputs, outputs, self.plan.goal))
        if len(text) > _MAX_QUESTION_CHARS:
            text = f"{text[:_MAX_QUESTION_CHARS]}… ({len(text)} characters)"
        since = self.execution.now()
        earlier = self.results.get(step.id)
        if earlier is not None and earlier.state == "asking":
            since = earlier.started  # asked by an earlier run, with this deadline
        answer = self.answers.get(step.id)
        if answer is None:
            answer = await self.stoppable(step, self.ask_until_deadline(step, text))
        if answer is None:
            if self.first_failure is not None:
                return self.cancelled_result(step)
            return StepResult(step.id, "asking", text, started=since)
        return _answered_result(step, answer, since, self.execution.now())

    async def ask_until_deadline(self, step: Step, text: str) -> Answer | None:
        """Ask a person; an engine whose runs end with a question counts the time itself."""
        if step.deadline is None:
            return await self.execution.ask(step, text)
        try:
            async with asyncio.timeout(step.deadline):
                return await self.execution.ask(step, text)
        except TimeoutError:
            return default_answer(step)

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
        self.count_failed_item(result)
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
        for name, event in self.ready.items():
            if name != END_NOTICE:
                event.set()
        for name, task in self.active.items():
            self.stop_requested.add(name)
            task.cancel()

    def outcome(self) -> tuple[GoalState, str]:
        """The final state of the goal, and why it is not `done`."""
        if self.first_failure is not None:
            return "failed", _why(self.first_failure)
        if self.budget_exceeded:
            return "failed", self.budget_exceeded
        results = [self.results[step.id] for step in self.plan.steps]
        bad = [result for result in results if result.state != "done" and not is_left_out(result)]
        if not bad:
            return "done", ""
        states = {result.state for result in results}
        if "asking" in states:
            return "asking", ""
        first = next((result for result in bad if result.state == "failed"), bad[0])
        return ("partial" if "done" in states else "failed"), _why(first)

    def report(self, started: float, engine: str) -> GoalReport:
        state, reason = self.outcome()
        return report_of(
            self.goal,
            self.results,
            state,
            reason=reason,
            engine=engine,
            started=started,
            revision=self.revision,
        )
