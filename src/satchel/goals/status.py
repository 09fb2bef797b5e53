"""The status of an engine: how many goals run and wait, who runs their steps, and what is stuck.

`Engine.status` returns a `GoalStatus`. What an engine cannot tell cheaply is in `unknown`; it is
never estimated. A step is stuck when its worker is gone, or when workers have died with it twice.
A question that has no answer after a day is listed as waiting: it is no fault of a worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from satchel.goals.model import FINAL_GOAL_STATES, NO_USAGE, GoalState
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.goals.model import StepBegun, Usage

DAY_S = 86_400.0
"""The time that counts of ended goals and usage cover, and after which a question is overdue."""
MAX_STEPS_LISTED = 100
"""How many waiting and stuck steps are listed at most."""
_MIN_STUCK_DEATHS = 2


class StepStatus(NamedTuple):
    """A step that has begun, waits or is stuck."""

    goal: str
    """The id of the goal."""
    step: str
    """The id of the step."""
    worker: str = ""
    """The worker that has begun it, as `PID@HOST`; empty when it waits."""
    since: float = 0.0
    """When it began, in seconds since the epoch; 0 when unknown."""
    attempt: int = 0
    """The number of its latest attempt."""
    reason: str = ""
    """Why it waits or is stuck."""


class WorkerStatus(NamedTuple):
    """A worker: a process that runs steps. None means that the engine does not know it."""

    name: str
    """`PID@HOST`."""
    seen: float
    """When it last contacted the engine, in seconds since the epoch."""
    is_alive: bool = True
    """False when its lease is over, or its process is gone."""
    steps: int | None = None
    """How many steps it runs."""
    goals: int | None = None
    """How many goals it works on."""
    at_once: int | None = None
    """How many goals it works on at most; steps on Temporal."""
    only_goal: str = ""
    """The only goal that it works on; empty for all."""
    model: str | None = None
    """Its model; empty without one."""
    skills: Mapping[str, str] | None = None
    """Name -> digest of the skills that it can run."""


class GoalStatus(NamedTuple):
    """The status of an engine at one moment.

    Example:
        from satchel.goals import DbosEngine


        async def stuck_steps(address):
            async with DbosEngine(None, address) as engine:
                status = await engine.status()
            return [(step.goal, step.step, step.reason) for step in status.stuck]
    """

    engine: str
    """The name of the engine."""
    time: float
    """When it was taken, in seconds since the epoch."""
    open: int
    """How many goals have not ended."""
    ended: int
    """How many goals ended in the last 24 hours; on Temporal each run of a goal counts."""
    goals: Mapping[GoalState, int]
    """State -> how many goals; those that ended count for 24 hours. Unknown states are left out."""
    oldest: StepStatus | None = None
    """The running step that began first."""
    waiting: tuple[StepStatus, ...] = ()
    """Steps that wait for a worker which has what they need, and questions older than a day."""
    stuck: tuple[StepStatus, ...] = ()
    """Steps whose worker is gone, or with which workers have died repeatedly."""
    workers: tuple[WorkerStatus, ...] = ()
    """The workers of the engine, also those that have just died."""
    unattended: int = 0
    """How many goals have work to do and no live worker."""
    usage: Usage = NO_USAGE
    """What the steps used that ended in the last 24 hours."""
    unknown: tuple[str, ...] = ()
    """The fields above, and states of goals, that this engine cannot tell."""

    @property
    def needs_attention(self) -> bool:
        """Whether a step is stuck, or goals have no worker."""
        return bool(self.stuck or self.unattended)


class BegunStep(NamedTuple):
    """The record of a step without a result, and whether its worker is alive."""

    goal: str
    begun: StepBegun
    is_alive: bool

    @property
    def is_running(self) -> bool:
        """Whether a live worker has it."""
        return bool(self.begun.worker) and self.is_alive


def sort_steps(steps: Iterable[BegunStep]) -> dict[str, Any]:
    """Return the fields `oldest`, `waiting` and `stuck` of a status.

    Args:
        steps: The steps of open goals that have begun and have no result.
    """
    running: list[StepStatus] = []
    waiting: list[StepStatus] = []
    stuck: list[StepStatus] = []
    for step in steps:
        begun = step.begun
        status = StepStatus(step.goal, begun.step, begun.worker, begun.started, begun.attempts)
        if begun.worker and not step.is_alive:
            reason = Message("Worker `{worker}` is gone", worker=begun.worker)
            stuck.append(status._replace(reason=reason))
        elif begun.deaths >= _MIN_STUCK_DEATHS:
            reason = Message("Its worker died {count} times while it ran", count=begun.deaths)
            if not begun.worker:
                reason = join_messages((reason, begun.waits_for))
            stuck.append(status._replace(reason=reason))
        elif begun.waits_for and not begun.worker:
            waiting.append(status._replace(reason=begun.waits_for))
        if step.is_running:
            running.append(status)
    return {
        "oldest": min(running, key=lambda step: step.since, default=None),
        "waiting": _first_steps(waiting),
        "stuck": _first_steps(stuck),
    }


def _first_steps(steps: list[StepStatus]) -> tuple[StepStatus, ...]:
    return tuple(sorted(steps, key=lambda step: (step.since, step.goal))[:MAX_STEPS_LISTED])


def overdue_question(goal: str, step: str, since: float) -> StepStatus:
    """Return the status of a question that has been open for more than a day."""
    reason = Message("It has waited for a person for more than a day")
    return StepStatus(goal, step, since=since, reason=reason)


def count_goals(states: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields `open`, `ended` and `goals` of a status.

    Args:
        states: State -> how many goals, as far as there are any.
    """
    goals: dict[GoalState, int] = {state: states.get(state, 0) for state in get_args(GoalState)}
    ended = sum(count for state, count in goals.items() if state in FINAL_GOAL_STATES)
    return {"open": sum(goals.values()) - ended, "ended": ended, "goals": goals}


def status_to_dict(status: GoalStatus) -> dict[str, Any]:
    """Return a status as JSON values; what is unknown is None."""
    values: dict[str, Any] = {
        **status._asdict(),
        "goals": {state: status.goals.get(state) for state in get_args(GoalState)},
        "oldest": status.oldest and status.oldest._asdict(),
        "usage": status.usage._asdict(),
        "needs_attention": status.needs_attention,
    }
    for name in ("waiting", "stuck", "workers"):
        values[name] = [record._asdict() for record in values[name]]
    del values["unknown"]
    return {name: None if name in status.unknown else value for name, value in values.items()}
