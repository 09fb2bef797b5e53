"""Prints goals: rows for the terminal, JSON, and the progress of a goal, a line per event."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from satchel.cli.console import one_line, pad, plural, width_of
from satchel.goals.artifacts import load
from satchel.goals.labels import (
    MARKS,
    format_seconds,
    kind_of,
    state_word,
    usage_line,
    usage_words,
)
from satchel.goals.model import FINAL_STEP_STATES
from satchel.goals.plan_graph import needs_of
from satchel.i18n import join_names, render, say
from satchel.presentation.goals import state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary, Plan, Step, StepError, StepResult

STATE_STYLES = {
    "queued": "dim",
    "waiting": "dim",
    "running": "cyan",
    "asking": "yellow",
    "done": "green",
    "partial": "yellow",
    "failed": "red",
    "skipped": "dim",
    "cancelling": "yellow",
    "cancelled": "yellow",
    "damaged": "red",
}
"""State of a step or goal -> colour."""
_MIN_SILENCE_S = 10.0
"""Silence before the steps that still run are named, doubled each time."""
_MAX_STEPS_NAMED = 5
_MAX_ID_COLUMNS = 32


def print_steps(
    screen: Screen, steps: Sequence[Step], results: Mapping[str, StepResult], *, now: float = 0.0
) -> None:
    """Print one row per step: symbol, id, kind, and its result or what it needs.

    Args:
        screen: The screen.
        steps: In the order to show them.
        results: Results so far; empty for a plan.
        now: The current time, for running steps.
    """
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for step in steps:
        result = results.get(step.id)
        state, text = "", one_line(join_names(needs_of(step)))
        if result is not None:
            state, text = result.state, result_text(step, result)
            if state == "running" and now and result.started:
                seconds = format_seconds(max(now - result.started, 0.0))
                text = f"{seconds} · {one_line(result.worker)}" if result.worker else seconds
        rows.append([MARKS.get(state, "·"), one_line(step.id), one_line(kind_of(step)), text])
        styles.append([STATE_STYLES.get(state, ""), "", "dim", "red" if state == "failed" else ""])
    last_title = say("result") if results else say("needs")
    screen.table(["", say("step"), say("kind"), last_title], rows, styles)


def result_text(step: Step, result: StepResult) -> str:
    """Return the error, the answer, the duration or the state of a step."""
    if result.state in {"failed", "skipped"} and result.error is not None:
        return note_text(result.error.message)
    if result.state == "done":
        return one_line(str(result.output)) if step.action_type == "human" else usage_line(result)
    return "" if result.state == "waiting" else state_word(result.state)


def count_states(results: Mapping[str, StepResult]) -> str:
    """Return the number of steps in each state: `3 done, 2 running, 7 waiting`."""
    counts = Counter(result.state for result in results.values())
    states = ("done", "failed", "skipped", "cancelled", "running", "asking", "waiting")
    labels = {state: state_word(state) for state in states if counts[state]}
    return join_names(plural(counts[state], label, label) for state, label in labels.items())


def was_done(report: GoalReport, since: float) -> bool:
    """Whether a goal was done before `since`."""
    ends = (result.started + result.seconds for result in report.steps.values())
    return report.state == "done" and all(end < since for end in ends)


def print_end(screen: Screen, report: GoalReport) -> None:
    """Print one line about the whole goal, and its reason."""
    mark, style = state_of(report.state).symbol, STATE_STYLES[report.state]
    facts = [
        count_states(report.steps),
        format_seconds(report.seconds),
        join_names(usage_words(report.usage)),
    ]
    values = {"id": report.id, "words": " · ".join(fact for fact in facts if fact)}
    text = say("{id} is {state}: {words}", state=state_of(report.state).label, **values)
    screen.line(text, lead=((f"{mark} ", style if style == "dim" else f"bold {style}"),))
    if report.reason and report.state != "asking":
        screen.line(one_line(render(report.reason)), style, indent="  ")


def note_text(note: str) -> str:
    """Return a note or an error of a step, translated."""
    return one_line(render(note))


def print_missing_output(screen: Screen, report: GoalReport, step: str) -> None:
    """Print why a step has no output; nothing when it has one."""
    result = report.steps[step]
    if result.output is not None:
        return
    reason = state_word(result.state) if result.error is None else note_text(result.error.message)
    text = say("Step `{step}` has no output: {words}", step=step, words=reason)
    screen.line(text, STATE_STYLES[result.state])


def print_advice(context: CliContext, report: GoalReport, suffix: str, *, shared: bool) -> None:
    """Print hints for failed steps, and how to retry them or a cancelled goal.

    Args:
        context: The context of this run.
        report: The goal.
        suffix: Options for the next command, each after a blank.
        shared: Workers run the steps, so their options count.
    """
    from satchel.cli.goal_engine import needs_allow_tools

    if report.state == "damaged":
        text = say("Run `{command}`", command=f"satchel goal remove {report.id}")
        context.err.line(text, "yellow")
        return
    failed = [result for result in report.steps.values() if result.state == "failed"]
    is_refused = False
    for result in failed:
        if result.error is None or not result.error.hint:
            continue
        hint = one_line(render(result.error.hint))
        if _needs_approval(result.error):  # the tool's hint addresses a model
            is_refused = True
            hint = say("Pass `--allow-tools` to allow that")
        context.err.line(hint, indent=f"  {result.step}: ", hang="    ")
    if not failed and report.state != "cancelled":
        return
    may_add = not shared and "--allow-tools" not in suffix
    if may_add and (is_refused or needs_allow_tools(context, report)):
        suffix += " --allow-tools"
    text = say("Run `{command}`", command=f"satchel goal retry {report.id}{suffix}")
    context.err.line(text, "yellow")


def _needs_approval(error: StepError) -> bool:
    from satchel.session.permissions import NEEDS_APPROVAL

    return getattr(error.message, "template", "") == NEEDS_APPROVAL


def print_plan(screen: Screen, plan: Plan) -> None:
    """Print a plan before it runs."""
    screen.line(one_line(plan.goal), "bold")
    print_steps(screen, plan.steps, {})


def report_to_dict(report: GoalReport) -> dict[str, Any]:
    """Return a goal as JSON. All keys are always present."""
    return {
        "id": report.id,
        "state": report.state,
        "goal": report.plan.goal,
        "engine": report.engine,
        "revision": report.revision,
        "started": _format_time(report.started),
        "ended": _format_time(report.ended),
        "seconds": round(report.seconds, 3),
        "usage": report.usage._asdict(),
        "reason": report.reason,
        "steps": [_step_to_dict(step, report.steps[step.id]) for step in report.plan.steps],
        "substeps": [
            {"id": name, **_result_to_dict(result)} for name, result in report.substeps.items()
        ],
    }


def _step_to_dict(step: Step, result: StepResult) -> dict[str, Any]:
    return {
        "id": step.id,
        "title": step.title or step.id,
        "action_type": step.action_type,
        "needs": list(needs_of(step)),
        **_result_to_dict(result),
    }


def _result_to_dict(result: StepResult) -> dict[str, Any]:
    error = result.error
    return {
        "state": result.state,
        "output": result.output,
        "error": None if error is None else error._asdict(),
        "attempts": result.attempts,
        "started": _format_time(result.started),
        "seconds": round(result.seconds, 3),
        "usage": result.usage._asdict(),
        "skills": list(result.skills),
        "tools": list(result.tools),
        "notes": list(result.notes),
        "worker": result.worker,
        "version": result.version,
    }


def summary_to_dict(summary: GoalSummary) -> dict[str, Any]:
    """Return one goal of a list as JSON."""
    return {
        **summary._asdict(),
        "started": _format_time(summary.started),
        "seconds": round(summary.seconds, 3),
    }


def _format_time(moment: float) -> str | None:
    """Return a time as ISO 8601 in UTC; None for 0."""
    if not moment:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


async def whole_outputs(engine: Engine, steps: Any) -> dict[str, Any]:
    """Return the output of each step; large ones are fetched."""
    return {name: await load(result.output, engine.artifacts) for name, result in steps.items()}


def output_text(output: Any) -> str:
    """Return an output as text."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False, indent=2)


class GoalProgress:
    """Prints a line when a step of a goal ends or waits for an answer."""

    def __init__(self, screen: Screen, report: GoalReport) -> None:
        self._screen = screen
        self._report = report
        self._last_change = time.monotonic()
        self._silence_s = _MIN_SILENCE_S

    def begin(self, since: float) -> None:
        """Print the number of steps, unless the goal was done before `since`."""
        if not was_done(self._report, since):
            count = plural(len(self._report.plan.steps), say("step"), say("steps"))
            self._screen.line(f"{self._report.id}{say(': ')}{count}", "dim")

    def update(self, report: GoalReport) -> None:
        """Print what has changed; after a long silence, the steps that still run."""
        previous, self._report = self._report, report
        ended = [
            result
            for name, result in report.steps.items()
            if result.state in {*FINAL_STEP_STATES, "asking"}
            and result.state != previous.steps[name].state
        ]
        for result in sorted(ended, key=lambda result: result.started + result.seconds):
            self._print_result(result)
        silence = time.monotonic() - self._last_change
        if ended:
            self._last_change, self._silence_s = time.monotonic(), _MIN_SILENCE_S
        elif silence >= self._silence_s:
            self._silence_s *= 2
            self._print_running(silence)
        self._screen.stream.flush()

    def _print_running(self, silence: float) -> None:
        report = self._report
        names = [name for name, result in report.steps.items() if result.state == "running"]
        if not names:
            self._screen.line(state_word("waiting"), "dim", indent="  ")
            return
        shown_names = [one_line(name) for name in names[:_MAX_STEPS_NAMED]]
        if len(names) > _MAX_STEPS_NAMED:
            shown_names.append("…")
        values = {"time": format_seconds(int(silence)), "names": join_names(shown_names)}
        self._screen.line(say("still running ({time}): {names}", **values), "dim", indent="  ")

    def _print_result(self, result: StepResult) -> None:
        step = next(step for step in self._report.plan.steps if step.id == result.step)
        style = STATE_STYLES[result.state]
        width = min(max(map(width_of, self._report.steps)), _MAX_ID_COLUMNS)
        name = pad(one_line(result.step), width)
        lead = ((f"{MARKS[result.state]} ", style), (f"{name}  ", ""))
        text_style = "dim" if style == "green" else style
        text = result_text(step, result)
        self._screen.line(text, text_style, indent="  ", hang="    ", lead=lead)
