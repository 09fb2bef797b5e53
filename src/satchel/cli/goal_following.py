"""How is a goal followed until it is over, and who is asked on the way?"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.output import clean, one_line, write_json
from satchel.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from satchel.cli.goal_progress import GoalProgress
    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import Answer, GoalReport


def as_value(text: str | None, schema: Any) -> Any:
    """A text in the form that a schema wants.

    Raises:
        InvalidInput: it should be JSON, and is none.
    """
    if text is None or not schema or schema.get("type") == "string":
        return text
    import json

    try:
        return json.loads(text)
    except ValueError as exc:
        raise InvalidInput(
            say("The answer is not JSON: {reason}", reason=exc),
            say("The step wants {schema}", schema=json.dumps(schema, ensure_ascii=False)),
        ) from exc


def user_name() -> str:
    """Who answers, as this machine knows them."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


async def next_line() -> str:
    """A line from the terminal, without holding up the loop; empty when nothing more comes.

    A thread reads it that nobody waits for: who leaves by Ctrl-C leaves at once. It reads past
    `sys.stdin`, whose lock it would still hold when Python ends.
    """
    import asyncio
    import os
    import sys
    import threading

    loop = asyncio.get_running_loop()
    came: asyncio.Future[bytes] = loop.create_future()
    number = sys.stdin.fileno()

    def give(data: bytes) -> None:
        if not came.done():
            came.set_result(data)

    def read() -> None:
        data = b""
        try:
            while not data.endswith(b"\n"):
                more = os.read(number, 4096)
                data += more
                if not more:
                    break
        except OSError:  # the terminal is gone
            data = b""
        with suppress(RuntimeError):  # the loop is closed: nobody is interested any more
            loop.call_soon_threadsafe(give, data)

    threading.Thread(target=read, daemon=True).start()
    return (await came).decode(sys.stdin.encoding or "utf-8", "replace")


async def give_answer(
    session: Session, engine: Engine, report: GoalReport, step: str, answer: Answer
) -> None:
    """Say a person's word to a step.

    Raises:
        Conflict: it does not ask, or was answered otherwise; the hint can be followed as it is.
    """
    from satchel.cli.goal_engines import needs_yes, with_options

    try:
        await engine.answer(report.id, step, answer)
    except Conflict as exc:
        if needs_yes(session, report, step):
            exc.hint = with_options(exc.hint, ("--allow-tools",))
        raise


WAITS = 8
"""The exit code when a person is needed: not everything was tried."""
_INTERRUPTED = 130
_TICK = 0.125
"""Seconds between two pictures."""
_GRACE = 2.0
"""Seconds after Ctrl-C in which another is not heeded."""
_LATE = 2.0
"""Seconds that the last events may take to arrive after the end."""


def detach_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--detach`, for commands that let a goal go on."""
    return click.option(
        "--detach", is_flag=True, help=say("Do not wait: let it go on in the background.")
    )(function)


def carry_on(session: Session, go: Callable[[], int]) -> int:
    """Run a command that lets a goal go on; Ctrl-C ends it quietly."""
    from satchel.cli.chat.models import quietly

    try:
        with quietly():
            return go()
    except KeyboardInterrupt:
        _leave_quietly()
        if session.asking:
            session.err.line()  # the line of the question ends here
        session.err.line(say("Stopped"), "yellow")
        return _INTERRUPTED


def _leave_quietly() -> None:
    """One Ctrl-C is enough: more of them hurry nothing and break nothing, for a while.

    Whatever hangs after that is ended by the next.
    """
    import os
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return
    since = time.monotonic()

    def again(_number: int, _frame: object) -> None:
        if time.monotonic() - since > _GRACE:
            os._exit(_INTERRUPTED)

    signal.signal(signal.SIGINT, again)


def run_to_end(
    session: Session,
    engine: Engine,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    *,
    detach: bool,
    as_json: bool,
    again: Sequence[str] = (),
    shared: bool = False,
) -> int:
    """Enter the engine, begin, and follow the goal to its end.

    Args:
        session: The terminal.
        engine: Where the goal is kept.
        begin: Begins it, or lets it go on.
        detach: Leave as soon as it has begun.
        as_json: The report as JSON on stdout.
        again: Options for a process that goes on in the background.
        shared: Workers do the steps, and their options count.

    Returns:
        The exit code.
    """
    left = _Left(session, again, shared=shared)
    try:
        report, outputs = asyncio.run(_run(session, engine, begin, left, detach=detach))
    except KeyboardInterrupt:
        if left.without_us:
            return _INTERRUPTED  # only this command has stopped, not the goal
        raise
    if detach:
        _leave(session, engine, report, again, as_json=as_json)
        return 0
    if as_json:
        from satchel.cli.goal_words import report_dict

        whole = report_dict(report)
        for step in whole["steps"]:
            step["output"] = outputs.get(step["id"], step["output"])
        write_json(whole)
    else:
        _give(session, report, outputs)
    return _exit_code(session, report, _suffix(again), shared=shared)


def _suffix(again: Sequence[str]) -> str:
    """Options that the next command about the goal needs, too."""
    return "".join(f" {word}" for word in again)


def _engine_words(again: Sequence[str]) -> str:
    """Those of them that commands need which only look."""
    return _suffix(again[:2] if again[:1] == ["--engine"] else ())


async def _run(
    session: Session,
    engine: Engine,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    left: _Left,
    *,
    detach: bool,
) -> tuple[GoalReport, Mapping[str, Any]]:
    from satchel.cli.goal_progress import GoalProgress
    from satchel.cli.goals import last_steps, whole_outputs
    from satchel.goals.model import OVER

    async with engine as place:
        since = time.time()
        report = await begin(place)
        if detach:
            return report, {}
        view = GoalProgress(session.err)
        try:
            while True:
                report = await follow(place, report, view, since)
                if report.state in OVER or not _somebody_there():
                    break
                since = time.time()
                if not await _ask(session, place, report):
                    break
                report = await place.report(report.id)
                view = GoalProgress(session.err)
        except (KeyboardInterrupt, asyncio.CancelledError):
            _leave_quietly()
            left.tell(report.id, plain=not view.redraws)  # a picture covers what keys left behind
            raise
        last = {name: report.steps[name] for name in last_steps(report.plan)}
        return report, await whole_outputs(place, last)


class _Left:
    """Who leaves by Ctrl-C is told how the goal goes on: by them, or without them."""

    def __init__(self, session: Session, again: Sequence[str], *, shared: bool) -> None:
        self._session = session
        self._again = again
        self._shared = shared
        self.without_us = False
        """Workers go on with the goal, and that was said."""

    def tell(self, goal_id: str, *, plain: bool) -> None:
        """Say it, on a line of its own.

        Args:
            goal_id: Which.
            plain: Nothing is redrawn, so `^C` stands where the terminal wrote it.
        """
        err, asking = self._session.err, self._session.asking
        if asking or (plain and err.is_terminal):
            err.line()
        self._session.asking = False
        self.without_us = self._shared and not asking
        if self.without_us:
            goal = goal_id + _engine_words(self._again)
            words = say("Workers go on with it; look with `satchel goal show {goal}`", goal=goal)
        else:
            goal = goal_id + _suffix(self._again)
            words = say("Go on later with `satchel goal resume {goal}`", goal=goal)
        err.line(words, "yellow")


async def follow(
    engine: Engine, report: GoalReport, view: GoalProgress, since: float
) -> GoalReport:
    """Show what happens to a goal from `since` on, until it is over or asks a person."""
    goal_id = report.id
    view.begin(report, since)
    ended: GoalReport | None = None

    async def watch() -> None:
        async for event in engine.watch(goal_id):
            view.tell(event)

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK)
            view.tick()

    watching = asyncio.ensure_future(watch())
    ticking = asyncio.ensure_future(tick())
    try:
        ended = await engine.wait(goal_id)
        await asyncio.wait([watching], timeout=_LATE)
        return ended
    finally:
        ticking.cancel()
        if not watching.done():
            watching.cancel()
        await asyncio.gather(watching, ticking, return_exceptions=True)
        view.end(ended)


def _somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _ask(session: Session, engine: Engine, report: GoalReport) -> bool:
    """Ask the person at the terminal for every step that asks; False when they are gone."""
    for step in report.plan.steps:
        result = report.steps[step.id]
        if result.state != "asking":
            continue
        err = session.err
        err.title(f"? {one_line(step.title or step.id)}")
        err.write(clean(str(result.output or step.prompt)).rstrip("\n") + "\n\n")
        while True:
            answer = await _answer(session, step.output)
            if answer is None:
                return False
            try:
                await give_answer(session, engine, report, step.id, answer)
                break
            except InvalidInput as exc:
                err.line(one_line(exc.message), "red")
    return True


async def _answer(session: Session, schema: Any) -> Answer | None:
    """What the person says; None when nothing more comes."""
    from satchel.goals.model import Answer

    err = session.err
    while True:
        err.write(say("[y] yes, [n] no, or write your answer: "))
        err.stream.flush()
        session.asking = True  # it stays so when somebody leaves by Ctrl-C
        line = await next_line()
        session.asking = False
        if not line:
            err.line()
            return None
        said = line.strip()
        if not said:
            continue
        if said.lower() in {"n", "no", "否"}:
            return Answer(approved=False, by=user_name())
        if said.lower() in {"y", "yes", "是"}:
            return Answer(by=user_name())
        try:
            return Answer(value=as_value(said, schema), by=user_name())
        except InvalidInput as exc:
            err.line(one_line(exc.message), "red")


def _give(session: Session, report: GoalReport, outputs: Mapping[str, Any]) -> None:
    """What the goal gives, on stdout; below headings when several steps are the last."""
    from satchel.cli.goals import as_text

    done = [name for name in outputs if report.steps[name].state == "done"]
    for at, name in enumerate(done):
        text = as_text(outputs[name])
        if len(done) > 1:
            text = f"{chr(10) if at else ''}# {name}\n\n{text}"
        session.out.data(text)


def _exit_code(session: Session, report: GoalReport, suffix: str, *, shared: bool) -> int:
    from satchel.cli.goal_words import told_advice

    if report.state == "done":
        return 0
    if report.state in {"asking", "queued", "running"}:
        asking = [name for name, result in report.steps.items() if result.state == "asking"]
        for name in asking:
            text = str(report.steps[name].output or "").strip().partition("\n")[0]
            session.err.line(one_line(text)[:300], "", f"  ? {name}  ")
        # `--allow-tools` is no answer, so it does not stand where it could be read as one.
        step = (asking[0] if len(asking) == 1 else "STEP") + suffix.removesuffix(" --allow-tools")
        words = say("Go on later with `satchel goal resume {goal}`", goal=report.id + suffix)
        if asking and suffix.endswith(" --allow-tools"):
            words = say("Say yes with `satchel goal approve {goal} {step}`, or your own words with "
                        "`--value`; add `--allow-tools` to let tools write",
                        goal=report.id, step=step)  # fmt: skip
        elif asking:
            words = say("Say yes with `satchel goal approve {goal} {step}`, or your own words with "
                        "`--value`", goal=report.id, step=step)  # fmt: skip
        session.err.line(words, "yellow")
        return WAITS
    told_advice(session, report, suffix, shared=shared)
    return 1


def _leave(
    session: Session,
    engine: Engine,
    report: GoalReport,
    again: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Let a goal go on without us: by workers, or by a process of its own."""
    import os

    log = ""
    if engine.name == "local":
        log = _go_on_in_background(session, report.id, again)
    if as_json:
        from satchel.cli.goal_words import report_dict

        write_json({**report_dict(report), "log": log or None})
    else:
        session.out.data(report.id)
    if log:
        session.err.line(say("It goes on in the background; its log is `{path}`",
                             path=os.path.relpath(log) if log.startswith(os.getcwd()) else log),
                         "dim")  # fmt: skip
    else:
        from satchel.cli.goal_engines import worker_command

        command = worker_command(session, report)
        session.err.line(say("A worker does it: `{command}`", command=command), "dim")
    goal = report.id + _engine_words(again)
    session.err.line(say("See how far it is: `satchel goal show {goal}`", goal=goal), "dim")


def _go_on_in_background(session: Session, goal_id: str, again: Sequence[str]) -> str:
    """Start a process that resumes a goal and outlives us; returns the path of its log."""
    from satchel.goals.engines.opening import go_on

    return go_on(session.satchel.settings, goal_id, again, project=session.project).log
