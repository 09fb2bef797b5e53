"""Who does the steps of goals on this machine? worker: until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from satchel._language import say
from satchel.cli.goal_engines import make_runner, open_engine
from satchel.cli.goal_failures import json_failures
from satchel.cli.output import write_json
from satchel.cli.session import command
from satchel.cli.values import OneOf, WholeNumber
from satchel.errors import Refused

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine

_FORCED = 130


@command(
    say("Do the steps of goals that others began, until told to stop.")
    + "\n\n"
    + say(
        "Start as many as you like, on as many machines as you like: with the same database, or "
        "the same Temporal server. The skills of this project are those that steps may use, so "
        "every worker should have the same."
    ),
    "satchel worker --engine dbos",
    "satchel worker --engine temporal --drain 120",
    more=say(
        "SIGTERM or Ctrl-C drains: no new work is taken, what is begun gets `--drain` seconds to "
        "end, and what is not finished goes on elsewhere. A second one ends it at once. Exit "
        "codes: 0 drained, 4 this engine has no workers, 6 an extra is missing, 130 ended at once."
    ),
)
@click.option(
    "--engine",
    type=OneOf(["dbos", "temporal"]),
    help=say("Whose goals; the setting `engine` by default."),
)
@click.option("--model", metavar="PROVIDER:NAME", help=say("Who answers."))
@click.option("--yes", is_flag=True, help=say("Let every tool be called."))
@click.option(
    "--drain",
    type=WholeNumber(),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help=say("How long begun steps may take to end."),
)
@json_failures
def worker(
    session: Session,
    engine: str | None,
    model: str | None,
    yes: bool,
    drain: int,
    as_json: bool,
) -> int:
    """Nothing on stdout but, with `--json`, a line when it begins and one when it ends."""
    from satchel.cli.chat.models import quietly

    name = engine or session.satchel.settings.engine
    if name == "local":
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )
    with quietly():
        runner = make_runner(session, model, name, yes=yes)
        runner.ready()  # a worker that takes work can do it
        place = open_engine(session, name, runner)
        try:
            return asyncio.run(_work(session, place, name, drain, as_json=as_json))
        finally:
            runner.close()


async def _work(session: Session, engine: Engine, name: str, drain: int, *, as_json: bool) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    at_once = asyncio.Event()

    def told() -> None:
        (at_once if stop.is_set() else stop).set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, told)
    async with engine as place:
        working = asyncio.ensure_future(place.work(drain=float(drain)))
        _say(session, say("Worker of `{engine}` is ready; Ctrl-C drains it", engine=name),
             "ready", as_json=as_json)  # fmt: skip
        waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(at_once.wait())]
        try:
            await asyncio.wait([working, waiting[0]], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working  # it ended by itself: with an error, which is told
                return 0
            words = say("Draining, {count} s at most; once more ends it at once", count=drain)
            _say(session, words, "draining", as_json=as_json)
            working.cancel()
            await asyncio.wait([working, waiting[1]], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return _at_once(session)
        finally:
            for one in waiting:
                one.cancel()
        if not working.cancelled() and working.exception() is not None:
            await working
    _say(session, say("Drained"), "drained", as_json=as_json)
    return 0


def _at_once(session: Session) -> int:
    """End without waiting for anything: a worker that is killed is what engines are made for."""
    import os

    session.err.line(say("Ended at once; what was begun goes on elsewhere"), "yellow")
    session.err.stream.flush()
    os._exit(_FORCED)


def _say(session: Session, words: str, event: str, *, as_json: bool) -> None:
    import sys

    if as_json:
        write_json({"event": event})
        sys.stdout.flush()
    session.err.line(words, "dim")
    session.err.stream.flush()
