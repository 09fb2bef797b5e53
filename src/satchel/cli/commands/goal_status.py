"""The command `goal status`: what runs, waits and is stuck, and which workers are alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from satchel.cli import EXIT_FAILED
from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import command
from satchel.cli.goal_engine import engine_option, open_engine
from satchel.goals.status import status_to_dict
from satchel.i18n import join_names, say
from satchel.presentation.goal_status import show_status

if TYPE_CHECKING:
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.goals.status import GoalStatus
    from satchel.presentation.goal_status import StatusShown


@command(
    say("Show what runs, waits or is stuck, and the workers."),
    "satchel goal status",
    "satchel goal status --engine dbos --json",
)
@engine_option
def status(context: CliContext, engine: str | None, as_json: bool) -> int:
    """Print the status of an engine; returns 1 when a step is stuck, or goals have no worker."""

    async def load() -> GoalStatus:
        async with open_engine(context, engine) as opened:
            return await opened.status()

    current = asyncio.run(load())
    if as_json:
        write_json(status_to_dict(current))
    else:
        shown = show_status(current)
        _print_goals(context.out, current, shown)
        if shown.workers:
            context.out.line()
            _print_workers(context.out, shown)
        if shown.steps:
            context.out.line()
            _print_steps(context.out, shown)
        _print_notes(context.err, current, "" if engine is None else f" --engine {engine}")
    return EXIT_FAILED if current.needs_attention else 0


def _print_goals(out: Screen, current: GoalStatus, shown: StatusShown) -> None:
    out.line(" · ".join(shown.open_goals), lead=[(f"{current.engine}{say(': ')}", "bold")])
    out.line(" · ".join(shown.ended_goals), lead=[(say("Last 24 hours") + say(": "), "")])
    if shown.oldest:
        out.line(one_line(shown.oldest))


def _print_workers(out: Screen, shown: StatusShown) -> None:
    titles = ("", say("worker"), say("seen"), say("steps"), say("goals"), say("skills"))
    rows = [
        (
            "●" if worker.is_alive else "✗",
            one_line(worker.name),
            worker.seen,
            worker.steps,
            worker.goals,
            worker.skills,
            one_line(worker.model),
        )
        for worker in shown.workers
    ]
    styles = [("green" if worker.is_alive else "red", "bold") for worker in shown.workers]
    out.table((*titles, say("model")), rows, styles)


def _print_steps(out: Screen, shown: StatusShown) -> None:
    """Print a line per step; a long reason goes on in the next line."""
    for step in shown.steps:
        mark, style = ("✗ ", "red") if step.is_stuck else ("○ ", "yellow")
        since = f" ({step.since})" if step.since else ""
        name = f"{one_line(step.goal)} · {one_line(step.step)}"
        lead = [(mark, style), (name, "bold"), (f"{since}{say(': ')}", "")]
        out.line(one_line(step.reason), hang="  ", lead=lead)


def _print_notes(err: Screen, current: GoalStatus, suffix: str) -> None:
    """Print what is wrong and what to do, and what the engine cannot tell."""
    if current.stuck:
        show = f"satchel goal show {current.stuck[0].goal}{suffix}"
        text = say("Stuck steps: {count}; run `{command}`", count=len(current.stuck), command=show)
        err.line(text, "red")
    if current.unattended:
        next_step = f"satchel goal worker{suffix}"
        if current.engine == "local":
            next_step = f"satchel goal resume GOAL{suffix}"
        count = plural(current.unattended, say("goal"), say("goals"))
        text = say(
            "No worker is alive for {count}: run `{command}`", count=count, command=next_step
        )
        err.line(text, "red")
    if current.unknown:
        names = {
            "oldest": say("the oldest step"),
            "waiting": say("steps that wait"),
            "stuck": say("stuck steps"),
            "usage": say("usage"),
        }
        fields = join_names(names[name] for name in current.unknown)
        err.line(
            say("`{engine}` does not tell: {names}", engine=current.engine, names=fields), "dim"
        )
