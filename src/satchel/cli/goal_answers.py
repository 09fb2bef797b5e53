"""What does a person say to a step that asks? A text, or what the step's schema wants."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel.errors import Conflict, InvalidInput, Refused

if TYPE_CHECKING:
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
    from satchel.cli.goal_failures import with_options

    try:
        await engine.answer(report.id, step, answer)
    except Conflict as exc:
        if needs_yes(session, report, step):
            exc.hint = with_options(exc.hint, ("--yes",))
        raise


def needs_yes(session: Session, report: GoalReport, from_step: str = "") -> bool:
    """Whether a retry does steps that somebody has to allow, here and not where workers are."""
    from satchel.cli.goal_engines import is_shared
    from satchel.cli.goal_permission import must_be_allowed
    from satchel.goals.permission import done_again

    if is_shared(session.satchel.settings, report.engine):
        return False
    try:
        must_be_allowed(session, done_again(report, from_step))
    except Refused:
        return True
    return False
