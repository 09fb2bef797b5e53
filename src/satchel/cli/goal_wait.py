"""Follows a goal until it ends, shows its progress, and asks the questions of its steps."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel.cli import EXIT_INCOMPLETE, EXIT_INTERRUPTED
from satchel.cli.console import clean, one_line, write_json
from satchel.cli.goal_view import (
    GoalProgress,
    output_text,
    print_advice,
    print_end,
    report_to_dict,
    whole_outputs,
)
from satchel.cli.models import quietly
from satchel.cli.options import wrong_form
from satchel.errors import Conflict, InvalidInput
from satchel.goals.model import FINAL_GOAL_STATES, Answer
from satchel.i18n import say
from satchel.presentation.goals import last_steps, worker_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from satchel.cli.context import CliContext
    from satchel.cli.goal_engine import RunOptions
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport


_POLL_INTERVAL_S = 0.5
_INTERRUPT_PAUSE_S = 2.0
"""After Ctrl-C, another one is ignored for so long."""
_MAX_QUESTION_CHARS = 300


def parse_answer(text: str | None, schema: Any) -> Any:
    """Parse an answer: as JSON if the schema wants anything but a text."""
    if text is None or not schema or schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError as exc:
        raise wrong_form("--value", json.dumps(schema, ensure_ascii=False), text) from exc


def user_name() -> str:
    """Return the name of the current user; empty if unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


async def _read_line() -> str:
    """Read a line from the terminal without blocking the loop; empty at the end of the input.

    A daemon thread reads the file descriptor, so Ctrl-C ends the process at once. It does not use
    `sys.stdin`, whose lock it would still hold when the interpreter exits.
    """
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def resolve(data: bytes) -> None:
        if not line.done():
            line.set_result(data)

    def read() -> None:
        data = b""
        try:
            while not data.endswith(b"\n"):
                chunk = os.read(descriptor, 4096)
                data += chunk
                if not chunk:
                    break
        except OSError:  # the terminal was closed
            data = b""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(resolve, data)

    threading.Thread(target=read, daemon=True).start()
    return (await line).decode(sys.stdin.encoding or "utf-8", "replace")


def stop_on_interrupt(context: CliContext, run: Callable[[], int]) -> int:
    """Run a command that runs a goal; Ctrl-C ends it without a traceback."""
    try:
        with quietly():
            return run()
    except KeyboardInterrupt:
        _ignore_interrupts()
        if context.is_asking:
            context.err.line()  # ends the line of the question
        context.err.line(say("Stopped"), "yellow")
        return EXIT_INTERRUPTED


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C during the shutdown; after a while it ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        return
    first_interrupt = time.monotonic()

    def exit_at_once(_number: int, _frame: object) -> None:
        if time.monotonic() - first_interrupt > _INTERRUPT_PAUSE_S:
            os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, exit_at_once)


def run_to_end(
    context: CliContext,
    engine: Engine,
    change_goal: Callable[[Engine], Awaitable[GoalReport]],
    options: RunOptions,
    *,
    shared: bool,
) -> int:
    """Open the engine, submit or continue the goal by `change_goal`, and follow it to its end.

    `shared` means that workers run the steps. Returns the exit code.
    """
    report, outputs = asyncio.run(
        _change_and_follow(context, engine, change_goal, options, shared=shared)
    )
    if outputs is None:
        return EXIT_INTERRUPTED
    if options.detach:
        _report_detached(context, engine, report, options)
        return 0
    if options.as_json:
        record = report_to_dict(report)
        for step in record["steps"]:
            step["output"] = outputs.get(step["id"], step["output"])
        write_json(record)
    else:
        _print_outputs(context, report, outputs)
    return _report_end(context, report, _run_options_text(options), shared=shared)


def _run_options_text(options: RunOptions) -> str:
    """Return the options to repeat in the next command that runs steps of the goal."""
    return "".join(f" {word}" for word in options.arguments())


def _engine_option_text(options: RunOptions) -> str:
    """Return the options to repeat in the next command that only shows the goal."""
    return f" --engine {options.engine}" if options.engine else ""


async def _change_and_follow(
    context: CliContext,
    engine: Engine,
    change_goal: Callable[[Engine], Awaitable[GoalReport]],
    options: RunOptions,
    *,
    shared: bool,
) -> tuple[GoalReport, Mapping[str, Any] | None]:
    """Return the goal, and the outputs of its last steps; None after Ctrl-C."""
    async with engine as opened:
        since = time.time()
        report = await change_goal(opened)
        if options.detach:
            return report, {}
        try:
            while True:
                report = await _follow(context, opened, report, since)
                is_interactive = sys.stdin.isatty() and sys.stderr.isatty()
                if report.state in FINAL_GOAL_STATES or not is_interactive:
                    break
                since = time.time()
                if not await _ask_waiting_steps(context, opened, report):
                    break
                report = await opened.report(report.id)
        except asyncio.CancelledError:  # Ctrl-C
            _ignore_interrupts()
            _print_interrupted(context, report.id, options, shared=shared)
            return report, None
        last_results = {name: report.steps[name] for name in last_steps(report.plan)}
        return report, await whole_outputs(opened, last_results)


def _print_interrupted(
    context: CliContext, goal_id: str, options: RunOptions, *, shared: bool
) -> None:
    """Print how the goal continues, on its own line: a terminal shows `^C`."""
    if context.is_asking or context.err.is_terminal:
        context.err.line()
    command = f"satchel goal resume {goal_id}{_run_options_text(options)}"
    if shared and not context.is_asking:  # workers continue it
        command = f"satchel goal show {goal_id}{_engine_option_text(options)}"
    context.is_asking = False
    context.err.line(say("Run `{command}`", command=command), "yellow")


async def _follow(
    context: CliContext, engine: Engine, report: GoalReport, since: float
) -> GoalReport:
    """Show the progress of a goal until it ends or waits for an answer."""
    view = GoalProgress(context.err, report)
    view.begin(since)
    while True:
        report = await engine.wait(report.id, _POLL_INTERVAL_S)
        view.update(report)
        is_queued = report.state == "queued" and engine.name != "local"
        if report.state != "running" and not is_queued:
            print_end(context.err, report)
            return report


async def _ask_waiting_steps(context: CliContext, engine: Engine, report: GoalReport) -> bool:
    """Ask for the answers of all waiting steps; False at the end of the input."""
    for step in report.plan.steps:
        result = report.steps[step.id]
        if result.state != "asking":
            continue
        err = context.err
        err.title(f"? {one_line(step.title or step.id)}")
        err.write(clean(str(result.output or step.prompt)).rstrip("\n") + "\n\n")
        while True:
            answer = await _read_answer(context, step.output)
            if answer is None:
                return False
            try:
                await engine.answer(report.id, step.id, answer)
                break
            except Conflict:  # the deadline has passed, or another person was faster
                break
            except InvalidInput as exc:
                err.line(one_line(exc.message), "red")
    return True


async def _read_answer(context: CliContext, schema: Any) -> Answer | None:
    """Read an answer from the terminal; None at the end of the input."""
    err = context.err
    while True:
        err.write(say("[y] yes, [n] no, or write your answer: "))
        err.stream.flush()
        context.is_asking = True  # stays set after Ctrl-C
        line = await _read_line()
        context.is_asking = False
        if not line:
            err.line()
            return None
        text = line.strip()
        if not text:
            continue
        if text.lower() in {"n", "no", "否"}:
            return Answer(approved=False, by=user_name())
        if text.lower() in {"y", "yes", "是"}:
            return Answer(by=user_name())
        try:
            return Answer(value=parse_answer(text, schema), by=user_name())
        except InvalidInput as exc:
            err.line(one_line(exc.message), "red")


def _print_outputs(context: CliContext, report: GoalReport, outputs: Mapping[str, Any]) -> None:
    """Print the outputs of the last steps on stdout, under headings when there are several."""
    finished = [name for name in outputs if report.steps[name].state == "done"]
    for index, name in enumerate(finished):
        text = output_text(outputs[name])
        if len(finished) > 1:
            text = f"{chr(10) if index else ''}# {name}\n\n{text}"
        context.out.data(text)


def _report_end(context: CliContext, report: GoalReport, suffix: str, *, shared: bool) -> int:
    """Print what to do next; returns the exit code."""
    if report.state == "done":
        return 0
    if report.state in {"asking", "queued", "running"}:
        asking = [name for name, result in report.steps.items() if result.state == "asking"]
        for name in asking:
            text = str(report.steps[name].output or "").strip().partition("\n")[0]
            context.err.line(one_line(text)[:_MAX_QUESTION_CHARS], indent=f"  ? {name}  ")
        # `--allow-tools` is not an answer, so it is not shown where it could be read as one.
        step = (asking[0] if len(asking) == 1 else "STEP") + suffix.removesuffix(" --allow-tools")
        text = say("Run `{command}`", command=f"satchel goal resume {report.id}{suffix}")
        if asking:
            text = say("Approve with `satchel goal answer {goal} {step}`, or pass your answer with "
                       "`--value`", goal=report.id, step=step)  # fmt: skip
        context.err.line(text, "yellow")
        return EXIT_INCOMPLETE
    print_advice(context, report, suffix, shared=shared)
    return 1


def _report_detached(
    context: CliContext, engine: Engine, report: GoalReport, options: RunOptions
) -> None:
    """Leave a goal to workers, or to a background process that is started here, and print that."""
    log = ""
    if engine.name == "local":
        from satchel.goals.engines.factory import resume_in_background

        settings, arguments = context.satchel.settings, options.arguments()
        process = resume_in_background(settings, report.id, arguments, project=context.project)
        log = process.log
    if options.as_json:
        write_json({**report_to_dict(report), "log": log or None})
    else:
        context.out.data(report.id)
    if log:
        path = os.path.relpath(log) if log.startswith(os.getcwd()) else log
        context.err.line(say("Running in the background; its log is `{path}`", path=path), "dim")
    else:
        command = worker_command(context.satchel, report)
        context.err.line(say("Workers run the steps: `{command}`", command=command), "dim")
    goal = report.id + _engine_option_text(options)
    context.err.line(say("Run `{command}`", command=f"satchel goal show {goal}"), "dim")
