"""How is one task done by a model that has these skills? run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, say
from satchel._optional import require
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.values import Amount, WholeNumber

if TYPE_CHECKING:
    from satchel.agent import Agent, TurnReport
    from satchel.cli.chat.telling import Called, Teller
    from satchel.cli.session import Session

STOPPED = 8
"""The exit code when a limit ended the turn: not everything was tried."""
_INTERRUPTED = 130
_TICK = 0.5
"""Seconds between two looks at whether it takes long."""


@command(
    say("Let a model do one task with the skills of this project.")
    + "\n\n"
    + say(
        "The answer goes to stdout, and nothing else does; skills, tools and what it took go to "
        "stderr. A tool that writes or uses the network is refused unless `--yes` is given."
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
@click.option("--model", metavar="PROVIDER:NAME", help=say("Who answers."))
@click.option("--yes", is_flag=True, help=say("Let every tool be called."))
@click.option(
    "--max-requests", type=WholeNumber(1), metavar="N", help=say("Requests that it may make.")
)
@click.option(
    "--max-tokens",
    type=WholeNumber(1),
    metavar="N",
    help=say("Tokens that it may take, in and out."),
)
@click.option(
    "--max-cost", type=Amount(), metavar="DOLLARS", help=say("What it may cost, if known.")
)
def run(
    session: Session,
    task: tuple[str, ...],
    file: str | None,
    model: str | None,
    yes: bool,
    max_requests: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    as_json: bool,
) -> int:
    """One turn. Whoever reads stdout gets the answer alone."""
    try:
        limits = (max_requests, max_tokens, max_cost)
        return _run(session, task, file, model, limits, yes=yes, as_json=as_json)
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
    most: tuple[int | None, int | None, float | None],
    *,
    yes: bool,
    as_json: bool,
) -> int:
    import asyncio

    from satchel.cli.asking import read_goal

    text = read_goal(session, task, file, "satchel run")
    require("pydantic_ai", "agent")
    from satchel.cli.chat.models import choose_model, hear_retries, limits_of, make_agent, quietly
    from satchel.cli.chat.plain import PlainBoard
    from satchel.cli.chat.telling import Teller

    name = choose_model(session, model)
    limits = limits_of(*most)
    teller = Teller(PlainBoard(session.err), answer=False)
    board = teller.board

    with quietly(), hear_retries(board.aside):
        agent = make_agent(session, name, limits=limits, approve=True if yes else None)
        try:
            answer, report = asyncio.run(_turn(agent, text, teller))
        finally:
            agent.close()
    refused = [call for call in teller.calls if is_refusal(call)]
    if as_json:
        write_json(_to_dict(name, answer, report, teller, refused))
    elif answer:
        _show(session, answer)
    _account(session, report, refused, unpriced=most[2] is not None and report.cost is None)
    return STOPPED if report.stopped else 0


async def _turn(agent: Agent, text: str, teller: Teller) -> tuple[str, TurnReport]:
    import asyncio

    from satchel.agent.records import TurnDone

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK)
            teller.board.tick()

    teller.board.open()
    ticking = asyncio.ensure_future(tick())
    try:
        async for event in agent.stream(text):
            if isinstance(event, TurnDone):
                return event.text, event.report
            teller.tell(event)
    finally:
        ticking.cancel()
    raise AssertionError("a turn ends with `TurnDone`")


def _show(session: Session, answer: str) -> None:
    """The answer: Markdown as it is for programs, drawn for people where rich is there."""
    out = session.out
    from satchel._optional import available

    if out.is_terminal and out.colour and available("rich"):
        from satchel.cli.chat.markdown import MarkdownBoard

        board = MarkdownBoard(out)
        board.text(answer)
        board.close()
        return
    out.data(answer)


def is_refusal(call: Called) -> bool:
    """Whether a call was not made because nobody approved it."""
    from satchel.cli.chat.telling import NOBODY

    return call.status == "error" and NOBODY in call.text


def _account(
    session: Session, report: TurnReport, refused: list[Called], *, unpriced: bool
) -> None:
    from satchel.cli.chat.telling import told_report, told_stop

    err = session.err
    for line in told_report(report):
        err.line(line, "dim")
    if unpriced:
        err.line(
            say("The price of this model is not known: `--max-cost` was not watched"), "yellow"
        )
    if refused:
        names = listed(dict.fromkeys(f"`{one_line(call.name)}`" for call in refused))
        err.line(say("Refused: {names}. `--yes` lets them be called", names=names), "yellow")
    if report.stopped:
        err.line(told_stop(report.stopped), "yellow")


def _to_dict(
    model: str, answer: str, report: TurnReport, teller: Teller, refused: list[Called]
) -> dict[str, Any]:
    from satchel.cli.chat.telling import report_dict

    return {
        "text": answer,
        "model": model,
        "stopped": report.stopped or None,
        "skills": list(report.skills),
        "tools": [call.to_dict() for call in teller.calls],
        "refused": list(dict.fromkeys(call.name for call in refused)),
        "report": report_dict(report),
    }
