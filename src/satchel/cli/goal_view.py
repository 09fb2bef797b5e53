"""Shows goals: rows for the terminal, JSON, and the progress of a running goal.

A terminal shows all steps at once and redraws them. A pipe, CI and a dumb terminal get a line per
event, so that a log can be read afterwards.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from satchel.cli.console import cut, one_line, pad, plural, width_of, wrap
from satchel.goals.drawing.labels import (
    MARKS,
    format_seconds,
    kind_of,
    state_word,
    usage_line,
    usage_words,
)
from satchel.goals.model import ENDS, StepResult
from satchel.goals.plan_checks import needs_of, order
from satchel.i18n import join_names, render, say
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
        StepEvent,
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
    needs = join_names(needs_of(step))
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
    states = ("done", "failed", "skipped", "cancelled", "running", "asking", "waiting")
    words = [plural(counts[one], state_word(one), state_word(one)) for one in states if counts[one]]
    return join_names(words)


def was_done(report: GoalReport, since: float) -> bool:
    """Whether a goal was done before `since`."""
    ends = (result.started + result.seconds for result in report.steps.values())
    return report.state == "done" and all(end < since for end in ends)


def print_end(screen: Screen, report: GoalReport) -> None:
    """Print one line about the whole goal, and its reason."""
    mark, style = state_of(report.state).mark, STYLES[report.state]
    parts = [
        count_states(report.steps),
        format_seconds(report.seconds),
        join_names(usage_words(report.usage)),
    ]
    given = {"id": report.id, "words": " · ".join(part for part in parts if part)}
    line = say("{id} is {state}: {words}", state=state_of(report.state).word, **given)
    screen.line(line, lead=((f"{mark} ", style if style == "dim" else f"bold {style}"),))
    if report.reason and report.state != "asking":
        screen.line(one_line(render(report.reason)), style, "  ")


def note_text(note: str) -> str:
    """Return a note or an error of a step, translated."""
    return one_line(render(note))


def print_missing_output(screen: Screen, report: GoalReport, step: str) -> None:
    """Print why a step has no output; nothing when it has one."""
    result = report.steps[step]
    if result.output is not None:
        return
    words = [state_word(result.state)]
    if result.error is not None:
        words.append(note_text(result.error.message))
    elif report.reason and report.state in {"failed", "cancelled"}:
        words.append(one_line(render(report.reason)))
    text = say("Step `{step}` has no output: {words}", step=step, words=": ".join(words))
    screen.line(text, STYLES[result.state])


def print_advice(session: CliContext, report: GoalReport, suffix: str, *, shared: bool) -> None:
    """Print hints for failed steps, and how to retry them or a cancelled goal.

    Args:
        session: The context of this run.
        report: The goal.
        suffix: Options for the next command, each after a blank.
        shared: Workers run the steps, so their options count.
    """
    from satchel.cli.goal_engine import needs_allow_tools

    if report.state == "damaged":
        words = say("Run `{command}`", command=f"satchel goal remove {report.id}")
        session.err.line(words, "yellow")
        return
    failed = [result for result in report.steps.values() if result.state == "failed"]
    refused = False
    for result in failed:
        if result.error is None or not result.error.hint:
            continue
        hint = one_line(render(result.error.hint))
        if _needs_approval(result.error):  # the tool's hint addresses a model
            refused = True
            hint = say("Pass `--allow-tools` to allow that")
        session.err.line(hint, "", f"  {result.step}: ", "    ")
    if not failed and report.state != "cancelled":
        return
    if (
        not shared
        and "--allow-tools" not in suffix
        and (refused or needs_allow_tools(session, report))
    ):
        suffix += " --allow-tools"
    words = say("Run `{command}`", command=f"satchel goal retry {report.id}{suffix}")
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


_SILENCE_S = 10.0
"""Silence before a log reports what still runs, doubled each time; also the delay before a goal
that no worker has begun is reported."""
_FREE_LINES = 4
"""Lines of the screen left free below the rows."""


class GoalProgress:
    """The steps of a running goal on a screen."""

    def __init__(self, screen: Screen, unbegun: str = "") -> None:
        """Show a goal on `screen`; `unbegun` is the message when no worker begins it."""
        env = os.environ
        self.redraws = (
            screen.is_terminal and env.get("TERM", "dumb") != "dumb" and not env.get("CI")
        )
        self._screen = screen
        self._plan: Plan | None = None
        self._results: dict[str, StepResult] = {}
        self._notes: dict[str, str] = {}
        """Step id -> remark, such as a retry."""
        self._title = ""
        self._already = False
        self._since = 0.0
        self._queued: GoalReport | None = None
        """The goal, while no worker has begun it."""
        self._unbegun = unbegun
        self._drawn = 0
        """Number of lines that the next drawing replaces."""
        self._began = self._moved = time.monotonic()
        self._patience = _SILENCE_S

    def begin(self, report: GoalReport, since: float) -> None:
        """Show a goal; events before `since` are not repeated."""
        self._since = since
        self._update(report)
        self._already = was_done(report, since)
        self._title = f"{report.id}  {one_line(report.plan.goal)}"
        if self.redraws:
            self._draw()
        elif not self._already:
            count = plural(len(report.plan.steps), say("step"), say("steps"))
            self._screen.line(f"{report.id}{say(': ')}{count}", "dim")

    def tell(self, event: StepEvent) -> None:
        """Process an event: a log gets a line when a step ends, waits or is retried."""
        if not self._is_new(event) or self.redraws or event.state in {"running", "waiting"}:
            return
        self._moved, self._patience = time.monotonic(), _SILENCE_S
        if event.state == "retrying":
            self._line(event.step, "↻", "yellow", self._notes.get(event.step, ""))
        else:
            self._print_result(self._results[event.step])

    def tick(self) -> None:
        """Redraw; a log reports what still runs after a long silence."""
        if self.redraws:
            self._draw()
            return
        waited = time.monotonic() - self._moved
        if waited < self._patience:
            return
        self._patience *= 2
        names = [name for name, result in self._results.items() if result.state == "running"]
        shown = join_names([*map(one_line, names[:5]), *(["…"] if len(names) > 5 else [])])
        words = say(
            "still running ({time}): {names}", time=format_seconds(int(waited)), names=shown
        )
        if unbegun := self._unbegun_text():
            self._screen.line(unbegun, "yellow", "  ")
        else:
            self._screen.line(words if names else state_word("waiting"), "dim", "  ")
        self._screen.stream.flush()

    def end(self, report: GoalReport | None) -> None:
        """Draw for the last time and sum up; None when the state of the goal is unknown."""
        if self.redraws:
            if report is not None:
                self._update(report)
            self._draw(last=True)
        elif report is not None:
            # Also changes without an event, which clocks of other machines can cause.
            for name, result in report.steps.items():
                if result.state in {*ENDS, "asking"} and self._results[name].state != result.state:
                    self._print_result(result)
        if report is not None:
            print_end(self._screen, report)

    # --- state --------------------------------------------------------------------------------

    def _update(self, report: GoalReport) -> None:
        self._plan = report.plan
        for step in report.plan.steps:
            self._results.setdefault(step.id, StepResult(step.id, "waiting"))
        self._results.update(report.steps)
        self._queued = report if report.state == "queued" and report.engine != "local" else None

    def _is_new(self, event: StepEvent) -> bool:
        """Process an event; False if it changes nothing. Engines also send past events."""
        queued = self._queued
        if queued is not None and event.state == "running" and event.at >= self._since:
            # Temporal's goals run from the beginning; their steps run when there is a worker.
            self._queued = queued if not event.step and queued.engine == "temporal" else None
        if event.step not in self._results or event.at < self._since:
            return False
        before = self._results[event.step]
        if event.state == "retrying":
            note = note_text(event.text) or say("retrying")
            new = self._notes.get(event.step) != note
            self._notes[event.step] = note
            return new
        if event.result is not None and event.result.state == event.state:
            found = event.result
        elif event.state in MARKS:
            found = before._replace(state=event.state, started=before.started or event.at)
        else:
            return False
        self._results[event.step] = found
        if found.state != "running":
            self._notes.pop(event.step, None)
        return found.state != before.state

    def _unbegun_text(self) -> str:
        """The message about a goal that no worker has begun; empty before the delay."""
        if self._queued is None or time.monotonic() - self._began < _SILENCE_S:
            return ""
        return self._unbegun

    # --- output -------------------------------------------------------------------------------

    def _print_result(self, result: StepResult) -> None:
        steps = self._plan.steps if self._plan is not None else ()
        step = next((one for one in steps if one.id == result.step), None)
        words = result_text(step, result) if step is not None else ""
        self._line(result.step, MARKS[result.state], STYLES[result.state], words)

    def _line(self, step: str, mark: str, style: str, words: str) -> None:
        wide = min(max(map(width_of, self._results)), 32)
        lead = ((f"{mark} ", style), (f"{pad(one_line(step), wide)}  ", ""))
        self._screen.line(words, "dim" if style == "green" else style, "  ", "    ", lead)
        self._screen.stream.flush()

    def _draw(self, *, last: bool = False) -> None:
        screen = self._screen
        rows = self.rows(max(shutil.get_terminal_size().lines - _FREE_LINES, 5))
        lines = [screen.paint(cut(self._title, screen.width), "bold"), *rows]
        if not last:
            lines.append(f"  {screen.paint(count_states(self._results), 'dim')}")
            if unbegun := self._unbegun_text():
                wrapped = wrap(unbegun, max(screen.width - 4, 20))
                lines += [f"  {screen.paint(line, 'yellow')}" for line in wrapped]
        up = f"\x1b[{self._drawn}F" if self._drawn else "\r"
        screen.write(f"{up}\x1b[J" + "".join(f"{line}\n" for line in lines))
        screen.stream.flush()
        self._drawn = 0 if last else len(lines)

    def rows(self, most: int) -> list[str]:
        """Return the steps in at most `most` lines; the least interesting are left out."""
        steps = order(self._plan) if self._plan is not None else ()
        left = 0
        if len(steps) > most:
            first = {"asking": 0, "failed": 0, "running": 1}
            found = [self._results[step.id] for step in steps]
            latest = sorted(
                range(len(steps)),
                key=lambda at: (first.get(found[at].state, 2), -found[at].started),
            )
            kept = sorted(latest[: max(most - 1, 1)])
            left = len(steps) - len(kept)
            steps = tuple(steps[at] for at in kept)
        rows = step_rows(self._screen, steps, self._results, now=time.time(), notes=self._notes)
        if left:
            rows.append("  " + self._screen.paint(say("… and {count} more", count=left), "dim"))
        return rows
