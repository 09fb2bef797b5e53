"""The status of an engine as the terminal and the browser show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

from satchel.goals.labels import format_seconds, state_word, usage_words
from satchel.goals.model import FINAL_GOAL_STATES, GoalState
from satchel.i18n import render, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.goals.status import GoalStatus, StepStatus, WorkerStatus


class WorkerRow(NamedTuple):
    """One worker; a cell is empty when the engine does not know it."""

    name: str
    is_alive: bool
    seen: str
    """How long ago it was seen."""
    steps: str
    goals: str
    """How many goals it works on, and how many at most."""
    skills: str
    model: str


class ListedStep(NamedTuple):
    """A step that waits or is stuck."""

    goal: str
    step: str
    since: str
    """How long ago it began."""
    reason: str
    is_stuck: bool


class StatusShown(NamedTuple):
    """A status as texts."""

    open_goals: tuple[str, ...]
    """Numbers of open goals, by state."""
    ended_goals: tuple[str, ...]
    """Numbers of goals that ended, and what steps used, in the last 24 hours."""
    oldest: str
    """A sentence about the oldest running step; empty when none runs."""
    workers: tuple[WorkerRow, ...]
    steps: tuple[ListedStep, ...]
    """Stuck steps, then those that wait."""


def show_status(status: GoalStatus) -> StatusShown:
    """Return a status as texts.

    Args:
        status: The status.
    """
    stuck = (_step_row(step, status.time, is_stuck=True) for step in status.stuck)
    waiting = (_step_row(step, status.time, is_stuck=False) for step in status.waiting)
    states = get_args(GoalState)
    open_states = _counts(status, [state for state in states if state not in FINAL_GOAL_STATES])
    final_states = _counts(status, [state for state in states if state in FINAL_GOAL_STATES])
    return StatusShown(
        (say("{count} not ended", count=status.open), *open_states),
        (say("{count} ended", count=status.ended), *final_states, *usage_words(status.usage)),
        _oldest(status),
        tuple(_worker_row(worker, status.time) for worker in status.workers),
        (*stuck, *waiting),
    )


def _counts(status: GoalStatus, states: Iterable[GoalState]) -> tuple[str, ...]:
    """Return how many goals are in each of the states that have any."""
    return tuple(
        say("{count} {noun}", count=status.goals[state], noun=state_word(state))
        for state in states
        if status.goals.get(state)
    )


def _worker_row(worker: WorkerStatus, now: float) -> WorkerRow:
    goals = _number(worker.goals)
    return WorkerRow(
        worker.name,
        worker.is_alive,
        _age(worker.seen, now),
        _number(worker.steps),
        f"{goals}/{worker.at_once}" if worker.at_once and goals else goals,
        skills="" if worker.skills is None else str(len(worker.skills)),
        model=worker.model or "",
    )


def _number(count: int | None) -> str:
    return "" if count is None else str(count)


def _step_row(step: StepStatus, now: float, *, is_stuck: bool) -> ListedStep:
    reason = " ".join(render(step.reason).split())
    return ListedStep(step.goal, step.step, _age(step.since, now), reason, is_stuck)


def _oldest(status: GoalStatus) -> str:
    oldest = status.oldest
    if oldest is None:
        return ""
    return say(
        "The oldest running step is `{step}` of `{goal}`: {time}, on {worker}",
        step=oldest.step,
        goal=oldest.goal,
        time=_age(oldest.since, status.time),
        worker=oldest.worker,
    )


def _age(moment: float, now: float) -> str:
    """Return how long ago a moment was, without fractions; empty when it is unknown."""
    if not moment:
        return ""
    seconds = max(0.0, now - moment)
    return format_seconds(seconds) if seconds >= 60 else f"{round(seconds)} s"
