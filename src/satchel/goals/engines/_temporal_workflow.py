"""What does Temporal replay? A workflow that runs `execute`; each step is one activity.

The plan is data, so this code seldom changes; where it must, `workflow.patched` keeps goals that
run replayable. Nothing of the user's runs here, only on workers (`_temporal_worker`).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from satchel._optional import require
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.execute import execute
from satchel.goals.model import Answer, StepError, StepEvent, StepResult
from satchel.goals.reports import pack, pack_results, report_of, summary_of, unpack
from satchel.goals.revision import going_on

try:
    from temporalio import workflow
    from temporalio.common import RetryPolicy
    from temporalio.exceptions import ActivityError, CancelledError, is_cancelled_exception
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.model import GoalReport, GoalState, Step, StepCall

SILENCE = timedelta(seconds=10)
"""A worker that does not say for so long that it lives has lost its step to another one."""
LONGEST = timedelta(days=365)
"""Temporal wants an end for every activity; the step's own is in `perform`."""
LOST = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=50,
)
"""Only for lost workers: what a step itself does wrong is a result. A step that kills each worker
that takes it ends after so many of them."""
PENDING = 1_900
"""Activities at once; Temporal's own end is at 2,000."""


@workflow.defn(name=wire.WORKFLOW, sandboxed=False)
class GoalWorkflow:
    """One revision of a goal."""

    @workflow.init
    def __init__(self, packed: dict[str, Any]) -> None:
        task = wire.unpack_task(packed)
        self.task = task
        self.goal = task.goal
        self.large = wire.large_for(len(task.goal.plan.steps))
        self.answers = dict(task.answers)
        self.results: dict[str, StepResult] = dict(task.known)
        """Also of steps that run or ask now: what a report shows."""
        self.asked: dict[str, asyncio.Event] = {}
        """Steps that ask, and what wakes them."""
        self.busy = 0
        """Activities that run."""
        self.full = False
        """Whether the history is so long that nothing new begins in it."""
        self.room = asyncio.Semaphore(PENDING)
        self.events: list[StepEvent] = []
        self.people = any(step.action_type == "human" for step in self.goal.plan.steps)
        self.started = task.started
        self.ended: GoalReport | None = None

    @workflow.run
    async def run(self, packed: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as in `init`
        """Bring the goal to its end."""
        self.started = self.started or self.now()
        self.tell(StepEvent(self.goal.id, "", "running", self.now()))
        whole = asyncio.create_task(
            execute(
                self.goal,
                self,
                known=self.task.known,
                answers=self.task.answers,
                revision=self.task.revision,
                spent=self.task.spent,
                started=self.started,
            )
        )
        notice = asyncio.create_task(self.note_asking()) if self.people else None
        try:
            await workflow.wait_condition(lambda: whole.done() or (self.full and not self.busy))
            if not whole.done():
                await self.go_on_in_another(whole)
            report = whole.result()
        except asyncio.CancelledError:
            whole.cancel()
            await asyncio.gather(whole, return_exceptions=True)
            report = self.report("cancelled")
        finally:
            if notice is not None:
                notice.cancel()
        return self.end(report)

    def end(self, report: GoalReport) -> dict[str, Any]:
        """Say how it ended, in the list of workflows too."""
        self.ended = report
        self.results = dict(report.steps)
        self.events.append(StepEvent(self.goal.id, "", report.state, self.now(), report.reason))
        # One that simply ended as `done` is known by that: each memo is a write for the server.
        if report.state != "done" or self.people or self.task.started:
            line = summary_of(report)
            workflow.upsert_memo(
                {"state": report.state, "done": line.done, "started": line.started,
                 "seconds": line.seconds}
            )  # fmt: skip
        return self.progress()

    async def go_on_in_another(self, whole: asyncio.Task[GoalReport]) -> NoReturn:
        """Begin a new history with what is known: this one is nearly full."""
        known = going_on(self.results)
        whole.cancel()
        await asyncio.gather(whole, return_exceptions=True)
        # An answer that has made a result is in it: only its mark is carried on.
        task = self.task._replace(
            known=known,
            answers={name: said for name, said in self.answers.items() if name not in known},
            marks=self.marks(),
            started=self.started,
        )
        workflow.continue_as_new(wire.pack_task(task))

    async def note_asking(self) -> None:
        """Keep in the list of workflows whether it asks."""
        while True:
            await workflow.wait_condition(lambda: self.state() == "asking")
            workflow.upsert_memo({"state": "asking", "done": self.done()})
            await workflow.wait_condition(lambda: self.state() != "asking")
            if self.ended is None:
                workflow.upsert_memo({"state": "running", "done": self.done()})

    # --- what `execute` wants ---------------------------------------------------------------

    def now(self) -> float:
        """The time that the history says it is."""
        return workflow.time()

    async def record(
        self,
        step: Step,  # noqa: ARG002
        body: Callable[[], Awaitable[StepResult]],
    ) -> StepResult:
        """Temporal records what comes from outside; all else is the same in a replay."""
        return await body()

    async def perform(self, call: StepCall) -> StepResult:
        """One activity."""
        await self.room.acquire()
        try:
            if self.full or self.is_full():
                self.full = True
                await asyncio.Event().wait()  # until the workflow goes on in another history
            self.busy += 1
            try:
                return unpack(StepResult, await self.activity(call))
            except ActivityError as exc:
                if is_cancelled_exception(exc) or isinstance(exc.cause, CancelledError):
                    raise asyncio.CancelledError from exc
                return _lost(call, exc)
            finally:
                self.busy -= 1
        finally:
            self.room.release()

    async def activity(self, call: StepCall) -> Any:
        """Have it done by whoever is free. It is over only when the worker says that it is."""
        return await workflow.execute_activity(
            wire.ACTIVITY,
            wire.pack_call(call, self.large),
            activity_id=call.step.id,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=SILENCE,
            retry_policy=LOST,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    async def ask(self, step: Step, text: str) -> Answer | None:  # noqa: ARG002 - told before
        """Sleep until somebody has said it."""
        answer = self.answers.get(step.id)
        if answer is None:
            event = self.asked[step.id] = asyncio.Event()
            try:
                await event.wait()
            finally:
                del self.asked[step.id]
            answer = self.answers[step.id]
        return answer

    def tell(self, event: StepEvent) -> None:
        """Remember it for who watches."""
        if event.state == "asking":  # what people are asked must fit into a message as well
            event = event._replace(text=wire.cut(event.text, self.large))
        self.events.append(event)
        if event.result is not None:
            self.results[event.step] = event.result
        elif event.state == "running" and event.step:
            self.results[event.step] = StepResult(event.step, "running", started=event.at)
        elif event.state == "asking":
            self.results[event.step] = StepResult(
                event.step, "asking", event.text, started=event.at
            )

    # --- what people say and ask ------------------------------------------------------------

    @workflow.signal(name=wire.ANSWER)
    def answer(self, step: str, packed: dict[str, Any]) -> None:
        """A person's word; the first one holds."""
        event = self.asked.get(step)
        if event is not None and step not in self.answers:
            self.answers[step] = unpack(Answer, packed)
            event.set()

    @workflow.query(name=wire.PROGRESS)
    def progress(self) -> dict[str, Any]:
        """Everything but the plan, which who asks has already."""
        report = self.ended or self.report(self.state())
        return {
            "state": report.state,
            "reason": report.reason,
            "started": report.started,
            "revision": report.revision,
            "results": pack_results(report.steps),
            "answers": self.marks(),
        }

    def marks(self) -> dict[str, str]:
        """What was said to whom, in short."""
        said = {name: wire.mark_of(answer) for name, answer in self.answers.items()}
        return {**self.task.marks, **said}

    @workflow.query(name=wire.SUMMARY)
    def summary(self) -> dict[str, Any]:
        """What a list shows."""
        report = self.ended or self.report(self.state())
        return {
            "state": report.state,
            "done": self.done(),
            "started": report.started,
            "seconds": report.seconds,
        }

    @workflow.query(name=wire.EVENTS)
    def events_after(self, after: int) -> dict[str, Any]:
        """What happened since an event, the oldest first, as much as fits."""
        page: list[Any] = []
        size = 0
        for event in self.events[after:]:
            packed = pack(event)
            page.append(packed)
            size += len(wire.encoded(packed))
            if size > wire.PAGE_BYTES:
                break
        more = after + len(page) < len(self.events)
        return {"state": self.state(), "events": page, "more": more}

    def report(self, state: GoalState, reason: str = "") -> GoalReport:
        """How far it is."""
        return report_of(
            self.goal,
            self.results,
            state,
            reason=reason,
            started=self.started,
            revision=self.task.revision,
        )

    def state(self) -> GoalState:
        """Its state now; only looked at when everything that could go on has gone on."""
        if self.ended is not None:
            return self.ended.state
        return "asking" if self.asked and not self.busy and not self.full else "running"

    def done(self) -> int:
        """How many steps are done."""
        return sum(result.state == "done" for result in self.results.values())

    def is_full(self) -> bool:
        """Whether the history leaves no room for more."""
        info = workflow.info()
        return (
            info.get_current_history_length() > self.task.events
            or info.get_current_history_size() > self.task.bytes
        )


def _lost(call: StepCall, exc: ActivityError) -> StepResult:
    """A step that no worker brought to an end."""
    cause = exc.cause or exc
    error = StepError(
        "WORKER_LOST",
        f"No worker brought it to an end: {getattr(cause, 'message', None) or cause}"[:2_000],
        "Look at the workers' logs: the step may take their memory, or kill them",
        retryable=False,
    )
    return StepResult(call.step.id, "failed", error=error)
