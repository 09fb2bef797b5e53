"""The command `run`: one turn of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._optional import require
from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.commands.tools import print_packaged_at_start
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, read_goal
from satchel.cli.models import choose_model, limits_of, make_agent, quietly, turn_options
from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from satchel.agent import TurnReport
    from satchel.cli.context import CliContext


@command(
    say("Run one task with a model and your skills."),
    'satchel run "review src/app.py"',
    'satchel run "write the notes for 1.2" --max-requests 10 --max-cost 0.50',
)
@click.argument("task", nargs=-1, required=True)
@turn_options
def run(
    context: CliContext,
    task: tuple[str, ...],
    model: str | None,
    yes: bool,
    as_json: bool,
    **limits: Any,
) -> int:
    import asyncio

    text = read_goal(context, task, "satchel run")
    for package in ("rich", "pydantic_ai"):
        require(package, "agent")
    from satchel.cli.turn_view import REFUSED, TurnScreen, TurnWriter

    name = choose_model(context, model)
    print_packaged_at_start(context)
    writer = TurnWriter(TurnScreen(context.err), answer=False)
    with quietly():
        agent = make_agent(context, name, limits=limits_of(**limits), approve=True if yes else None)
        try:
            answer, report = asyncio.run(writer.follow(agent, text))
        finally:
            agent.close()
    refused = [call["name"] for call in writer.calls if REFUSED in (call["error"] or "")]
    refused = list(dict.fromkeys(refused))
    if as_json:
        write_json(_to_dict(name, answer, report, writer.calls, refused))
    elif context.out.is_terminal and answer:
        screen = TurnScreen(context.out)
        screen.text(answer)
        screen.close()
    else:
        context.out.data(answer)
    _print_usage(
        context, report, refused, unpriced=limits["max_cost"] is not None and report.cost is None
    )
    return EXIT_INCOMPLETE if report.stopped else 0


def _print_usage(
    context: CliContext, report: TurnReport, refused: list[str], *, unpriced: bool
) -> None:
    from satchel.cli.turn_view import format_usage, stop_message

    err = context.err
    for line in format_usage(report):
        err.line(line, "dim")
    if unpriced:
        err.line(say("The price of this model is unknown: `--max-cost` has no effect"), "yellow")
    if refused:
        names = join_names(f"`{one_line(name)}`" for name in refused)
        message = say("Refused: {names}; `--allow-tools` allows them", names=names)
        err.line(message, "yellow")
    if report.stopped:
        err.line(stop_message(report.stopped), "yellow")


def _to_dict(
    model: str, answer: str, report: TurnReport, calls: list[dict[str, Any]], refused: list[str]
) -> dict[str, Any]:
    stopped = report.stopped or None
    return {
        "text": answer,
        "model": model,
        "stopped": stopped,
        "skills": list(report.skills),
        "tools": calls,
        "refused": refused,
        "report": {
            **report._asdict(),
            "stopped": stopped,
            "cached": round(report.cached, 4),
        },
    }
