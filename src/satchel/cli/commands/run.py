"""The command `run`: one turn of an agent."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from satchel._optional import must_be_installed
from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.commands.tools import print_packaged_at_start
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, read_goal
from satchel.cli.models import choose_model, make_agent, make_limits, quietly, turn_options
from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from satchel.agent import TurnReport
    from satchel.cli.context import CliContext
    from satchel.session.permissions import Approve


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
    allow_tools: bool,
    as_json: bool,
    **limits: Any,
) -> int:
    text = read_goal(context, task, "satchel run")
    for package in ("rich", "prompt_toolkit", "pydantic_ai"):
        must_be_installed(package, "agent")
    name = choose_model(context, model)
    with context.err.waiting(say("Starting {name}…", name=one_line(name))):
        from satchel.cli.turn_view import TurnApproval, TurnScreen, TurnWriter

    print_packaged_at_start(context)
    context.print_root()
    writer = TurnWriter(TurnScreen(context.err), prints_answer=False)
    approve: Approve = True if allow_tools else None
    if not allow_tools and sys.stdin.isatty() and context.err.is_terminal:
        approve = TurnApproval(context.err, lambda: writer)
    with quietly():
        agent = make_agent(context, name, limits=make_limits(**limits), approve=approve)
        try:
            answer, report = asyncio.run(writer.follow(agent, text))
        finally:
            agent.close()
    refused = writer.refused
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
