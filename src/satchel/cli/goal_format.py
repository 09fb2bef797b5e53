"""Formats goals: rows for the terminal, and JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from satchel.cli.console import cut, one_line, pad, width_of
from satchel.goals.drawing.labels import (
    MARKS,
    format_seconds,
    kind_of,
    state_word,
    usage_line,
    usage_words,
)
from satchel.goals.plan_checks import needs_of
from satchel.i18n import listed, render, say
from satchel.presentation.goals import state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import (
        GoalReport,
        GoalSummary,
        Plan,
        Step,
        StepError,
        StepResult,
        Usage,
    )

STYLES = {
    "queued": "dim",
    "waiting": "dim",
    "running": "cyan",
    "asking": "yellow",
    "done": "green",
    "partial": "yellow",
    "failed": "red",
    "skipped": "dim",
    "cancelled": "yellow",
    "damaged": "red",
}
"""State of a step or goal -> colour."""
_MAX_ID_COLUMNS, _MAX_ACTION_COLUMNS, _MAX_RESULT_COLUMNS = 20, 26, 30
_MAX_NEEDS_COLUMNS = 72


def step_rows(
    screen: Screen,
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    *,
    now: float = 0.0,
    notes: Mapping[str, str] | None = None,
) -> list[str]:
    """Return one painted line per step: symbol, id, action, duration, dependencies.

    Args:
        screen: Width and colours.
        steps: In the order to show them.
        results: Results so far.
        now: The current time, for running steps.
        notes: Step id -> remark about a running step.
    """
    rows = [
        _cells(step, results.get(step.id), now, (notes or {}).get(step.id, "")) for step in steps
    ]
    widths = [
        min(max((width_of(row[at]) for row in rows), default=0), most)
        for at, most in ((1, _MAX_ID_COLUMNS), (2, _MAX_ACTION_COLUMNS), (3, _MAX_RESULT_COLUMNS))
    ]
    lines: list[str] = []
    for mark, name, who, taken, needs, state in rows:
        style = STYLES.get(state, "")
        cells = [
            pad(cut(cell, wide), wide)
            for cell, wide in zip((name, who, taken), widths, strict=True)
        ]
        used = 11 + sum(widths)
        room = screen.width - used if screen.width else _MAX_NEEDS_COLUMNS
        rest = cut(needs, room) if room >= 8 else ""
        line = f"{screen.paint(mark, style)}  {cells[0]}  {screen.paint(cells[1], 'dim')}  "
        line += screen.paint(cells[2], "red" if state == "failed" else "")
        lines.append(
            f"  {line}  {screen.paint(rest, 'dim')}".rstrip(" ")
            if rest
            else f"  {line}".rstrip(" ")
        )
    return lines


def _cells(
    step: Step, result: StepResult | None, now: float, note: str
) -> tuple[str, str, str, str, str, str]:
    state = result.state if result is not None else ""
    needs = listed(needs_of(step))
    if result is None:
        taken = ""
    elif result.state == "running":
        taken = format_seconds(max(now - result.started, 0.0)) if now and result.started else ""
        taken = f"{taken} · {note}" if note and taken else note or taken
    else:
        taken = result_text(step, result)
    return (
        MARKS.get(state, "·"),
        one_line(step.id),
        one_line(kind_of(step)),
        taken,
        f"← {one_line(needs)}" if needs else "",
        state,
    )


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
    words = {
        "done": say("{count} done", count=counts["done"]),
        "failed": say("{count} failed", count=counts["failed"]),
        "skipped": say("{count} skipped", count=counts["skipped"]),
        "cancelled": say("{count} cancelled", count=counts["cancelled"]),
        "running": say("{count} running", count=counts["running"]),
        "asking": say("{count} asking", count=counts["asking"]),
        "waiting": say("{count} waiting", count=counts["waiting"]),
    }
    return listed(word for state, word in words.items() if state in counts)


def was_done(report: GoalReport, since: float) -> bool:
    """Whether a goal was done before `since`."""
    ends = (result.started + result.seconds for result in report.steps.values())
    return report.state == "done" and all(end < since for end in ends)


def print_end(screen: Screen, report: GoalReport, *, already: bool = False) -> None:
    """Print one line about the whole goal, and its reason."""
    mark, style = state_of(report.state).mark, STYLES[report.state]
    if already:
        lead = ((f"{mark} ", f"bold {style}"),)
        words = say("{id} is done already: nothing is left to do", id=report.id)
        screen.line(words, lead=lead)
        return
    parts = [
        count_states(report.steps),
        format_seconds(report.seconds),
        listed(usage_words(report.usage)),
    ]
    given = {"id": report.id, "words": " · ".join(part for part in parts if part)}
    line = {
        "queued": say("{id} is queued: {words}", **given),
        "running": say("{id} is running: {words}", **given),
        "asking": say("{id} asks a person: {words}", **given),
        "done": say("{id} is done: {words}", **given),
        "partial": say("{id} is partly done: {words}", **given),
        "failed": say("{id} failed: {words}", **given),
        "cancelled": say("{id} was cancelled: {words}", **given),
        "damaged": say("{id} is damaged and does not run again", **given),
    }[report.state]
    screen.line(line, lead=((f"{mark} ", style if style == "dim" else f"bold {style}"),))
    if report.reason and report.state != "asking":
        screen.line(one_line(render(report.reason)), style, "  ")


def unbegun_text(report: GoalReport) -> str:
    """Return the message about a goal that no worker has begun."""
    import click

    from satchel.cli.context import CliContext
    from satchel.cli.goal_engine import worker_command

    context = click.get_current_context(silent=True)
    session = None if context is None else context.find_object(CliContext)
    command = f"satchel worker --engine {report.engine}"
    return say(
        "Nobody has begun it yet, so no worker seems to be there: start one with `{command}`",
        command=command if session is None else worker_command(session, report),
    )


def note_text(note: str) -> str:
    """Return a note or an error of a step, translated."""
    return one_line(render(note))


def print_missing_output(screen: Screen, report: GoalReport, step: str) -> None:
    """Print why a step has no output; nothing when it has one."""
    result = report.steps[step]
    if result.state in {"done", "asking"}:
        if result.output is None:
            screen.line(say("Step `{step}` is done, and gave nothing", step=step), "dim")
        return
    words = [state_word(result.state)]
    if result.error is not None:
        words.append(note_text(result.error.message))
    elif report.reason and report.state in {"failed", "cancelled"}:
        words.append(one_line(render(report.reason)))
    elif result.state == "cancelled":
        words.append(say("the goal was stopped before it ended"))
    given = {"step": step, "words": ": ".join(words)}
    screen.line(say("Step `{step}` gave nothing: {words}", **given), STYLES[result.state])


def hint_text(error: StepError, *, shared: bool = False) -> str:
    """Return a hint for a person; the hints of tools address a model."""
    if _needs_approval(error):
        if shared:
            return say("Start the worker with `--allow-tools` to allow that")
        return say("Give `--allow-tools` to allow that")
    return one_line(render(error.hint))


def print_advice(session: CliContext, report: GoalReport, suffix: str, *, shared: bool) -> None:
    """Print hints for failed steps, and how to retry them or a cancelled goal.

    Args:
        session: The context of this run.
        report: The goal.
        suffix: Options for the next command, each after a blank.
        shared: Workers run the steps, so their options count.
    """
    from satchel.cli.goal_engine import needs_allow_tools, with_options

    given = suffix.split()
    engine = given[:2] if given[:1] == ["--engine"] else []
    if report.state == "damaged":
        words = say("Remove it to use its id again: `satchel goal remove {goal}`", goal=report.id)
        session.err.line(words, "yellow")
        return
    failed = [result for result in report.steps.values() if result.state == "failed"]
    for result in failed:
        if result.error is not None and result.error.hint:
            hint = with_options(hint_text(result.error, shared=shared), engine)
            session.err.line(hint, "", f"  {result.step}: ", "    ")
    if not failed and report.state != "cancelled":
        return
    refused = any(one.error is not None and _needs_approval(one.error) for one in failed)
    if (
        not shared
        and "--allow-tools" not in given
        and (refused or needs_allow_tools(session, report))
    ):
        suffix += " --allow-tools"
    words = say("Do what failed again: `satchel goal retry {goal}`", goal=report.id + suffix)
    if report.state == "cancelled":
        words = say("Go on with it: `satchel goal retry {goal}`", goal=report.id + suffix)
    session.err.line(words, "yellow")


def _needs_approval(error: StepError) -> bool:
    from satchel.session.permissions import NEEDS_APPROVAL

    return getattr(error.message, "template", "") == NEEDS_APPROVAL


def print_plan(screen: Screen, plan: Plan) -> None:
    """Print a plan before it runs."""
    screen.line(one_line(plan.goal), "bold")
    for line in step_rows(screen, plan.steps, {}):
        screen.write(f"{line}\n")


def report_dict(report: GoalReport) -> dict[str, Any]:
    """Return a goal as JSON. All keys are always present."""
    return {
        "id": report.id,
        "state": report.state,
        "goal": report.plan.goal,
        "engine": report.engine,
        "revision": report.revision,
        "started": _when(report.started),
        "ended": _when(report.ended),
        "seconds": round(report.seconds, 3),
        "usage": report.usage._asdict(),
        "reason": report.reason,
        "steps": [_step_dict(step, report.steps[step.id]) for step in report.plan.steps],
    }


def _step_dict(step: Step, result: StepResult) -> dict[str, Any]:
    error = result.error
    return {
        "id": step.id,
        "title": step.title or step.id,
        "action_type": step.action_type,
        "needs": list(needs_of(step)),
        "state": result.state,
        "output": result.output,
        "error": None if error is None else error._asdict(),
        "attempts": result.attempts,
        "started": _when(result.started),
        "seconds": round(result.seconds, 3),
        "usage": result.usage._asdict(),
        "skills": list(result.skills),
        "tools": list(result.tools),
        "notes": list(result.notes),
    }


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Return usage as JSON."""
    return usage._asdict()


def summary_dict(summary: GoalSummary) -> dict[str, Any]:
    """Return one goal of a list as JSON."""
    return {
        **summary._asdict(),
        "started": _when(summary.started),
        "seconds": round(summary.seconds, 3),
    }


def _when(moment: float) -> str | None:
    """A time as ISO 8601 in UTC."""
    if not moment:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


async def whole_outputs(engine: Engine, steps: Any) -> dict[str, Any]:
    """Return the output of each step; large ones are fetched."""
    from satchel.goals.artifacts import load

    return {name: await load(result.output, engine.artifacts) for name, result in steps.items()}


def output_text(output: Any) -> str:
    """Return an output as text."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    import json

    return json.dumps(output, ensure_ascii=False, indent=2)
