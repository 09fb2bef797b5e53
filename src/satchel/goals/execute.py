"""Who runs when? Knows no engine: order, budget, parallelism, failures and people are decided here.

One task per step, made in the order of the plan; each waits for what it needs. So an engine that
knows steps by the order of its calls sees the same order in every replay, whoever finishes first.
Nothing here knows a file, a clock, chance or the environment: it runs inside workflows too.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from satchel._language import Message
from satchel.errors import InternalError, StepFailed
from satchel.goals import artefacts, schema
from satchel.goals.clock import carried
from satchel.goals.execution import Progress
from satchel.goals.model import NO_USAGE, Budget, StepCall, StepError, StepResult
from satchel.goals.reports import NOTHING, report_of
from satchel.goals.spending import Spending
from satchel.goals.templates import Values, fill, steps_mentioned
from satchel.goals.wiring import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from satchel.goals.execution import Execution
    from satchel.goals.model import Answer, Goal, GoalReport, GoalState, Step, Usage
    from satchel.goals.reports import Spent


def final(code: str, message: str) -> StepError:
    """An error that another try would not cure."""
    return StepError(code, message, retryable=False)


def broken(step: Step, exc: Exception) -> StepResult:
    """A step that could not even begin, or end: a result too, or workflows would hang in it."""
    if isinstance(exc, StepFailed):
        error = StepError(exc.code, exc.message, exc.hint, exc.retryable)
    else:
        error = final("EXECUTION_ERROR", f"{type(exc).__name__}: {exc}"[:2_000])
    return StepResult(step.id, "failed", error=error)


def answered(step: Step, answer: Answer, since: float, now: float) -> StepResult:
    """What a person's word makes of a step."""
    by = Message("answered by {name}", name=answer.by) if answer.by else ""
    notes = tuple(note for note in (by, answer.note) if note)
    result = StepResult(
        step.id, "done", attempts=1, started=since, seconds=max(0.0, now - since), notes=notes
    )
    if not answer.approved:
        said = Message("{name} said no", name=answer.by) if answer.by else None
        said = said or Message("A person said no")
        if answer.note:
            said = Message("{said}: {answer}", said=said, answer=answer.note)
        return result._replace(state="failed", error=final("REJECTED", said))
    value = "approved" if answer.value is None else answer.value
    slips = schema.slips(value, step.output) if step.output else []
    if slips:
        return result._replace(state="failed", error=final("INVALID_OUTPUT", "; ".join(slips)))
    return result._replace(output=value)


def skipped(step: Step, cause: StepResult) -> StepResult:
    """A step that is left out because of one that it needs."""
    if cause.error is not None and cause.state == "skipped":
        return StepResult(step.id, "skipped", error=cause.error)  # the first culprit, not the last
    why = Message("It needs step `{name}`, which failed", name=cause.step)
    if cause.state == "skipped":
        why = Message("It needs step `{name}`, which was skipped", name=cause.step)
    elif cause.state == "cancelled":
        why = Message("It needs step `{name}`, which was cancelled", name=cause.step)
    return StepResult(step.id, "skipped", error=final("SKIPPED", why))


def ending(
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    culprit: StepResult | None = None,
    broke: str = "",
) -> tuple[GoalState, str]:
    """The state of a goal whose run has ended, and why it is not `done`.

    Args:
        steps: Of its plan.
        results: Of every step.
        culprit: The failure that stopped everything.
        broke: Which budget is used up.
    """
    if culprit is not None:
        return "failed", _why(culprit)
    if broke:
        return "failed", broke
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
_UNLIMITED = Budget()
_MORE = Message(
    "Give the goal a larger `budget`, with `satchel goal retry --plan`: all its tries count"
)
_REST = frozenset(("asking", "waiting"))
_QUESTION = 20_000
"""Characters that a person is asked with: it is in every report, and nobody reads more."""


async def execute(  # noqa: PLR0913 - what each engine knows of a run differs
    goal: Goal,
    execution: Execution,
    *,
    known: Mapping[str, StepResult] = _NOTHING,
    answers: Mapping[str, Answer] = _NOTHING,
    revision: int = 1,
    spent: Spent = NOTHING,
    started: float = 0.0,
    progress: Progress | None = None,
    engine: str = "",
) -> GoalReport:
    """Run a goal until it is over, or only people can bring it on.

    Args:
        goal: With a plan that `graph.check` found no error in.
        execution: The engine's side of this run.
        known: Results of runs before this one; these steps are not done again.
        answers: What people said so far, by step.
        revision: The goal's.
        spent: What earlier revisions took for results that are not in `known`.
        started: When the goal first ran; now when 0.
        progress: Where others look meanwhile.
        engine: The engine's name, for the report.

    Raises:
        InternalError: the engine gave a result to a step that is not its own.
    """
    run = _Run(goal, execution, known, answers, revision, progress or Progress(), spent)
    started = started or execution.now()
    await run.go()
    return run.report(started, engine)


class _Run:
    """One run."""

    def __init__(
        self,
        goal: Goal,
        execution: Execution,
        known: Mapping[str, StepResult],
        answers: Mapping[str, Answer],
        revision: int,
        progress: Progress,
        spent: Spent,
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
        self.steps, self.needs, self.behind = wire(plan)
        self.by_id = {step.id: step for step in self.steps}
        self.left = {name: len(needs) for name, needs in self.needs.items()}
        """Step -> how many of its needs have not ended."""
        self.todo = len(self.steps)
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.tasks: list[asyncio.Task[None]] = []
        self.ready: dict[str, asyncio.Event] = {}
        self.at_work: dict[str, asyncio.Task[Any]] = {}
        """Step -> the task that is inside `perform` or `ask`. Only there may it be cancelled from
        here: elsewhere the engine is writing something down."""
        self.told: set[str] = set()
        """Steps that were told to stop."""
        self.lost: dict[str, Usage] = {}
        """Step -> what it had taken when it was stopped."""
        self.culprit: StepResult | None = None
        """The failure that stopped everything."""
        self.fault: BaseException | None = None
        """What the engine itself could not do: that ends the run."""
        self.broke = ""
        """Which budget is used up."""
        self.spent = spent
        self.spending = Spending(plan, spent) if plan.budget != _UNLIMITED else None
        self.room: asyncio.Semaphore | None = None

    async def go(self) -> None:
        """Every step, to its end."""
        for step in self.steps if self.known else ():
            result = self.known.get(step.id)
            if result is not None:
                self.settle(step, result)
        if self.plan.parallel < len(self.steps):
            self.room = asyncio.Semaphore(self.plan.parallel)
        self.tasks = [
            asyncio.create_task(self.one(step)) for step in self.steps if step.id not in self.known
        ]
        try:
            await self.over
        except GeneratorExit:
            raise  # the run was thrown away: nobody is left to clean up for
        except BaseException:
            # Nothing of a run outlives it. Whoever is cleaning up already is not disturbed.
            for task in self.tasks:
                if not task.done() and not task.cancelling():
                    task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            raise

    async def one(self, step: Step) -> None:
        """A step, as the engine remembers it."""
        if self.over.done():
            return  # something broke, and everything is about to be cancelled
        try:
            result = await self.execution.record(step, partial(self.body, step))
            self.settle(step, result)
        except GeneratorExit:
            raise  # the run was thrown away
        except BaseException as exc:
            if not self.over.done():
                if isinstance(exc, asyncio.CancelledError):
                    self.over.cancel()
                else:
                    self.over.set_exception(exc)
            if not isinstance(exc, Exception):
                raise

    async def body(self, step: Step) -> StepResult:
        """A step, as it happens: wait, look whether it may begin, do it."""
        if self.left[step.id] and self.culprit is None:
            event = self.ready[step.id] = asyncio.Event()
            await event.wait()
        try:
            if self.needs[step.id] or self.culprit is not None or self.spending is not None:
                result = self.held(step)
                if result is not None:
                    return result
            if step.action_type == "human":
                return await self.ask(step)
            if self.room is None:
                return await self.perform(step) or self.stopped(step)
            # A place is taken only by who needs nothing more: nobody with a place waits for one.
            async with self.room:
                result = self.held(step)  # things happened meanwhile
                return result or await self.perform(step) or self.stopped(step)
        except Exception as exc:
            if exc is self.fault or isinstance(exc, InternalError):
                raise
            return broken(step, exc)  # an engine that replays would try it for ever

    def held(self, step: Step) -> StepResult | None:
        """Why a step does not begin; None when it may."""
        if self.culprit is not None:
            return self.stopped(step)
        waits = False
        for need in self.needs[step.id]:
            result = self.results[need]
            state = result.state
            if state == "done" or (state == "failed" and self.policy(need) == "continue"):
                continue
            if state in _REST:
                waits = True
                continue
            return skipped(step, result)
        if waits:
            return StepResult(step.id, "waiting")
        if self.spending is not None and step.action_type != "human":
            now = self.execution.now()
            self.broke = self.broke or self.spending.used_up(self.results, self.running, now)
            if self.broke:
                error = final("BUDGET", self.broke)._replace(hint=_MORE)
                return StepResult(step.id, "skipped", error=error)
        return None

    def stopped(self, step: Step) -> StepResult:
        """A step that ends because another one failed. What it took is spent all the same."""
        culprit = self.culprit.step if self.culprit else ""
        error = final(
            "CANCELLED", Message("Step `{name}` failed, which stops the goal", name=culprit)
        )
        usage = self.lost.get(step.id, NO_USAGE)
        return StepResult(step.id, "cancelled", error=error, usage=usage)

    def perform(self, step: Step) -> Awaitable[StepResult | None]:
        """Have it done by a worker; None when it was stopped."""
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
        if self.spending is not None:
            now = self.execution.now()
            call = call._replace(left=self.spending.left(self.results, self.running, now))
        return self.stoppable(step, self.execution.perform(call))

    def outputs(self, step: Step) -> dict[str, Any]:
        """The outputs that its texts mention; nothing of a step that failed."""
        if "{{" not in step.prompt and not step.arguments:
            return {}
        return {
            name: self.results[name].output if self.results[name].state == "done" else None
            for name in steps_mentioned(step)
        }

    async def ask(self, step: Step) -> StepResult:
        """Have it said by a person."""
        outputs = {name: artefacts.shown(value) for name, value in self.outputs(step).items()}
        text = fill(step.prompt, Values(self.plan.inputs, outputs, self.plan.goal))
        if len(text) > _QUESTION:
            text = f"{text[:_QUESTION]}… ({len(text)} characters)"
        since = self.execution.now()
        answer = self.answers.get(step.id)
        if answer is None:
            answer = await self.stoppable(step, self.execution.ask(step, text))
        if answer is None:
            if self.culprit is not None:
                return self.stopped(step)
            return StepResult(step.id, "asking", text, started=since)
        return answered(step, answer, since, self.execution.now())

    async def stoppable(self, step: Step, work: Awaitable[_T]) -> _T | None:
        """Wait for what may take long; None when it was stopped because another step failed."""
        task = asyncio.current_task(self.loop)
        if task is None:  # pragma: no cover - a body always runs in a task
            raise InternalError("A step runs outside of any task")
        name = step.id
        self.at_work[name] = task
        if step.action_type != "human":
            self.running[name] = self.execution.now()
        try:
            result = await work
        except BaseException as exc:
            if name not in self.told or not isinstance(exc, Exception | asyncio.CancelledError):
                self.fault = exc
                raise
            if task.uncancel() > 0:
                raise  # the whole run is cancelled as well
            self.lost[name] = carried(exc)
            return None
        else:
            if name in self.told:
                task.uncancel()  # it was quicker than we
            return result
        finally:
            del self.at_work[name]
            self.running.pop(name, None)

    def settle(self, step: Step, result: StepResult) -> None:
        """A step has ended, here or in an earlier run: whoever waits for it may look."""
        name = step.id
        state = result.state
        if result.step != name:
            raise InternalError(
                f"Step `{name}` was given the result of `{result.step}`", "Please report this"
            )
        self.results[name] = result
        if self.spending is not None:
            self.spending.add(result)
        if state == "failed" and self.policy(name) == "fail_fast":
            self.stop(result)
        elif state == "skipped" and result.error and result.error.code == "BUDGET":
            self.broke = result.error.message  # decided before a crash, and it stays so
        for other in self.behind[name]:
            self.left[other] -= 1
            if not self.left[other]:
                self.wake(other)
        self.todo -= 1
        if not self.todo and not self.over.done():
            self.over.set_result(None)

    def wake(self, name: str) -> None:
        """Let a step look whether it may begin."""
        if name in self.ready:
            self.ready[name].set()

    def policy(self, name: str) -> str:
        """What the failure of a step means."""
        return self.by_id[name].on_failure or self.plan.on_failure

    def stop(self, culprit: StepResult) -> None:
        """End everything that runs, and let nothing begin."""
        if self.culprit is not None:
            return
        self.culprit = culprit
        for name in self.left:
            self.wake(name)
        for name, task in self.at_work.items():
            self.told.add(name)
            task.cancel()

    def report(self, started: float, engine: str) -> GoalReport:
        """How it ended."""
        state, reason = ending(self.steps, self.results, self.culprit, self.broke)
        return report_of(
            self.goal,
            self.results,
            state,
            reason=reason,
            engine=engine,
            started=started,
            revision=self.revision,
            spent=self.spent,
        )
