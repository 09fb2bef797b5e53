"""How is a goal told? As rows for people and as JSON for scripts; the live view shows the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._language import listed, render, say
from satchel.cli.output import cut, one_line, pad, width_of
from satchel.goals.drawing.words import MARKS, kind_of, seconds, state_word, took, usage_words
from satchel.goals.wiring import needs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
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
"""State of a step or goal -> its colour."""
GOAL_MARKS = {**MARKS, "queued": "○", "partial": "▲", "damaged": "✗"}
_ID, _WHO, _TOOK = 20, 26, 30
"""Columns that these take at most."""
_WIDEST = 72


def telling_state(state: str) -> str:
    """A state of a step where it says more than its mark does; else empty."""
    return "" if state in {"waiting", "done"} else state_word(state)


def step_rows(
    screen: Screen,
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    *,
    now: float = 0.0,
    notes: Mapping[str, str] | None = None,
) -> list[str]:
    """One painted line for each step: mark, id, who does it, what it took, what it needs.

    Args:
        screen: Whose width and colours count.
        steps: Which, in the order to show them.
        results: As far as they are.
        now: The time, for steps that run.
        notes: Step id -> what else is known about it right now.
    """
    rows = [
        _cells(step, results.get(step.id), now, (notes or {}).get(step.id, "")) for step in steps
    ]
    widths = [
        min(max((width_of(row[at]) for row in rows), default=0), most)
        for at, most in ((1, _ID), (2, _WHO), (3, _TOOK))
    ]
    lines: list[str] = []
    for mark, name, who, taken, needs, state in rows:
        style = STYLES.get(state, "")
        cells = [
            pad(cut(cell, wide), wide)
            for cell, wide in zip((name, who, taken), widths, strict=True)
        ]
        used = 11 + sum(widths)
        room = screen.width - used if screen.width else _WIDEST
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
        taken = seconds(max(now - result.started, 0.0)) if now and result.started else ""
        taken = f"{taken} · {note}" if note and taken else note or taken
    elif result.state in {"failed", "skipped"} and result.error is not None:
        taken = told_error(result.error)
    elif result.state == "done":
        person = step.action_type == "human"
        taken = one_line(str(result.output)) if person else took(result)
    else:
        taken = telling_state(result.state)
    return (
        MARKS.get(state, "·"),
        one_line(step.id),
        one_line(kind_of(step)),
        taken,
        f"← {one_line(needs)}" if needs else "",
        state,
    )


def told_counts(results: Mapping[str, StepResult]) -> str:
    """How many steps are in which state: `3 done, 2 running, 7 waiting`."""
    counts: dict[str, int] = {}
    for result in results.values():
        counts[result.state] = counts.get(result.state, 0) + 1
    words = {
        "done": say("{count} done", count=counts.get("done", 0)),
        "failed": say("{count} failed", count=counts.get("failed", 0)),
        "skipped": say("{count} skipped", count=counts.get("skipped", 0)),
        "cancelled": say("{count} cancelled", count=counts.get("cancelled", 0)),
        "running": say("{count} running", count=counts.get("running", 0)),
        "asking": say("{count} asking", count=counts.get("asking", 0)),
        "waiting": say("{count} waiting", count=counts.get("waiting", 0)),
    }
    return listed(word for state, word in words.items() if state in counts)


def was_done(report: GoalReport, since: float) -> bool:
    """Whether a goal was done before somebody looked: nothing was left to do."""
    ends = (result.started + result.seconds for result in report.steps.values())
    return report.state == "done" and all(end < since for end in ends)


def told_end(screen: Screen, report: GoalReport, *, already: bool = False) -> None:
    """One line about the whole goal, and what to do next where something is to be done."""
    if already:
        lead = ((f"{GOAL_MARKS[report.state]} ", f"bold {STYLES[report.state]}"),)
        words = say("{id} is done already: nothing is left to do", id=report.id)
        screen.line(words, lead=lead)
        return
    parts = [told_counts(report.steps), seconds(report.seconds), listed(usage_words(report.usage))]
    mark, style = GOAL_MARKS[report.state], STYLES[report.state]
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


def told_error(error: StepError) -> str:
    """Why a step ended, in the reader's language where the sentence is ours."""
    return one_line(render(error.message))


def told_unbegun(report: GoalReport) -> str:
    """What is said when no worker takes a goal: whether there is one at all, nobody here knows."""
    import click

    from satchel.cli.goal_engines import worker_command
    from satchel.cli.session import Session

    context = click.get_current_context(silent=True)
    session = None if context is None else context.find_object(Session)
    command = f"satchel worker --engine {report.engine}"
    return say(
        "Nobody has begun it yet, so no worker seems to be there: start one with `{command}`",
        command=command if session is None else worker_command(session, report),
    )


def told_note(note: str) -> str:
    """A note about a step, in the reader's language where the words are ours."""
    return one_line(render(note))


def told_step(screen: Screen, report: GoalReport, step: str) -> None:
    """Why there is no output of a step; nothing when there is one."""
    result = report.steps[step]
    if result.state in {"done", "asking"}:
        if result.output is None:
            screen.line(say("Step `{step}` is done, and gave nothing", step=step), "dim")
        return
    words = [state_word(result.state)]
    if result.error is not None:
        words.append(told_error(result.error))
    elif report.reason and report.state in {"failed", "cancelled"}:
        words.append(one_line(render(report.reason)))
    elif result.state == "cancelled":
        words.append(say("the goal was stopped before it ended"))
    given = {"step": step, "words": ": ".join(words)}
    screen.line(say("Step `{step}` gave nothing: {words}", **given), STYLES[result.state])


def told_hint(error: StepError, *, shared: bool = False) -> str:
    """What a person can do about a step's error; tools tell what a model can do."""
    if _is_unallowed(error):
        if shared:
            return say("Start the worker with `--allow-tools` to allow that")
        return say("Give `--allow-tools` to allow that")
    return one_line(render(error.hint))


def told_advice(session: Session, report: GoalReport, suffix: str, *, shared: bool) -> None:
    """What to do about steps that failed, and how they or a cancelled goal are done again.

    Args:
        session: The terminal.
        report: The goal.
        suffix: Options that the next command needs, each after a blank.
        shared: Workers do the steps, and their options count.
    """
    from satchel.cli.goal_engines import needs_yes, with_options

    given = suffix.split()
    engine = given[:2] if given[:1] == ["--engine"] else []
    if report.state == "damaged":
        words = say("Remove it to use its id again: `satchel goal remove {goal}`", goal=report.id)
        session.err.line(words, "yellow")
        return
    failed = [result for result in report.steps.values() if result.state == "failed"]
    for result in failed:
        if result.error is not None and result.error.hint:
            hint = with_options(told_hint(result.error, shared=shared), engine)
            session.err.line(hint, "", f"  {result.step}: ", "    ")
    if not failed and report.state != "cancelled":
        return
    refused = any(one.error is not None and _is_unallowed(one.error) for one in failed)
    if not shared and "--allow-tools" not in given and (refused or needs_yes(session, report)):
        suffix += " --allow-tools"
    words = say("Do what failed again: `satchel goal retry {goal}`", goal=report.id + suffix)
    if report.state == "cancelled":
        words = say("Go on with it: `satchel goal retry {goal}`", goal=report.id + suffix)
    session.err.line(words, "yellow")


def _is_unallowed(error: StepError) -> bool:
    """Whether a tool was not called because nobody could be asked."""
    return error.code == "PERMISSION_DENIED" and error.hint.startswith("Go on without it, and tell")


def show_plan(screen: Screen, plan: Plan) -> None:
    """A plan that nobody runs yet, with what each step is for."""
    screen.line(one_line(plan.goal), "bold")
    for line in step_rows(screen, plan.steps, {}):
        screen.write(f"{line}\n")


def report_dict(report: GoalReport) -> dict[str, Any]:
    """A goal as JSON. Keys are always there, so that scripts need not ask."""
    return {
        "id": report.id,
        "state": report.state,
        "goal": report.plan.goal,
        "engine": report.engine,
        "revision": report.revision,
        "started": _when(report.started),
        "ended": _when(report.ended),
        "seconds": round(report.seconds, 3),
        "usage": usage_dict(report.usage),
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
        "usage": usage_dict(result.usage),
        "skills": list(result.skills),
        "tools": list(result.tools),
        "notes": list(result.notes),
    }


def usage_dict(usage: Usage) -> dict[str, Any]:
    """What something took, as JSON."""
    return usage._asdict()


def summary_dict(summary: GoalSummary) -> dict[str, Any]:
    """One goal of a list, as JSON."""
    return {
        **summary._asdict(),
        "started": _when(summary.started),
        "seconds": round(summary.seconds, 3),
    }


def _when(moment: float) -> str | None:
    """A time as ISO 8601, in UTC."""
    if not moment:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
