"""The command `goal worker`: runs steps of goals that other processes started."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from satchel.cli import EXIT_FAILED, EXIT_INTERRUPTED
from satchel.cli.console import one_line
from satchel.cli.context import command
from satchel.cli.goal_engine import make_runner, open_engine
from satchel.cli.models import quietly
from satchel.cli.options import OneOf, WholeNumber, allow_tools_option, model_option
from satchel.errors import Refused
from satchel.goals.engines.factory import chosen_engine
from satchel.goals.health import HealthAddress, HealthServer
from satchel.goals.model import Plan
from satchel.goals.telemetry import LOG_FIELDS
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine

_CLOSE_TIMEOUT_S = 15.0
"""Time for a worker to leave its engine after the steps; without a database it would never end."""


@command(
    say("Run goal steps started by other processes."),
    "satchel goal worker --engine dbos",
    "satchel goal worker --engine temporal --drain 120",
)
@click.option(
    "--engine",
    type=OneOf(["dbos", "temporal"]),
    help=say("Default: the setting `engine`."),
)
@model_option()
@allow_tools_option()
@click.option(
    "--drain",
    type=WholeNumber(),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help=say("Seconds that running steps get to end."),
)
@click.option(
    "--at-once",
    type=WholeNumber(1),
    default=100,
    show_default=True,
    metavar="N",
    help=say("Goals (dbos) or steps (temporal) at the same time."),
)
@click.option(
    "--health",
    metavar="[HOST:]PORT",
    help=say("Answer `GET /health` at this address."),
)
def worker(
    context: CliContext,
    engine: str | None,
    model: str | None,
    allow_tools: bool,
    drain: int,
    at_once: int,
    health: str | None,
    as_json: bool,
) -> int:
    address = None if health is None else HealthAddress.parse(health)
    engine_name = chosen_engine(context.satchel.settings, engine)[0]
    if engine_name == "local":
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )
    has_model = bool(model or context.satchel.settings.model)
    if not has_model:
        text = say("No model is set: steps that need one are left to other workers")
        context.err.line(text, "dim")
    with quietly():
        runner = make_runner(
            context,
            model,
            engine_name,
            approve=True if allow_tools else None,
            plan=None if has_model else Plan("", ()),
        )
        try:
            opened = open_engine(context, engine_name, runner, at_once=at_once)
            goal_worker = _GoalWorker(context, engine_name, drain, as_json=as_json)
            return asyncio.run(goal_worker.run(opened, address))
        finally:
            runner.close()


class _GoalWorker:
    """Runs steps of an engine until a signal; then the running steps have `drain_s` to end.

    A second signal ends the process at once. Other workers take over what it leaves.
    """

    def __init__(
        self, context: CliContext, engine_name: str, drain_s: int, *, as_json: bool
    ) -> None:
        self._context = context
        self._engine_name = engine_name
        self._drain_s = drain_s
        self._as_json = as_json
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()

    async def run(self, engine: Engine, health: HealthAddress | None = None) -> int:
        """Run steps until a signal, and answer at the address; returns the exit code."""
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self._on_signal)
        with _log_events(self._report):
            return await self._work(engine, health)

    async def _work(self, engine: Engine, health: HealthAddress | None) -> int:
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(engine)
            values: dict[str, str] = {}
            text = say("Worker of `{engine}` is ready; Ctrl-C drains it", engine=self._engine_name)
            if health is not None:
                server = HealthServer(opened.health)
                url = values["health"] = await stack.enter_async_context(server.serve(health))
                text = f"{text}; {say('health: {url}', url=url)}"
            work_task = asyncio.ensure_future(opened.work(drain=float(self._drain_s)))
            self._report("ready", text, **values)
            await _wait_for_either(work_task, self._stop)
            if work_task.done():
                await work_task  # raises its error
                return 0
            await self._drain(work_task)
        self._report("drained", say("Stopped"))
        return 0

    async def _drain(self, work_task: asyncio.Future[None]) -> None:
        text = say("Draining, {count} s at most; once more ends it at once", count=self._drain_s)
        self._report("draining", text)
        work_task.cancel()
        await _wait_for_either(work_task, self._stop_at_once)
        if not work_task.done():
            os._exit(EXIT_INTERRUPTED)  # engines recover the steps of a killed worker
        if not work_task.cancelled() and work_task.exception() is not None:
            await work_task

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._stop_at_once.set()
            return
        self._stop.set()
        # A thread, since closing waits for other threads: one that asks the database never ends.
        abandon_timer = threading.Timer(self._drain_s + _CLOSE_TIMEOUT_S, self._abandon)
        abandon_timer.daemon = True
        abandon_timer.start()

    def _abandon(self) -> None:
        """End a process that the engine keeps from closing."""
        with suppress(OSError):
            message = say(
                "`{engine}` does not answer; other workers take over", engine=self._engine_name
            )
            self._report("abandoned", message)
        os._exit(EXIT_FAILED)

    def _report(self, event: str, text: str, **values: Any) -> None:
        if self._as_json:
            line = {"time": round(time.time(), 3), "event": event, **values}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        self._context.err.line(text, "dim")
        self._context.err.stream.flush()


class _EventHandler(logging.Handler):
    """Passes the log records of goals to the report of the worker."""

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(logging.INFO)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report one record; one without an event is an unexpected error."""
        values = {name: getattr(record, name) for name in LOG_FIELDS if hasattr(record, name)}
        text = record.getMessage()
        if record.exc_info and record.exc_info[0]:
            text = values["reason"] = f"{text}: {record.exc_info[0].__name__}"
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        with suppress(OSError, ValueError):  # the reader of the output is gone
            self._report(values.pop("event", "error"), f"{moment} {one_line(text)}", **values)


@contextmanager
def _log_events(report: Callable[..., None]) -> Generator[None]:
    """Report what the worker does, as the loggers of goals record it."""
    logger = logging.getLogger("satchel.goals")
    handler, level = _EventHandler(report), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


async def _wait_for_either(task: asyncio.Future[None], event: asyncio.Event) -> None:
    """Wait until the task ends or the event is set."""
    event_task = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, event_task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        event_task.cancel()
