"""`satchel run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, say
from satchel._optional import require
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.tooling import tell_packaged_at_start
from satchel.cli.values import Amount, WholeNumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.agent import TurnReport
    from satchel.cli.session import Session

_INTERRUPTED = 130


def turn_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--model` and what a turn may take, for `run` and `chat`."""
    number = WholeNumber(1)
    for option in (
        click.option("--max-cost", type=Amount(), metavar="DOLLARS",
                     help=say("What a turn may cost, if known.")),
        click.option("--max-tokens", type=number, metavar="N",
                     help=say("Tokens that a turn may take, in and out.")),
        click.option("--max-requests", type=number, metavar="N",
                     help=say("Requests that a turn may make.")),
        click.option("--model", metavar="PROVIDER:NAME", help=say("Who answers.")),
    ):  # fmt: skip
        function = option(function)
    return function


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
@click.option("--allow-tools", "yes", is_flag=True, help=say("Let every tool be called."))
@turn_options
def run(
    session: Session,
    task: tuple[str, ...],
    file: str | None,
    model: str | None,
    yes: bool,
    as_json: bool,
    **most: Any,
) -> int:
    """One turn. Whoever reads stdout gets the answer alone."""
    try:
        return _run(session, task, file, model, most, yes=yes, as_json=as_json)
    except KeyboardInterrupt:
        words = say("Stopped")
        if as_json:
            write_json({"error": {"code": "STOPPED", "message": words, "hint": ""}})
        session.err.line(words, "yellow")
        return _INTERRUPTED


def _run(
    session: Session,
    task: tuple[str, ...],
    file: str | None,
    model: str | None,
    most: dict[str, Any],
    *,
    yes: bool,
    as_json: bool,
) -> int:
    import asyncio

    from satchel.cli.asking import read_goal

    text = read_goal(session, task, file, "satchel run")
    for package in ("rich", "pydantic_ai"):
        require(package, "agent")
    from satchel.cli.chat.models import choose_model, limits_of, make_agent, quietly
    from satchel.cli.chat.telling import REFUSED, STOPPED, Board, Teller

    name = choose_model(session, model)
    tell_packaged_at_start(session)
    teller = Teller(Board(session.err), answer=False)
    with quietly():
        agent = make_agent(session, name, limits=limits_of(**most), approve=True if yes else None)
        try:
            answer, report = asyncio.run(teller.follow(agent, text))
        finally:
            agent.close()
    refused = [call["name"] for call in teller.calls if REFUSED in (call["error"] or "")]
    refused = list(dict.fromkeys(refused))
    if as_json:
        write_json(_to_dict(name, answer, report, teller.calls, refused))
    elif session.out.is_terminal and answer:
        board = Board(session.out)
        board.text(answer)
        board.close()
    else:
        session.out.data(answer)
    _account(
        session, report, refused, unpriced=most["max_cost"] is not None and report.cost is None
    )
    return STOPPED if report.stopped else 0


def _account(session: Session, report: TurnReport, refused: list[str], *, unpriced: bool) -> None:
    from satchel.cli.chat.telling import told_report, told_stop

    err = session.err
    for line in told_report(report):
        err.line(line, "dim")
    if unpriced:
        err.line(
            say("The price of this model is not known: `--max-cost` was not watched"), "yellow"
        )
    if refused:
        names = listed(f"`{one_line(name)}`" for name in refused)
        words = say("Refused: {names}. `--allow-tools` lets them be called", names=names)
        err.line(words, "yellow")
    if report.stopped:
        err.line(told_stop(report.stopped), "yellow")


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
