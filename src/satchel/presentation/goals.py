"""Records of goals: the list, one goal and its steps, and plans that are not started yet."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import read_plain
from satchel.errors import NotFound, SatchelError
from satchel.goals.approvals import first_unapproved, retried_plan, unfinished_plan
from satchel.goals.artifacts import is_reference, load, preview_of
from satchel.goals.drawing.labels import (
    MARKS,
    format_seconds,
    kind_of,
    state_word,
    usage_line,
    usage_words,
    waiting_time,
)
from satchel.goals.model import OVER, GoalReport, StepResult
from satchel.goals.plan_checks import dependents_of, errors_in, needs_in, order
from satchel.goals.plan_file import read_plan
from satchel.i18n import Message, render, say
from satchel.presentation.goal_forms import TOOL_TAG, input_fields, question_of, title_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import Goal, GoalState, GoalSummary, Plan, Step, StepError
    from satchel.goals.plan_checks import PlanProblem
    from satchel.presentation.goal_forms import AnswerField, StepQuestion
    from satchel.satchel import Satchel

TONES = {
    "running": "info",
    "asking": "warn",
    "done": "good",
    "partial": "warn",
    "failed": "bad",
    "damaged": "bad",
}
"""State of a step or a goal -> tone of its badge; none for other states."""
_ARGUMENT_ERRORS = frozenset((
    "NOT_FOUND", "ACCESS_DENIED", "INVALID_PARAM", "CONFLICT", "IS_DIRECTORY", "BINARY_FILE",
))  # fmt: skip
"""Errors of a tool whose hint tells a model how to call it."""
GOAL_MARKS = {**MARKS, "queued": "○", "partial": "▲", "damaged": "✗"}
FILTERS: Mapping[str, tuple[GoalState, ...]] = {
    "": ("queued", "running", "done", "failed", "partial", "damaged", "cancelled"),
    "open": ("queued", "running"),
    "asking": ("asking",),
    "done": ("done",),
    "failed": ("failed", "partial", "damaged"),
    "cancelled": ("cancelled",),
}
MAX_GOALS_PER_PAGE = 50
MAX_RESULTS_SHOWN = 5
MAX_STEPS_DRAWN = 300
"""A drawing of more steps cannot be read."""
_MAX_GOAL_CHARS = 240


class StateShown(NamedTuple):
    """A state, shown by word and symbol as well as by tone."""

    name: str
    word: str
    mark: str
    tone: str


class GoalRow(NamedTuple):
    """One goal of the list."""

    id: str
    state: StateShown
    goal: str
    engine: str
    begun: str
    begun_iso: str
    taken: str
    done: int
    steps: int

    @property
    def text(self) -> str:
        """The goal, shortened for a page."""
        cut = len(self.goal) > _MAX_GOAL_CHARS
        return f"{self.goal[:_MAX_GOAL_CHARS]}…" if cut else self.goal


class GoalRows(NamedTuple):
    """A page of the list."""

    rows: tuple[GoalRow, ...]
    kinds: tuple[tuple[str, str], ...]
    kind: str
    before: str
    """Start of the next page; empty when there is none."""


class StepRow(NamedTuple):
    """One step of the board."""

    id: str
    title: str
    who: str
    state: StateShown
    taken: str
    since: float
    """Start time while it runs; 0 when unknown."""
    needs: tuple[str, ...]


class RetryPreview(NamedTuple):
    """What a retry would run."""

    steps: tuple[str, ...]
    allow: str
    """The tool that needs permission; empty when none does."""


class GoalBoard(NamedTuple):
    """The current state of a goal."""

    text: str
    state: StateShown
    engine: str
    revision: int
    begun: str
    begun_iso: str
    taken: str
    usage: tuple[str, ...]
    reason: str
    counts: tuple[tuple[StateShown, int], ...]
    done: int
    steps: tuple[StepRow, ...]
    asks: tuple[StepQuestion, ...]
    allow: str
    """The tool that needs permission before the goal continues; empty when none does."""
    again: RetryPreview | None
    """None while the goal runs, or when everything is done."""
    failures: tuple[tuple[str, str, str, str], ...]
    """Id, title, message and hint of each failed step."""
    is_over: bool
    is_left: bool
    """No process runs it, and one could be started here."""
    note: str
    """Which worker runs its steps, if not this process."""
    now: float
    drawn: bool


def state_of(name: str) -> StateShown:
    """Return a state with its word, symbol and tone."""
    return StateShown(name, state_word(name), GOAL_MARKS.get(name, "·"), TONES.get(name, ""))


def moment(at: float) -> str:
    """Format a time in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def iso(at: float) -> str:
    """Format a time as ISO 8601."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds") if at else ""


# --- a new goal --------------------------------------------------------------------------

_PLAN_ENDINGS = (".yaml", ".yml", ".json")
_PLAN_KEY = re.compile(rb"""^\s*["']?steps["']?\s*:""", re.MULTILINE)
_MAX_ENTRIES = 2_000
MAX_PLAN_BYTES = 1 << 20
MAX_PLANS_SHOWN = 100


class PlanPreview(NamedTuple):
    """A plan before it is started."""

    goal: str
    steps: tuple[StepRow, ...]
    fields: tuple[AnswerField, ...]
    errors: tuple[tuple[str, str], ...]
    """Message and hint of each error; missing inputs are fields instead."""
    warnings: tuple[str, ...]
    allow: str
    """The tool that needs permission; empty when none does."""


def find_plans(project: str) -> list[str]:
    """Return the paths of plan files in a project and in its folders, relative to it."""
    found: list[str] = []
    left = _MAX_ENTRIES
    folders = [project]
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                left -= 1
                if left < 0 or len(found) == MAX_PLANS_SHOWN:
                    return found
                if entry.name.startswith(".") or entry.name == "node_modules":
                    continue
                if entry.is_dir(follow_symlinks=False) and folder == project:
                    folders.append(entry.path)
                elif entry.name.endswith(_PLAN_ENDINGS) and _is_plan(entry.path):
                    found.append(os.path.relpath(entry.path, project))
    return found


def _is_plan(path: str) -> bool:
    try:
        return _PLAN_KEY.search(read_plain(path, MAX_PLAN_BYTES)) is not None
    except (OSError, SatchelError):
        return False


def check_plan(satchel: Satchel, text: str) -> tuple[Plan, list[PlanProblem]]:
    """Read a plan, and check it against the skills and tools of a project."""
    reach = satchel.session(approve=True).within_reach()
    # A text without a line break would be taken for a path.
    return read_plan(f"{text}\n", skills=reach.skills, tools=reach.tools)


def plan_errors(problems: Sequence[PlanProblem]) -> list[PlanProblem]:
    """Return the errors that inputs cannot correct."""
    return [one for one in errors_in(list(problems)) if one.code != "missing-input"]


def plan_preview(
    satchel: Satchel, plan: Plan, problems: Sequence[PlanProblem], *, shared: bool
) -> PlanPreview:
    """Return what a person should see before a goal is started."""
    errors = plan_errors(problems)
    needs = {} if errors else needs_in(plan)
    steps = plan.steps if errors else order(plan)
    return PlanPreview(
        " ".join(plan.goal.split()),
        tuple(
            _step_row(one, StepResult(one.id, "waiting"), needs.get(one.id, ())) for one in steps
        ),
        input_fields(plan),
        tuple((_placed(one), render(one.hint)) for one in errors),
        tuple(
            _placed(one) for one in problems if one.code != "missing-input" and one not in errors
        ),
        "" if errors else _to_allow(satchel, plan, shared=shared),
    )


def _placed(problem: PlanProblem) -> str:
    where = say("line {number}: ", number=problem.line) if problem.line else ""
    return where + render(problem.message)


def queued_report(goal: Goal, engine: str) -> GoalReport:
    """Return the report of a goal before its first run."""
    steps = {step.id: StepResult(step.id, "waiting") for step in goal.plan.steps}
    return GoalReport(goal.id, "queued", goal.plan, steps, engine)


# --- the list ----------------------------------------------------------------------------


def filter_labels() -> tuple[tuple[str, str], ...]:
    """Return the filters of the list and their labels."""
    return (
        ("", say("All")),
        ("asking", say("Waiting for you")),
        ("open", say("Running")),
        ("done", say("Done")),
        ("failed", say("Failed")),
        ("cancelled", say("Cancelled")),
    )


def rows_of(
    found: Sequence[GoalSummary], kind: str = "", waiting: Sequence[GoalSummary] = ()
) -> GoalRows:
    """Return a page of the list.

    Args:
        found: Goals of the engine; more than a page if there is a next page.
        kind: The filter.
        waiting: Goals that wait for an answer, which come first.
    """
    shown = found[:MAX_GOALS_PER_PAGE]
    began = [one.started for one in shown if one.started]
    more = len(found) > MAX_GOALS_PER_PAGE and bool(began)
    return GoalRows(
        tuple(map(goal_row, (*waiting, *shown))),
        filter_labels(),
        kind,
        repr(began[-1]) if more else "",
    )


def goal_row(one: GoalSummary) -> GoalRow:
    """Return the row of one goal."""
    return GoalRow(
        one.id,
        state_of(one.state),
        " ".join(one.goal.split()),
        one.engine,
        moment(one.started),
        iso(one.started),
        format_seconds(one.seconds) if one.seconds else "",
        one.done,
        one.steps,
    )


# --- one goal ----------------------------------------------------------------------------


def board_of(satchel: Satchel, report: GoalReport, *, shared: bool, on: bool = False) -> GoalBoard:
    """Return the board of a goal.

    Args:
        satchel: Decides which tools need permission.
        report: The goal.
        shared: Whether workers of other machines run the steps.
        on: Whether a process started here runs it.
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
    # The state `running` with a reason means that its process is gone.
    alone = report.state == "queued" or (report.state == "running" and bool(report.reason))
    return GoalBoard(
        " ".join(report.plan.goal.split()),
        state_of(report.state),
        report.engine,
        report.revision,
        moment(report.started),
        iso(report.started),
        format_seconds(report.seconds) if report.seconds else "",
        usage_words(report.usage),
        "" if report.state in {"asking", "failed", "partial"} else render(report.reason),
        tuple(counts),
        sum(one.state == "done" for one in results.values()),
        tuple(_step_row(step, results[step.id], needs[step.id]) for step in steps),
        tuple(question_of(step, results[step.id]) for step in asking),
        _to_allow(satchel, unfinished_plan(report), shared=shared) if asking or alone else "",
        retry_preview(satchel, report, shared=shared)
        if over and report.state not in {"done", "damaged"}
        else None,
        tuple(
            (step.id, title_of(step), render(error.message), people_hint(step, error))
            for step in steps
            if results[step.id].state == "failed" and (error := results[step.id].error) is not None
        ),
        over,
        alone and not shared and not on,
        _who_works(satchel, report) if alone and not on else "",
        time.time(),
        0 < len(steps) <= MAX_STEPS_DRAWN,
    )


def last_steps(plan: Plan) -> list[str]:
    """Return the steps that no other needs: their outputs are the result of the goal."""
    needed = {need for needs in needs_in(plan).values() for need in needs}
    return [step.id for step in plan.steps if step.id not in needed]


def people_hint(step: Step, error: StepError) -> str:
    """Return the hint of a failed step for people."""
    told = isinstance(error.hint, Message) and error.hint.people
    if step.action_type == "tool" and error.code in _ARGUMENT_ERRORS and not told:
        return say("Check the arguments of this step")
    return render(error.hint)


async def results_of(
    report: GoalReport, artifacts: Artifacts
) -> list[tuple[str, str, OutputShown]]:
    """Return id, title and output of the last steps of a goal that has ended."""
    if report.state not in OVER:
        return []
    last = [step for step in order(report.plan) if step.id in last_steps(report.plan)]
    found = [
        (step.id, title_of(step), await _output(report.steps[step.id], artifacts, whole=False))
        for step in last[-MAX_RESULTS_SHOWN:]
        if report.steps[step.id].state == "done"
    ]
    return [(name, title, shown) for name, title, shown in found if shown is not None]


def _step_row(step: Step, result: StepResult, needs: tuple[str, ...]) -> StepRow:
    if result.error is not None and result.state in {"failed", "skipped"}:
        taken = render(result.error.message)
    elif result.state == "done":
        person = step.action_type == "human"
        known = result.seconds or result.attempts
        taken = waiting_time(result) if person else usage_line(result) if known else ""
    else:
        taken = ""
    since = result.started if result.state == "running" else 0.0
    return StepRow(
        step.id, title_of(step), kind_of(step), state_of(result.state), taken, since, needs
    )


def retry_preview(
    satchel: Satchel, report: GoalReport, *, shared: bool, from_step: str = ""
) -> RetryPreview | None:
    """Return what a retry would run; None when there is nothing to retry.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    plan = retried_plan(report, from_step)
    if not plan.steps:
        return None
    names = tuple(step.id for step in plan.steps)
    return RetryPreview(names, _to_allow(satchel, plan, shared=shared))


def _to_allow(satchel: Satchel, plan: Plan, *, shared: bool) -> str:
    """The tool that needs permission; where steps are shared, the workers decide."""
    step = None if shared else first_unapproved(satchel, plan.steps)
    return "" if step is None else step.tool


def _who_works(satchel: Satchel, report: GoalReport) -> str:
    """How to continue a goal that no process runs."""
    if report.engine == "local":
        return ""
    return say("Waiting for a worker: `{command}`", command=worker_command(satchel, report))


def worker_command(satchel: Satchel, report: GoalReport) -> str:
    """Return the command that starts a worker for the unfinished steps of a goal."""
    left = unfinished_plan(report)
    yes = " --allow-tools" if first_unapproved(satchel, left.steps) is not None else ""
    return f"satchel goal worker --engine {report.engine}{yes}"


MAX_OUTPUT_CHARS = 6_000
MAX_WHOLE_OUTPUT_CHARS = 200_000
MAX_ARTIFACT_BYTES = 4_000_000
"""A larger output is left to the terminal."""


class OutputShown(NamedTuple):
    """The output of a step, as far as it is shown."""

    text: str
    is_json: bool
    size: int
    """Characters, or bytes of an artifact."""
    cut: bool
    more: bool


class LoadedSkillShown(NamedTuple):
    """A skill loaded by a step."""

    name: str
    ref: str
    """Empty when it is no longer installed."""


class StepView(NamedTuple):
    """All details of a step."""

    id: str
    title: str
    who: str
    state: StateShown
    attempts: int
    begun: str
    begun_iso: str
    taken: str
    since: float
    usage: tuple[str, ...]
    skills: tuple[LoadedSkillShown, ...]
    tools: tuple[str, ...]
    notes: tuple[str, ...]
    error: str
    hint: str
    needs: tuple[str, ...]
    feeds: tuple[str, ...]
    prompt: str
    arguments: str
    output: OutputShown | None
    asked: str
    again: RetryPreview | None
    command: str
    """The terminal command that prints the whole output."""


async def step_of(
    satchel: Satchel,
    report: GoalReport,
    name: str,
    artifacts: Artifacts,
    *,
    shared: bool,
    whole: bool = False,
) -> StepView:
    """Return the details of a step.

    Args:
        satchel: The project's skills.
        report: The goal.
        name: The step.
        artifacts: Storage of large outputs.
        shared: Whether workers of other machines run the steps.
        whole: Show as much of the output as fits a page.

    Raises:
        NotFound: the goal has no such step.
        StepFailed: a large output is missing or damaged.
    """
    step = next((one for one in report.plan.steps if one.id == name), None)
    if step is None:
        raise NotFound(say("Goal `{goal}` has no step `{step}`", goal=report.id, step=name))
    result = report.steps[name]
    given = await _output(result, artifacts, whole=whole) if result.state == "done" else None
    return await asyncio.to_thread(_view, satchel, report, step, given, shared=shared)


def _view(
    satchel: Satchel, report: GoalReport, step: Step, output: OutputShown | None, *, shared: bool
) -> StepView:
    result, needs = report.steps[step.id], needs_in(report.plan)
    may_retry = report.state in (OVER | {"asking"}) - {"damaged"}
    return StepView(
        step.id,
        title_of(step),
        kind_of(step),
        state_of(result.state),
        result.attempts,
        moment(result.started),
        iso(result.started),
        _taken(step, result),
        result.started if result.state == "running" else 0.0,
        usage_words(result.usage),
        tuple(_used(satchel, one) for one in result.skills),
        result.tools,
        tuple(map(render, result.notes)),
        "" if result.error is None else render(result.error.message),
        "" if result.error is None else people_hint(step, result.error),
        needs[step.id],
        tuple(dependents_of(needs)[step.id]),
        step.prompt[:MAX_OUTPUT_CHARS],
        _pretty(step.arguments)[:MAX_OUTPUT_CHARS] if step.arguments else "",
        output,
        TOOL_TAG.sub("", str(preview_of(result.output) or "")) if result.state == "asking" else "",
        retry_preview(satchel, report, shared=shared, from_step=step.id) if may_retry else None,
        f"satchel goal show {report.id} --step {step.id} --engine {report.engine}",
    )


def _taken(step: Step, result: StepResult) -> str:
    if step.action_type == "human":
        return waiting_time(result)
    return format_seconds(result.seconds) if result.seconds else ""


def _used(satchel: Satchel, name: str) -> LoadedSkillShown:
    found = satchel.library.named(name)
    return LoadedSkillShown(name, found[0].ref if found else "")


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


async def _output(result: StepResult, artifacts: Artifacts, *, whole: bool) -> OutputShown | None:
    """A large output is shown by its preview unless `whole` is set."""
    output = result.output
    if output is None:
        return None
    if is_reference(output):
        size = int(output.get("size", 0))
        fits = size <= MAX_ARTIFACT_BYTES
        if not whole or not fits:
            head = TOOL_TAG.sub("", str(output.get("head", "")))[:MAX_OUTPUT_CHARS]
            return OutputShown(head, False, size, cut=True, more=fits)  # noqa: FBT003
        output = await load(output, artifacts)
    is_json = not isinstance(output, str)
    text = _pretty(output) if is_json else TOOL_TAG.sub("", output)
    most = MAX_WHOLE_OUTPUT_CHARS if whole else MAX_OUTPUT_CHARS
    cut = len(text) > most
    return OutputShown(text[:most], is_json, len(text), cut, more=cut and not whole)
