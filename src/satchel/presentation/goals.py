"""Goals as pages and the terminal show them: the list, and one goal with its steps."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import NotFound
from satchel.goals.approvals import first_unapproved, retried_plan, unfinished_plan
from satchel.goals.artifacts import is_reference, load, preview_of
from satchel.goals.labels import (
    MARKS,
    format_seconds,
    kind_of,
    state_word,
    usage_line,
    usage_words,
    waiting_time,
)
from satchel.goals.model import FINAL_GOAL_STATES
from satchel.goals.plan_graph import dependents_of, needs_in, order
from satchel.i18n import Message, render, say
from satchel.presentation.goal_forms import TOOL_TAG, question_of, title_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import (
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        Step,
        StepError,
        StepResult,
    )
    from satchel.presentation.goal_forms import StepQuestion
    from satchel.satchel import Satchel

TONES = {
    "running": "info",
    "cancelling": "info",
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
_STATE_SYMBOLS = {**MARKS, "queued": "○", "cancelling": "◐", "partial": "▲", "damaged": "✗"}
FILTERS: Mapping[str, tuple[GoalState, ...]] = {
    "": ("queued", "running", "cancelling", "done", "failed", "partial", "damaged", "cancelled"),
    "open": ("queued", "running", "cancelling"),
    "asking": ("asking",),
    "done": ("done",),
    "failed": ("failed", "partial", "damaged"),
    "cancelled": ("cancelled",),
}
_RETRYABLE_STATES = FINAL_GOAL_STATES - {"done", "damaged"}
MAX_GOALS_PER_PAGE = 50
MAX_RESULTS_SHOWN = 5
MAX_STEPS_DRAWN = 300
"""A drawing of more steps cannot be read."""
_MAX_GOAL_CHARS = 240
MAX_OUTPUT_CHARS = 6_000
MAX_FULL_OUTPUT_CHARS = 200_000
MAX_ARTIFACT_BYTES = 4_000_000
"""A larger output is left to the terminal."""


class StateShown(NamedTuple):
    """A state, shown by a label and a symbol as well as by tone."""

    name: str
    label: str
    symbol: str
    tone: str


class GoalRow(NamedTuple):
    """One goal of the list."""

    id: str
    state: StateShown
    goal: str
    engine: str
    started: str
    started_iso: str
    run_time: str
    done_steps: int
    steps: int

    @property
    def text(self) -> str:
        """The goal, shortened for a page."""
        if len(self.goal) <= _MAX_GOAL_CHARS:
            return self.goal
        return f"{self.goal[:_MAX_GOAL_CHARS]}…"


class GoalRows(NamedTuple):
    """A page of the list."""

    rows: tuple[GoalRow, ...]
    filters: tuple[tuple[str, str], ...]
    """Each filter and its label."""
    active_filter: str
    before: str
    """Start of the next page; empty when there is none."""


class StepRow(NamedTuple):
    """One step of the board."""

    id: str
    title: str
    kind: str
    """What runs it, such as a model or a person."""
    state: StateShown
    outcome: str
    """The error, or time and usage; empty before it has ended."""
    running_since: float
    """Start time while it runs; 0 when unknown."""
    needs: tuple[str, ...]


class RetryPreview(NamedTuple):
    """What a retry would run."""

    steps: tuple[str, ...]
    tool_to_allow: str
    """The tool that needs permission; empty when none does."""


class GoalBoard(NamedTuple):
    """The current state of a goal."""

    goal: str
    state: StateShown
    engine: str
    revision: int
    started: str
    started_iso: str
    run_time: str
    usage: tuple[str, ...]
    reason: str
    counts: tuple[tuple[StateShown, int], ...]
    done_steps: int
    steps: tuple[StepRow, ...]
    questions: tuple[StepQuestion, ...]
    tool_to_allow: str
    """The tool that needs permission before the goal continues; empty when none does."""
    retry: RetryPreview | None
    """None while the goal runs, or when everything is done."""
    failures: tuple[tuple[str, str, str, str], ...]
    """Id, title, message and hint of each failed step."""
    is_over: bool
    is_resumable: bool
    """No process runs it, and one could be started here."""
    worker_note: str
    """Which worker runs its steps, if not this process."""
    now: float
    is_drawable: bool


def state_of(name: str) -> StateShown:
    """Return a state with its label, symbol and tone."""
    return StateShown(name, state_word(name), _STATE_SYMBOLS.get(name, "·"), TONES.get(name, ""))


def format_time(timestamp: float) -> str:
    """Format a time in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp)) if timestamp else ""


def format_iso(timestamp: float) -> str:
    """Format a time as ISO 8601."""
    if not timestamp:
        return ""
    return datetime.fromtimestamp(timestamp).astimezone().isoformat(timespec="seconds")


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


def show_goals(
    summaries: Sequence[GoalSummary],
    active_filter: str = "",
    waiting: Sequence[GoalSummary] = (),
) -> GoalRows:
    """Return a page of the list.

    Args:
        summaries: Goals of the engine; more than a page if there is a next page.
        active_filter: The filter.
        waiting: Goals that wait for an answer, which come first.
    """
    page = summaries[:MAX_GOALS_PER_PAGE]
    start_times = [summary.started for summary in page if summary.started]
    has_next_page = len(summaries) > MAX_GOALS_PER_PAGE and bool(start_times)
    return GoalRows(
        rows=tuple(map(goal_row, (*waiting, *page))),
        filters=filter_labels(),
        active_filter=active_filter,
        before=repr(start_times[-1]) if has_next_page else "",
    )


def goal_row(summary: GoalSummary) -> GoalRow:
    """Return the row of one goal."""
    return GoalRow(
        id=summary.id,
        state=state_of(summary.state),
        goal=" ".join(summary.goal.split()),
        engine=summary.engine,
        started=format_time(summary.started),
        started_iso=format_iso(summary.started),
        run_time=_format_duration(summary.seconds),
        done_steps=summary.done,
        steps=summary.steps,
    )


# --- one goal ----------------------------------------------------------------------------


def show_goal(
    satchel: Satchel, report: GoalReport, *, shared: bool, is_running: bool = False
) -> GoalBoard:
    """Return the board of a goal.

    Args:
        satchel: Decides which tools need permission.
        report: The goal.
        shared: Whether workers of other machines run the steps.
        is_running: Whether a process started here runs it.
    """
    steps = order(report.plan)
    results = report.steps
    needs = needs_in(report.plan)
    counts = Counter(result.state for result in results.values())
    questions = tuple(
        question_of(step, results[step.id]) for step in steps if results[step.id].state == "asking"
    )
    is_unattended = _is_unattended(report)
    tool_to_allow = ""
    if questions or is_unattended:
        tool_to_allow = find_tool_to_allow(satchel, unfinished_plan(report), shared=shared)
    retry = None
    if report.state in _RETRYABLE_STATES:
        retry = preview_retry(satchel, report, shared=shared)
    return GoalBoard(
        goal=" ".join(report.plan.goal.split()),
        state=state_of(report.state),
        engine=report.engine,
        revision=report.revision,
        started=format_time(report.started),
        started_iso=format_iso(report.started),
        run_time=_format_duration(report.seconds),
        usage=usage_words(report.usage),
        reason="" if report.state in {"asking", "failed", "partial"} else render(report.reason),
        counts=tuple((state_of(name), counts[name]) for name in MARKS if counts[name]),
        done_steps=counts["done"],
        steps=tuple(show_step_row(step, results[step.id], needs[step.id]) for step in steps),
        questions=questions,
        tool_to_allow=tool_to_allow,
        retry=retry,
        failures=tuple(_find_failures(steps, results)),
        is_over=report.state in FINAL_GOAL_STATES,
        is_resumable=is_unattended and not shared and not is_running,
        worker_note=_worker_note(satchel, report) if is_unattended and not is_running else "",
        now=time.time(),
        is_drawable=0 < len(steps) <= MAX_STEPS_DRAWN,
    )


def _is_unattended(report: GoalReport) -> bool:
    """Whether no process runs the goal; a reason in the state `running` means that it is gone."""
    return report.state == "queued" or (report.state == "running" and bool(report.reason))


def _format_duration(seconds: float) -> str:
    return format_seconds(seconds) if seconds else ""


def _find_failures(
    steps: Iterable[Step], results: Mapping[str, StepResult]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield id, title, message and hint of each failed step."""
    for step in steps:
        result = results[step.id]
        if result.state == "failed" and result.error is not None:
            message, hint = render(result.error.message), people_hint(step, result.error)
            yield step.id, title_of(step), message, hint


def last_steps(plan: Plan) -> list[str]:
    """Return the steps that no other needs: their outputs are the result of the goal."""
    needed_ids = {step_id for needs in needs_in(plan).values() for step_id in needs}
    return [step.id for step in plan.steps if step.id not in needed_ids]


def people_hint(step: Step, error: StepError) -> str:
    """Return the hint of a failed step for people."""
    is_for_people = isinstance(error.hint, Message) and error.hint.people
    if step.action_type == "tool" and error.code in _ARGUMENT_ERRORS and not is_for_people:
        return say("Check the arguments of this step")
    return render(error.hint)


async def show_results(
    report: GoalReport, artifacts: Artifacts
) -> list[tuple[str, str, OutputShown]]:
    """Return id, title and output of the last steps of a goal that has ended."""
    if report.state not in FINAL_GOAL_STATES:
        return []
    last_ids = last_steps(report.plan)
    steps = [step for step in order(report.plan) if step.id in last_ids]
    results: list[tuple[str, str, OutputShown]] = []
    for step in steps[-MAX_RESULTS_SHOWN:]:
        result = report.steps[step.id]
        if result.state != "done":
            continue
        output = await _show_output(result, artifacts, full=False)
        if output is not None:
            results.append((step.id, title_of(step), output))
    return results


def show_step_row(step: Step, result: StepResult, needs: tuple[str, ...]) -> StepRow:
    """Return the row of a step with its result so far."""
    outcome = ""
    if result.error is not None and result.state in {"failed", "skipped"}:
        outcome = render(result.error.message)
    elif result.state == "done" and step.action_type == "human":
        outcome = waiting_time(result)
    elif result.state == "done" and (result.seconds or result.attempts):
        outcome = usage_line(result)
    return StepRow(
        id=step.id,
        title=title_of(step),
        kind=kind_of(step),
        state=state_of(result.state),
        outcome=outcome,
        running_since=result.started if result.state == "running" else 0.0,
        needs=needs,
    )


def preview_retry(
    satchel: Satchel, report: GoalReport, *, shared: bool, from_step: str = ""
) -> RetryPreview | None:
    """Return what a retry would run; None when there is nothing to retry.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    plan = retried_plan(report, from_step)
    if not plan.steps:
        return None
    step_ids = tuple(step.id for step in plan.steps)
    return RetryPreview(step_ids, find_tool_to_allow(satchel, plan, shared=shared))


def find_tool_to_allow(satchel: Satchel, plan: Plan, *, shared: bool) -> str:
    """Return the tool that needs permission; where steps are shared, the workers decide."""
    step = None if shared else first_unapproved(satchel, plan.steps)
    return "" if step is None else step.tool


def _worker_note(satchel: Satchel, report: GoalReport) -> str:
    """Return how to continue a goal that no process runs."""
    if report.engine == "local":
        return ""
    return say("Waiting for a worker: `{command}`", command=worker_command(satchel, report))


def worker_command(satchel: Satchel, report: GoalReport) -> str:
    """Return the command that starts a worker for the unfinished steps of a goal."""
    remaining_plan = unfinished_plan(report)
    needs_permission = first_unapproved(satchel, remaining_plan.steps) is not None
    option = " --allow-tools" if needs_permission else ""
    return f"satchel goal worker --engine {report.engine}{option}"


class OutputShown(NamedTuple):
    """The output of a step, as far as it is shown."""

    text: str
    is_json: bool
    size: int
    """Characters, or bytes of an artifact."""
    is_truncated: bool
    can_expand: bool


class LoadedSkillShown(NamedTuple):
    """A skill loaded by a step."""

    name: str
    ref: str
    """Empty when it is no longer installed."""


class StepView(NamedTuple):
    """All details of a step."""

    id: str
    title: str
    kind: str
    state: StateShown
    attempts: int
    started: str
    started_iso: str
    run_time: str
    running_since: float
    usage: tuple[str, ...]
    skills: tuple[LoadedSkillShown, ...]
    tools: tuple[str, ...]
    notes: tuple[str, ...]
    error: str
    hint: str
    needs: tuple[str, ...]
    dependents: tuple[str, ...]
    prompt: str
    arguments: str
    output: OutputShown | None
    question: str
    retry: RetryPreview | None
    command: str
    """The terminal command that prints the whole output."""


async def show_step(
    satchel: Satchel,
    report: GoalReport,
    step_id: str,
    artifacts: Artifacts,
    *,
    shared: bool,
    full: bool = False,
) -> StepView:
    """Return the details of a step.

    Args:
        satchel: The project's skills.
        report: The goal.
        step_id: The step.
        artifacts: Storage of large outputs.
        shared: Whether workers of other machines run the steps.
        full: Show as much of the output as fits a page.

    Raises:
        NotFound: the goal has no such step.
        StepFailed: a large output is missing or damaged.
    """
    step = next((step for step in report.plan.steps if step.id == step_id), None)
    if step is None:
        raise NotFound(say("Goal `{goal}` has no step `{step}`", goal=report.id, step=step_id))
    result = report.steps[step_id]
    output = await _show_output(result, artifacts, full=full) if result.state == "done" else None
    return await asyncio.to_thread(_make_step_view, satchel, report, step, output, shared=shared)


def _make_step_view(
    satchel: Satchel, report: GoalReport, step: Step, output: OutputShown | None, *, shared: bool
) -> StepView:
    result, needs = report.steps[step.id], needs_in(report.plan)
    retry = None
    if report.state in (FINAL_GOAL_STATES | {"asking"}) - {"damaged"}:
        retry = preview_retry(satchel, report, shared=shared, from_step=step.id)
    question = ""
    if result.state == "asking":
        question = TOOL_TAG.sub("", str(preview_of(result.output) or ""))
    return StepView(
        id=step.id,
        title=title_of(step),
        kind=kind_of(step),
        state=state_of(result.state),
        attempts=result.attempts,
        started=format_time(result.started),
        started_iso=format_iso(result.started),
        run_time=_run_time(step, result),
        running_since=result.started if result.state == "running" else 0.0,
        usage=usage_words(result.usage),
        skills=tuple(_find_loaded_skill(satchel, skill_name) for skill_name in result.skills),
        tools=result.tools,
        notes=tuple(map(render, result.notes)),
        error="" if result.error is None else render(result.error.message),
        hint="" if result.error is None else people_hint(step, result.error),
        needs=needs[step.id],
        dependents=tuple(dependents_of(needs)[step.id]),
        prompt=step.prompt[:MAX_OUTPUT_CHARS],
        arguments=_format_json(step.arguments)[:MAX_OUTPUT_CHARS] if step.arguments else "",
        output=output,
        question=question,
        retry=retry,
        command=f"satchel goal show {report.id} --step {step.id} --engine {report.engine}",
    )


def _run_time(step: Step, result: StepResult) -> str:
    if step.action_type == "human":
        return waiting_time(result)
    return _format_duration(result.seconds)


def _find_loaded_skill(satchel: Satchel, name: str) -> LoadedSkillShown:
    skills = satchel.library.named(name)
    return LoadedSkillShown(name, skills[0].ref if skills else "")


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


async def _show_output(
    result: StepResult, artifacts: Artifacts, *, full: bool
) -> OutputShown | None:
    """Return the output of a step; a large one by its preview unless `full` is set."""
    output = result.output
    if output is None:
        return None
    if is_reference(output):
        size = int(output.get("size", 0))
        can_load = size <= MAX_ARTIFACT_BYTES
        if not full or not can_load:
            head = TOOL_TAG.sub("", str(output.get("head", "")))[:MAX_OUTPUT_CHARS]
            return OutputShown(
                head, is_json=False, size=size, is_truncated=True, can_expand=can_load
            )
        output = await load(output, artifacts)
    is_json = not isinstance(output, str)
    text = _format_json(output) if is_json else TOOL_TAG.sub("", output)
    max_chars = MAX_FULL_OUTPUT_CHARS if full else MAX_OUTPUT_CHARS
    is_truncated = len(text) > max_chars
    can_expand = is_truncated and not full
    return OutputShown(text[:max_chars], is_json, len(text), is_truncated, can_expand)
