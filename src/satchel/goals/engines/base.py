"""The protocol of engines, and the errors and helpers that all of them share.

An engine stores plans and results and distributes work to workers. Order, retries and failures are
decided by `executor.execute`, with the `executor.Execution` that the engine provides.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol, Self

from satchel.errors import Conflict, NotFound, Refused
from satchel.goals.model import OVER
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import valid_results
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        StepResult,
    )


AT_REST: frozenset[str] = OVER | {"asking"}
"""States of a goal that only a caller changes."""


def goal_missing(goal_id: str) -> NotFound:
    """Error: there is no such goal."""
    return NotFound(
        say("There is no goal `{goal}`", goal=goal_id),
        say("Run `{command}`", command="satchel goal list"),
    )


def goal_running(goal_id: str) -> Conflict:
    """Error: a running goal cannot be started again."""
    return Conflict(
        say("Goal `{goal}` is running", goal=goal_id),
        say("Wait for it, or run `{command}`", command=f"satchel goal cancel {goal_id}"),
    )


def goal_cancelled(goal_id: str) -> Conflict:
    """Error: `resume` does not continue a cancelled goal."""
    return Conflict(
        say("Goal `{goal}` was cancelled", goal=goal_id),
        say("Run `{command}`", command=f"satchel goal retry {goal_id}"),
    )


def goal_damaged(goal_id: str, reason: str) -> Conflict:
    """Error: a goal with an unreadable journal does not run again."""
    return Conflict(
        say("Goal `{name}` is damaged: {reason}", name=goal_id, reason=reason),
        say(
            "Check what its steps have done, then run `{command}` and start it again",
            command=f"satchel goal remove {goal_id}",
        ),
    )


def plan_conflict(goal_id: str) -> Conflict:
    """Error: the id is taken."""
    return Conflict(
        say("There is a goal `{goal}` with another plan", goal=goal_id),
        say("Use another id, or `satchel goal retry` with `--plan` or `--input`"),
    )


def goal_not_over(goal_id: str, state: str) -> Conflict:
    """Error: only a goal that is over can be removed."""
    return Conflict(
        say("Goal `{goal}` is not over: {state}", goal=goal_id, state=state),
        say("Run `{command}`", command=f"satchel goal cancel {goal_id}"),
    )


def engine_not_open() -> Refused:
    """Error: the engine is used outside of `async with`."""
    return Refused(say("The engine is not open"), say("Use it with `async with`"))


def no_runner() -> Refused:
    """Error: this engine has no runner."""
    return Refused(say("This engine has no runner"), say("Give the engine a runner"))


class Engine(Protocol):
    """Runs goals and stores their state. Use it with `async with`."""

    name: str
    artifacts: Artifacts
    """Storage of large outputs: `artifacts.load` reads them."""

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
            goal_id: The goal.
            from_step: Run this step and its dependents again; when empty, those that did
                not end as `done`.
            plan: A changed plan: changed steps and their dependents run again.

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
            Conflict: it is running, or was cancelled.
        """
        ...

    async def forget(self, goal_id: str) -> None:
        """Delete a goal that has ended, with its journal and its large outputs.

        The same id may be submitted again afterwards, and runs from the start. Equal large outputs
        of other goals stay.

        Raises:
            NotFound: there is no such goal.
            Conflict: it is running, or waits for a person: cancel it first.
            Refused: this engine removes goals by itself.
        """
        ...

    async def work(self, *, drain: float = 30.0) -> None:
        """Run steps of all goals until cancelled; then finish running steps for `drain` seconds.

        Raises:
            Refused: this engine has no workers.
        """
        ...


def new_revision(
    goal: Goal, results: Mapping[str, StepResult], plan: Plan | None, from_step: str
) -> tuple[Goal, dict[str, StepResult]]:
    """The goal and the kept results of a new revision.

    Args:
        goal: The goal with its current plan.
        results: Results of the current revision.
        plan: A changed plan, if any.
        from_step: This step and its dependents run again in any case.

    Raises:
        NotFound: there is no step `from_step`.
        InvalidInput: the plan has errors.
    """
    revised = goal if plan is None else goal._replace(plan=plan)
    require_valid(revised)
    return revised, valid_results(goal.plan, revised.plan, results, from_step)


async def wait_until_rest(
    current: Callable[[], Awaitable[Any]],
    timeout: float | None,  # noqa: ASYNC109
    pause: float,
    max_pause: float,
) -> Any:
    """Poll with growing pauses until the goal is over or asks, or until the timeout."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        found = await current()
        left = pause if end is None else min(pause, end - time.monotonic())
        if found.state in AT_REST or left <= 0:
            return found
        await asyncio.sleep(left)
        pause = min(pause * 1.5, max_pause)
