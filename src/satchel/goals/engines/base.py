"""The protocol of engines, and the refusals that all of them share.

An engine keeps plans and results and brings work to workers. It decides nothing about order,
retries or failures: `execute` does, with the `Execution` that the engine gives it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, Self

from satchel._language import say
from satchel.errors import Conflict, NotFound, Refused
from satchel.goals.execution import Execution, Workbench
from satchel.goals.model import ENDS, OVER, StepEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from satchel.goals.artefacts import Artefacts
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
    )


__all__ = [
    "AT_REST",
    "Engine",
    "Execution",
    "Workbench",
    "busy",
    "cancelled",
    "damaged",
    "missing",
    "no_runner",
    "not_open",
    "not_over",
    "other_plan",
    "watch_reports",
]

AT_REST: frozenset[str] = OVER | {"asking"}
"""States of a goal in which nothing happens by itself."""


def missing(goal_id: str) -> NotFound:
    """There is no such goal."""
    return NotFound(
        say("There is no goal `{goal}`", goal=goal_id), say("Run `satchel goal list` to see them")
    )


def busy(goal_id: str) -> Conflict:
    """A goal that runs cannot be begun again."""
    return Conflict(
        say("Goal `{goal}` is running", goal=goal_id),
        say("Wait for it, or run `satchel goal cancel {goal}`", goal=goal_id),
    )


def cancelled(goal_id: str) -> Conflict:
    """A cancelled goal does not go on with `resume`."""
    return Conflict(
        say("Goal `{goal}` was cancelled", goal=goal_id),
        say("Go on with it: `satchel goal retry {goal}`", goal=goal_id),
    )


def damaged(goal_id: str) -> Conflict:
    """A goal whose journal cannot be read does not run again."""
    return Conflict(
        say("The journal of goal `{goal}` is damaged", goal=goal_id),
        say(
            "Run `satchel goal show {goal}` to see where, and `satchel goal remove {goal}` to "
            "use the id again",
            goal=goal_id,
        ),
    )


def other_plan(goal_id: str) -> Conflict:
    """The id is taken."""
    return Conflict(
        say("There is a goal `{goal}` with another plan", goal=goal_id),
        say("Use another id, or `satchel goal retry` with `--plan` or `--input`"),
    )


def not_over(goal_id: str, state: str) -> Conflict:
    """A goal that is not over cannot be removed."""
    return Conflict(
        say("Goal `{goal}` waits for a person", goal=goal_id)
        if state == "asking"
        else say("Goal `{goal}` is not over", goal=goal_id),
        say("Run `satchel goal cancel {goal}` first", goal=goal_id),
    )


def not_open() -> Refused:
    """The engine is used outside of `async with`."""
    return Refused(say("The engine is not open"), say("Use it with `async with`"))


def no_runner() -> Refused:
    """Steps cannot be done here."""
    return Refused(say("Nobody here can do the steps of goals"), say("Give the engine a runner"))


class Engine(Protocol):
    """Runs goals and stores their state. Use it with `async with`."""

    name: str
    durable: bool
    """Whether goals outlive their process without somebody's help."""
    artefacts: Artefacts
    """Where large outputs are: `artefacts.load` gets them."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal and return at once; the same id and plan again changes nothing.

        Raises:
            InvalidInput: the plan has errors.
            Conflict: the id is taken by another plan.
        """
        ...

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until a goal ends or waits for an answer, or until the timeout; return its report.

        Raises:
            NotFound: there is no such goal.
        """
        ...

    async def report(self, goal_id: str) -> GoalReport:
        """The state of a goal and its steps.

        Raises:
            NotFound: there is no such goal.
        """
        ...

    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries of goals, newest first.

        Args:
            states: Only goals in these states; all when empty.
            limit: How many at most.
            before: Only goals that were submitted before this moment, in seconds since the epoch.
        """
        ...

    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Answer a step that waits for a person; the goal continues.

        Raises:
            NotFound: there is no such goal or step.
            Conflict: the step waits for no answer, or has another one. The same answer again is
                fine.
        """
        ...

    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal: running steps are ended, the others never start.

        A goal that has ended stays as it is.

        Raises:
            NotFound: there is no such goal.
        """
        ...

    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Run a goal again from failed, changed or named steps; other results are kept.

        Args:
            goal_id: Which.
            from_step: Do this step and all that depend on it again; when empty, those that did
                not end as `done`.
            plan: A changed plan: steps that changed, and what depends on them, are done again.

        Raises:
            NotFound: there is no such goal or step.
            Conflict: it is running.
            InvalidInput: the plan has errors.
        """
        ...

    async def resume(self, goal_id: str) -> GoalReport:
        """Continue a goal whose process is gone; durable engines do it by themselves.

        Raises:
            NotFound: there is no such goal.
            Conflict: it runs in a process that lives, or was cancelled.
        """
        ...

    async def forget(self, goal_id: str) -> None:
        """Delete a goal that has ended, with its journal and its large outputs.

        The same id may be submitted again afterwards, and runs from the start. Equal large outputs
        of other goals stay.

        Raises:
            NotFound: there is no such goal.
            Conflict: it is running, or waits for a person: cancel it first.
        """
        ...

    def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """Events of a goal from its start until it ends or waits for an answer."""
        ...

    async def work(self, *, drain: float = 30.0) -> None:
        """Run steps of all goals until cancelled; then finish running steps for `drain` seconds.

        Raises:
            Refused: this engine has no workers.
        """
        ...


async def watch_reports(
    report: Callable[[], Awaitable[GoalReport]], rest: Collection[str], pause: float
) -> AsyncIterator[StepEvent]:
    """Yield what changes between two reports, until the goal is in one of the states of `rest`."""
    told: dict[str, tuple[str, int]] = {}
    while True:
        now = await report()
        for event in _news(now, told):
            yield event
        if now.state in rest:
            return
        await asyncio.sleep(pause)


def _news(report: GoalReport, told: dict[str, tuple[str, int]]) -> list[StepEvent]:
    """What a report says that is not in `told` (step -> state, number of notes); it is added there.

    Steps that ended come first, in the order of their ends.
    """
    found: list[StepEvent] = []
    rows = sorted(
        report.steps.values(),
        key=lambda one: (one.state not in ENDS, one.started + one.seconds),
    )
    for result in rows:
        name, state = result.step, result.state
        known, notes = told.get(name, ("", 0))
        new = state not in {"waiting", known} and known not in ENDS
        if new and not (known and state == "running"):
            at = result.started + result.seconds or time.time()
            text = str(result.output) if state == "asking" else ""
            found.append(StepEvent(report.id, name, state, at, text, result))
            told[name] = state, notes
        if state == "running" and len(result.notes) > notes:
            found += [
                StepEvent(report.id, name, "retrying", time.time(), note)
                for note in result.notes[notes:]
            ]
            told[name] = state, len(result.notes)
    if told.get("") != (report.state, 0):
        told[""] = report.state, 0
        found.append(StepEvent(report.id, "", report.state, time.time(), report.reason))
    return found
