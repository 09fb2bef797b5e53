"""What is shown of goals? The rows of their list, and the board of one: its steps as they stand."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import render, say
from satchel.goals.drawing.words import MARKS, kind_of, seconds, state_word, took, waited
from satchel.goals.model import OVER
from satchel.goals.permission import done_again, not_done, unallowed
from satchel.goals.reports import last_sign
from satchel.goals.wiring import needs_in, order
from satchel.ui.views.answering import ask_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.facade import Satchel
    from satchel.goals.model import (
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        Step,
        StepResult,
        Usage,
    )
    from satchel.ui.views.answering import Ask

TONES = {
    "running": "info",
    "asking": "warn",
    "done": "good",
    "partial": "warn",
    "failed": "bad",
    "damaged": "bad",
}
"""State of a step or a goal -> the colour of its badge; the others have none."""
GOAL_MARKS = {**MARKS, "queued": "○", "partial": "▲", "damaged": "✗"}
KINDS: Mapping[str, tuple[GoalState, ...]] = {
    "": (),
    "open": ("queued", "running"),
    "asking": ("asking",),
    "done": ("done",),
    "failed": ("failed", "partial", "damaged"),
    "cancelled": ("cancelled",),
}
"""What a list is asked for -> the states that it shows."""
PAGE = 50
MOST_DRAWN = 300
"""Steps of a goal that is drawn; a larger one is a picture that nobody can read."""
_CUT = 240


class State(NamedTuple):
    """A state as people see it: never by its colour alone."""

    name: str
    word: str
    mark: str
    tone: str


class Row(NamedTuple):
    """One goal of the list."""

    id: str
    state: State
    text: str
    engine: str
    begun: str
    begun_iso: str
    taken: str
    done: int
    steps: int


class Rows(NamedTuple):
    """A page of the list."""

    rows: tuple[Row, ...]
    kinds: tuple[tuple[str, str], ...]
    """What the list can be asked for, and its word."""
    kind: str
    before: str
    """Where older ones begin; empty when there are none."""
    last: str
    """The last goal of this page: its moment alone might name it again."""


class StepRow(NamedTuple):
    """One step of a board."""

    id: str
    title: str
    who: str
    state: State
    taken: str
    since: float
    """When it began, while it runs; 0 when nobody knows."""
    needs: tuple[str, ...]


class Again(NamedTuple):
    """What a retry would do."""

    steps: tuple[str, ...]
    allow: str
    """The tool that somebody has to allow for it; empty when none is."""


class Board(NamedTuple):
    """A goal as it stands."""

    id: str
    text: str
    state: State
    engine: str
    revision: int
    begun: str
    begun_iso: str
    taken: str
    usage: tuple[str, ...]
    reason: str
    counts: tuple[tuple[State, int], ...]
    done: int
    steps: tuple[StepRow, ...]
    asks: tuple[Ask, ...]
    allow: str
    """The tool that somebody has to allow before it goes on; empty when none is."""
    again: Again | None
    """What can be tried again; None while it runs, or when everything is done."""
    is_over: bool
    is_left: bool
    """Nobody is at it, and somebody here could be."""
    note: str
    """Who does its steps, where that is not us."""
    quiet_since: float
    """When something last ended, while it runs."""
    now: float
    drawn: bool


def state_of(name: str) -> State:
    """A state as people see it."""
    return State(name, state_word(name), GOAL_MARKS.get(name, "·"), TONES.get(name, ""))


def moment(at: float) -> str:
    """A time for people, by the clock of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def iso(at: float) -> str:
    """A time for programs."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds") if at else ""


# --- the list ----------------------------------------------------------------------------


def kinds() -> tuple[tuple[str, str], ...]:
    """What a list can be asked for, and its word."""
    return (
        ("", say("All")),
        ("open", say("At work")),
        ("asking", say("Ask a person")),
        ("done", say("Done")),
        ("failed", say("Failed")),
        ("cancelled", say("Cancelled")),
    )


def rows_of(found: Sequence[GoalSummary], kind: str = "", last: str = "") -> Rows:
    """A page of the list.

    Args:
        found: What the engine has, one more than a page at least when there is more.
        kind: What was asked for.
        last: The last goal of the page before: what comes up to it was shown.
    """
    ids = [one.id for one in found]
    if last in ids:
        found = found[ids.index(last) + 1 :]
    shown = found[:PAGE]
    began = [one.started for one in shown if one.started]
    more = len(found) > PAGE and bool(began)
    return Rows(
        tuple(map(_row, shown)),
        kinds(),
        kind,
        repr(began[-1]) if more else "",
        shown[-1].id if more else "",
    )


def _row(one: GoalSummary) -> Row:
    text = " ".join(one.goal.split())
    return Row(
        one.id,
        state_of(one.state),
        text if len(text) <= _CUT else f"{text[:_CUT]}…",
        one.engine,
        moment(one.started),
        iso(one.started),
        seconds(one.seconds) if one.seconds else "",
        one.done,
        max(one.steps, 1),
    )


# --- one goal ----------------------------------------------------------------------------


def board_of(satchel: Satchel, report: GoalReport, *, shared: bool, on: bool = False) -> Board:
    """A goal as it stands.

    Args:
        satchel: Whose tools may be called without asking.
        report: How far it is.
        shared: Whether workers of other machines do the steps.
        on: Whether a process of ours goes on with it.
    """
    steps = order(report.plan)
    results = report.steps
    needs = needs_in(report.plan)
    counts = [
        (state_of(name), count)
        for name in MARKS
        if (count := sum(one.state == name for one in results.values()))
    ]
    over = report.state in OVER
    asking = [step for step in steps if results[step.id].state == "asking"]
    # A state that says `running` with a reason means that nobody is at it any more.
    alone = report.state == "queued" or (report.state == "running" and bool(report.reason))
    return Board(
        report.id,
        " ".join(report.plan.goal.split()),
        state_of(report.state),
        report.engine,
        report.revision,
        moment(report.started),
        iso(report.started),
        seconds(report.seconds) if report.seconds else "",
        usage_words(report.usage),
        "" if report.state == "asking" else render(report.reason),
        tuple(counts),
        sum(one.state == "done" for one in results.values()),
        tuple(_step_row(step, results[step.id], needs[step.id]) for step in steps),
        tuple(ask_of(step, results[step.id]) for step in asking),
        _to_allow(satchel, not_done(report), shared=shared) if asking or alone else "",
        again_of(satchel, report, shared=shared) if over and report.state != "damaged" else None,
        over,
        alone and not shared and not on,
        _who_works(satchel, report, shared=shared) if alone and not on else "",
        last_sign(report) if report.state == "running" else 0.0,
        time.time(),
        0 < len(steps) <= MOST_DRAWN,
    )


def last_of(report: GoalReport) -> str:
    """The step whose output is what a goal gave; empty while it is not done."""
    if report.state != "done":
        return ""
    wanted = {name for needs in needs_in(report.plan).values() for name in needs}
    return next((step.id for step in reversed(order(report.plan)) if step.id not in wanted), "")


def _step_row(step: Step, result: StepResult, needs: tuple[str, ...]) -> StepRow:
    if result.error is not None and result.state in {"failed", "skipped"}:
        taken = render(result.error.message)
    elif result.state == "done":
        person = step.action_type == "human"
        known = result.seconds or result.attempts
        taken = waited(result) if person else took(result) if known else ""
    else:
        taken = ""
    since = result.started if result.state == "running" else 0.0
    title = " ".join((step.title or step.id).split())
    return StepRow(step.id, title, kind_of(step), state_of(result.state), taken, since, needs)


def usage_words(usage: Usage) -> tuple[str, ...]:
    """What the models took; nothing when nobody asked one."""
    if not usage.requests and not usage.input_tokens:
        return ()
    words = [
        say("{count} requests", count=f"{usage.requests:,}"),
        say("{count} tokens in", count=f"{usage.input_tokens:,}"),
        say("{count} tokens out", count=f"{usage.output_tokens:,}"),
    ]
    return (*words, *([f"${usage.cost:.4f}"] if usage.cost is not None else ()))


def again_of(
    satchel: Satchel, report: GoalReport, *, shared: bool, from_step: str = ""
) -> Again | None:
    """What a retry would do; None when it would do nothing.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    plan = done_again(report, from_step)
    if not plan.steps:
        return None
    names = tuple(step.id for step in plan.steps)
    return Again(names, _to_allow(satchel, plan, shared=shared))


def _to_allow(satchel: Satchel, plan: Plan, *, shared: bool) -> str:
    """The tool that somebody has to allow; where workers are, that is theirs to say."""
    step = None if shared else unallowed(satchel, plan.steps)
    return "" if step is None else step.tool


def _who_works(satchel: Satchel, report: GoalReport, *, shared: bool) -> str:
    """How a goal goes on that nobody is at."""
    if report.engine == "local":
        return ""
    left = not_done(report)
    yes = " --yes" if unallowed(satchel, left.steps) is not None else ""
    command = f"satchel worker --engine {report.engine}{yes}"
    if shared:
        return say("Workers do the steps. Start one with `{command}`", command=command)
    return say("It waits for a worker: `{command}`", command=command)


def command_of(report: GoalReport, verb: str, *words: str) -> str:
    """What does the same in a terminal."""
    return " ".join(("satchel goal", verb, report.id, *words, "--engine", report.engine))
