"""Who does the steps of goals on this machine? worker: until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from satchel._language import render, say
from satchel.cli.goal_engines import LateSteps, make_runner, open_engine
from satchel.cli.goal_failures import json_failures
from satchel.cli.output import one_line
from satchel.cli.session import command
from satchel.cli.values import OneOf, WholeNumber
from satchel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import Done, GoalReport, Work

_FORCED = 130
_LATE = 1.0
"""Seconds that a draining worker waits to tell of goals that have just ended."""


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
    """Nothing on stdout; with `--json` a line for each event: ready, goals that ended, drained."""
    from satchel.cli.chat.models import quietly

    name = engine or session.satchel.settings.engine
    if name == "local":
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )
    with quietly():
        runner = _Heard(make_runner(session, model, name, yes=yes))
        runner.ready()  # a worker that takes work can do it
        place = open_engine(session, name, runner)
        try:
            ends = _Ends(session, runner, as_json=as_json) if name == "dbos" else None
            return asyncio.run(_work(session, place, name, drain, ends, as_json=as_json))
        finally:
            runner.close()


class _Heard(LateSteps):
    """Who does the steps, and somebody who hears of which goals they are."""

    def __init__(self, runner: LateSteps) -> None:
        super().__init__(runner.ready)
        self.hear: Callable[[str], object] | None = None

    async def run(self, work: Work) -> Done:
        """Do a step."""
        if self.hear is not None:
            self.hear(work.goal)
        return await super().run(work)


class _Ends:
    """Tells how goals end whose steps were done here.

    On DBOS a goal is with one worker, so each is told by one. On Temporal its steps are with all of
    them, and all would ask the server about every goal.
    """

    def __init__(self, session: Session, runner: _Heard, *, as_json: bool) -> None:
        self._session = session
        self._runner = runner
        self._as_json = as_json
        self._waits: dict[str, asyncio.Task[None]] = {}

    def begin(self, engine: Engine) -> None:
        """Hear of goals from now on; steps may be done on another thread's loop."""
        loop = asyncio.get_running_loop()
        self._runner.hear = lambda goal: loop.call_soon_threadsafe(self._heard, engine, goal)

    async def end(self) -> None:
        """Tell what has just ended, and leave the rest."""
        self._runner.hear = None
        waits = list(self._waits.values())
        if waits:
            await asyncio.wait(waits, timeout=_LATE)
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    def _heard(self, engine: Engine, goal: str) -> None:
        if self._runner.hear is not None and goal not in self._waits:
            self._waits[goal] = asyncio.ensure_future(self._until_over(engine, goal))

    async def _until_over(self, engine: Engine, goal: str) -> None:
        try:
            report = await engine.wait(goal)
        except Exception as exc:  # noqa: BLE001 - a worker works on, whoever cannot be told
            self._session.err.line(one_line(f"{goal}: {type(exc).__name__}: {exc}"), "dim")
            return
        finally:
            self._waits.pop(goal, None)
        self._tell(report)

    def _tell(self, report: GoalReport) -> None:
        from satchel.cli.goal_words import STYLES, goal_state

        if self._as_json:
            _json_line({"event": "goal", "goal": report.id, "state": report.state,
                        "seconds": round(report.seconds, 3), "reason": report.reason})  # fmt: skip
            return
        why = f": {one_line(render(report.reason))}" if report.reason else ""
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        words = f"{report.id} {goal_state(report.state)}{why}"
        self._session.err.line(words, STYLES[report.state], f"{when}  ", "  ")
        self._session.err.stream.flush()


async def _work(
    session: Session,
    engine: Engine,
    name: str,
    drain: int,
    ends: _Ends | None,
    *,
    as_json: bool,
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    at_once = asyncio.Event()

    def told() -> None:
        (at_once if stop.is_set() else stop).set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, told)
    async with engine as place:
        if ends is not None:
            ends.begin(place)
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
            if ends is not None:
                await ends.end()
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
    if as_json:
        _json_line({"event": event})
    session.err.line(words, "dim")
    session.err.stream.flush()


def _json_line(value: dict[str, Any]) -> None:
    """One event, on a line of its own: whoever reads need not wait for the end."""
    import json
    import sys

    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
