"""The commands `run` (one turn of an agent) and `chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._optional import require
from satchel.cli import EXIT_INCOMPLETE, EXIT_INTERRUPTED
from satchel.cli.commands.tools import print_packaged_at_start
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.options import Amount, WholeNumber, allow_tools_option, model_option
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.agent import TurnReport
    from satchel.cli.context import CliContext


def _turn_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--model` and the limits of a turn."""
    number = WholeNumber(1)
    for option in (
        click.option("--max-cost", type=Amount(), metavar="DOLLARS",
                     help=say("What a turn may cost, if known.")),
        click.option("--max-tokens", type=number, metavar="N",
                     help=say("Tokens that a turn may take, in and out.")),
        click.option("--max-requests", type=number, metavar="N",
                     help=say("Requests that a turn may make.")),
        model_option(),
    ):  # fmt: skip
        function = option(function)
    return function


@command(
    say("Talk to a model that has the skills of this project.")
    + "\n\n"
    + say(
        "The answer comes as it is written, with a line for each call of a tool and each skill "
        "that is loaded. `/NAME` loads a skill yourself, `/why NAME` says why one was used or not, "
        "`/help` shows the rest. A tool that writes or uses the network asks first."
    ),
    "satchel chat",
    "satchel chat --model anthropic:claude-sonnet-5",
    "satchel chat --ask ReadFile",
    more=say(
        "The model is `--model`, else the variable `SATCHEL_MODEL`, else the setting `model`. In a "
        "pipe each line is a message, nobody can be asked, and the exit code is that of the first "
        "message that came to nothing."
    ),
    json=False,
)
@allow_tools_option(say("Let every tool be called without asking."))
@click.option("--ask", multiple=True, metavar="PATTERN", help=say("Ask before these tools too."))
@_turn_options
def chat(
    context: CliContext, model: str | None, yes: bool, ask: tuple[str, ...], **limits: Any
) -> int:
    for package in ("rich", "prompt_toolkit", "pydantic_ai"):
        require(package, "agent")
    from satchel.cli.commands.conversation import Conversation
    from satchel.cli.models import choose_model, limits_of, quietly

    context.defaults["builtin"] = True
    name = choose_model(context, model)
    print_packaged_at_start(context)
    with quietly():
        return Conversation(context, name, limits_of(**limits), ask, yes=yes).run()


@command(
    say("Let a model do one task with the skills of this project.")
    + "\n\n"
    + say(
        "The answer goes to stdout, and nothing else does; skills, tools and what it took go to "
        "stderr. A tool that writes or uses the network is refused unless `--allow-tools` is given."
    ),
    'satchel run "review src/app.py"',
    'satchel run "write the notes for 1.2" --max-requests 10 --max-cost 0.50',
    'satchel run "what can you do?" --json',
    more=say(
        "`-` reads the task from stdin. The model is `--model`, else the variable `SATCHEL_MODEL`, "
        "else the setting `model`. Exit codes: 1 the model failed, 2 no model is chosen, 6 an "
        "extra is missing, 8 a limit ended the turn, 130 stopped by Ctrl-C. With "
        "`--json` a failure is on stdout too, as `error` with `code`, `message` and `hint`."
    ),
)
@click.argument("task", nargs=-1)
@click.option("--file", metavar="FILE", help=say("Read the task from a file; `-` is stdin."))
@allow_tools_option()
@_turn_options
def run(
    context: CliContext,
    task: tuple[str, ...],
    file: str | None,
    model: str | None,
    yes: bool,
    as_json: bool,
    **limits: Any,
) -> int:
    from satchel.cli.goal_text import read_goal

    try:
        text = read_goal(context, task, file, "satchel run")
        return _run_turn(context, text, model, limits, yes=yes, as_json=as_json)
    except KeyboardInterrupt:
        message = say("Stopped")
        if as_json:
            write_json({"error": {"code": "STOPPED", "message": message, "hint": ""}})
        context.err.line(message, "yellow")
        return EXIT_INTERRUPTED


def _run_turn(
    context: CliContext,
    text: str,
    model: str | None,
    limits: dict[str, Any],
    *,
    yes: bool,
    as_json: bool,
) -> int:
    import asyncio

    for package in ("rich", "pydantic_ai"):
        require(package, "agent")
    from satchel.cli.models import choose_model, limits_of, make_agent, quietly
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
        err.line(
            say("The price of this model is not known: `--max-cost` was not watched"), "yellow"
        )
    if refused:
        names = listed(f"`{one_line(name)}`" for name in refused)
        message = say("Refused: {names}. `--allow-tools` lets them be called", names=names)
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
