"""The protocol of engines, and the errors and helpers that all of them share.

An engine stores plans and results and distributes work to workers. Order, retries and failures are
decided by `executor.execute`, with the `executor.Execution` that the engine provides.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

from satchel.errors import Conflict, InvalidInput, NotFound, Refused
from satchel.goals.model import FINAL_GOAL_STATES
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
        Schedule,
        StepResult,
    )
    from satchel.goals.status import GoalStatus


AT_REST: frozenset[str] = FINAL_GOAL_STATES | {"asking"}
"""States of a goal that only a caller changes."""


MAX_BATCH_GOALS = 1_000
"""Of goals that are removed at once."""
CANCELLATION_TIMEOUT_S = 30.0
"""How long a retry waits for the steps of a cancelled goal to end."""


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


def goal_changed(goal_id: str) -> Conflict:
    """Error: an answer, a retry or a cancellation was first."""
    return Conflict(
        say("Goal `{goal}` was changed at the same moment", goal=goal_id),
        say("Run `{command}`", command=f"satchel goal show {goal_id}"),
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


def schedule_missing(name: str) -> NotFound:
    """Error: there is no such schedule."""
    return NotFound(
        say("There is no {kind} `{name}`", kind=say("schedule"), name=name),
        say("Run `{command}`", command="satchel goal schedule"),
    )


def cron_invalid(cron: str) -> InvalidInput:
    """Error: an engine cannot read the times of a schedule."""
    return InvalidInput(
        say("`{value}` is not valid", value=cron),
        say(
            "Write minute, hour, day, month and weekday in UTC, such as `{cron}`", cron="0 7 * * 1"
        ),
    )


def scheduled_goal(goal: Goal, moment: datetime) -> Goal:
    """The goal that a schedule starts at a moment: the same id for every process that starts it."""
    return goal._replace(id=f"{goal.id}-{moment:%Y-%m-%dT%H%M%SZ}")


def require_valid_schedule(goal: Goal) -> None:
    """Raise unless an engine can run the goals of a schedule.

    Raises:
        InvalidInput: its name or its plan has errors.
    """
    require_valid(goal)
    require_valid(scheduled_goal(goal, datetime.now(UTC)))


class Engine(Protocol):
    """Runs goals and stores their state; the base of all engines. Use it with `async with`."""

    name: str
    """The name of the engine, as in the setting `engine`."""
    artifacts: Artifacts
    """Storage of large outputs: `artifacts.load` reads them."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal and return at once; the same id and plan again changes nothing.

        Args:
            goal: The goal, with its plan.

        Raises:
            InvalidInput: the plan has errors.
            Conflict: the id is taken by another plan.
        """
        ...

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until a goal ends or waits for an answer, or until the timeout; return its report.

        Args:
            goal_id: The id of the goal.
            timeout: Seconds to wait at most; None waits without a limit.

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

    async def status(self) -> GoalStatus:
        """How many goals run and wait, the workers, and the steps that wait or are stuck."""
        ...

    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Answer a step that waits for a person; the goal continues.

        Args:
            goal_id: The id of the goal.
            step: The id of the step.
            answer: The answer.

        Raises:
            NotFound: there is no such goal or step.
            Conflict: the step waits for no answer, or has another one. The same answer again is
                fine.
        """
        ...

    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal: running steps are ended, the others never start.

        It is `cancelling` until the running steps have ended. A goal that has ended stays as it is.

        Raises:
            NotFound: there is no such goal.
        """
        ...

    async def retry(
        self,
        goal_id: str,
        *,
        from_step: str = "",
        plan: Plan | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> GoalReport:
        """Run a goal again from failed, changed or named steps; other results are kept.

        Args:
            goal_id: The id of the goal.
            from_step: Run this step and its dependents again; when empty, those that did
                not end as `done`.
            plan: A changed plan: changed steps and their dependents run again.
            versions: The digests that steps must run with from now on; those of the goal when None.

        Raises:
            NotFound: there is no such goal or step.
            Conflict: it is running, or a step of it does not end after a cancellation.
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

    async def ended_before(self, moment: float) -> Sequence[str]:
        """Return the ids of the goals that ended before a moment.

        On Temporal: of goals that the server has removed, and whose large outputs remain.

        Args:
            moment: In seconds since the epoch.
        """
        ...

    async def forget_all(self, goal_ids: Sequence[str]) -> Sequence[str]:
        """Delete those of the goals that have ended, as `forget` does; return their ids.

        Args:
            goal_ids: At most 1,000 ids.
        """
        ...

    async def schedule(self, goal: Goal, cron: str) -> None:
        """Make a schedule, or replace the one of this name.

        Args:
            goal: What is started each time. Its id is the name of the schedule; the time is added.
            cron: Minute, hour, day, month and weekday, in UTC.

        Raises:
            InvalidInput: the plan, the name or the times have errors.
            Refused: this engine has no schedules.
        """
        ...

    async def schedules(self) -> Sequence[Schedule]:
        """Return all schedules, by name.

        Raises:
            Refused: this engine has no schedules.
        """
        ...

    async def unschedule(self, name: str) -> None:
        """Remove a schedule; the goals that it has started stay.

        Args:
            name: The name of the schedule.

        Raises:
            NotFound: there is no such schedule.
            Refused: this engine has no schedules.
        """
        ...

    async def work(self, *, drain: float = 30.0) -> None:
        """Run steps of all goals until cancelled; then finish running steps for `drain` seconds.

        Args:
            drain: Seconds for the running steps to finish.

        Raises:
            Refused: this engine has no workers.
        """
        ...

    async def health(self) -> str:
        """Why this process cannot run steps, such as a lost connection; empty when it can.

        Raises:
            Refused: the engine was opened without a runner.
        """
        ...


async def wait_until_cancelled(goal_id: str, current: Callable[[], Awaitable[Any]]) -> Any:
    """Wait while a goal is `cancelling`; return its report.

    Raises:
        Conflict: a step does not end.
    """
    give_up = time.monotonic() + CANCELLATION_TIMEOUT_S
    while (report := await current()).state == "cancelling":
        if time.monotonic() > give_up:
            raise Conflict(
                say("A step of goal `{goal}` has not ended since it was cancelled", goal=goal_id),
                say("Wait for it, or stop the worker that `satchel goal show` names"),
            )
        await asyncio.sleep(0.1)
    return report


def new_revision(
    goal: Goal,
    results: Mapping[str, StepResult],
    plan: Plan | None,
    from_step: str,
    versions: Mapping[str, str] | None = None,
) -> tuple[Goal, dict[str, StepResult]]:
    """The goal and the kept results of a new revision.

    Args:
        goal: The goal with its current plan.
        results: Results of the current revision.
        plan: A changed plan, if any.
        from_step: This step and its dependents run again in any case.
        versions: Changed digests of skills and tools, if any.

    Raises:
        NotFound: there is no step `from_step`.
        InvalidInput: the plan has errors.
    """
    revised = goal._replace(
        plan=goal.plan if plan is None else plan,
        versions=goal.versions if versions is None else versions,
    )
    require_valid(revised)
    return revised, valid_results(goal.plan, revised.plan, results, from_step)


def deadlines_of(report: GoalReport) -> dict[str, float]:
    """Return until when the questions of a goal wait for an answer, in seconds since the epoch."""
    return {
        step.id: report.steps[step.id].started + step.deadline
        for step in report.plan.steps
        if step.deadline is not None and report.steps[step.id].state == "asking"
    }
