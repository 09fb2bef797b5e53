"""Which goals need not be kept any longer? `goal remove`, by name or by age."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.goal_engines import complete_hints, engine_option, open_engine, other_projects
from satchel.cli.goals import find
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command, yes_or_no
from satchel.cli.values import help_hint
from satchel.errors import Conflict, InvalidInput, NotFound, Refused, SatchelError
from satchel.goals.engines.base import not_over
from satchel.goals.model import OVER
from satchel.goals.reports import last_sign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalState

_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MOST = 10_000
"""Goals that one command removes by age."""
_AT_ONCE = 8
_SHOWN = 20
"""Names that people are shown before they are asked."""
_STATES: tuple[GoalState, ...] = ("done", "failed", "partial", "cancelled", "damaged")


class Age(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A time as people say it: `90m`, `12h`, `30d`, `8w`; in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The seconds.

        Raises:
            InvalidInput: it is no such time.
        """
        del param
        found = re.fullmatch(r"(\d{1,6})([mhdw])", str(value).strip().lower(), re.ASCII)
        if found is None:
            raise InvalidInput(
                say("`--older` needs a time such as `12h` or `30d`, not `{value}`",
                    value=one_line(str(value))),
                help_hint(ctx),
            )  # fmt: skip
        return int(found[1]) * _UNITS[found[2]]


class _Outcome:
    """What one `goal remove` did."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.kept: list[dict[str, str]] = []
        """Goals that were not removed, and why."""
        self.status = 0

    def keep(self, goal: str, exc: SatchelError | OSError) -> None:
        """A goal stays; a failure that is no conflict sets the exit code."""
        known = isinstance(exc, SatchelError)
        self.kept.append({"goal": goal, "reason": exc.message if known else str(exc)})
        if not isinstance(exc, Conflict):
            self.status = self.status or (exc.exit_code if known else SatchelError.exit_code)


@command(
    say("Remove goals that are over, for good: journals, outputs and all."),
    "satchel goal remove week-3f9a",
    "satchel goal remove --older 30d --dry-run",
    "satchel goal remove --older 12h --yes",
    more=say(
        "A goal that is running or waits for a person is refused: `satchel goal cancel` ends it. "
        "`--older` leaves such goals alone, however old. It takes those that ended longer ago than "
        "that: done, failed or cancelled."
    ),
)
@click.argument("goal_ids", metavar="[GOAL…]", nargs=-1)
@click.option(
    "--older",
    metavar="TIME",
    type=Age(),
    help=say("All goals that are over for so long: `90m`, `12h`, `30d`, `8w`."),
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=say("Also those of other projects, with the engine `local` and `--older`."),
)
@click.option("--dry-run", is_flag=True, help=say("Show what would be removed, and stop."))
@click.option("--yes", is_flag=True, help=say("Remove several without asking."))
@engine_option
@complete_hints
def remove(
    session: Session,
    goal_ids: tuple[str, ...],
    older: int | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
    engine: str | None,
    as_json: bool,
) -> int:
    """Their names on stdout."""
    from satchel.goals.engines.local import LocalEngine

    if bool(goal_ids) == (older is not None):
        raise InvalidInput(
            say("Name goals, or say how old they are") if older is None
            else say("Goals are removed by name or by age, not by both"),
            say("Run `satchel goal remove GOAL`, or `satchel goal remove --older 30d`"),
        )  # fmt: skip
    outcome = _Outcome()

    async def go() -> bool:
        async with AsyncExitStack() as places:
            engines = [await places.enter_async_context(open_engine(session, engine))]
            if older is None:
                found = [(engines[0], name) for name in await _named(engines[0], goal_ids, dry_run)]
            else:
                settings = session.satchel.settings
                if everything and (engine or settings.engine) == "local":
                    engines += [
                        await places.enter_async_context(LocalEngine(folder=folder))
                        for folder in other_projects(settings).values()
                    ]
                before = time.time() - older
                found = [
                    (one, name) for one in engines for name in await _over(one, before, outcome)
                ]
            names = [name for _, name in found]
            surely = len(names) == 1 and (older is not None or names[0] in goal_ids)
            if dry_run:
                outcome.removed = names
            elif names and not yes and not surely and not _agreed(session, names, as_json=as_json):
                return False
            else:
                await _each(partial(_forget, outcome), found)
        return True

    if not asyncio.run(go()):
        session.err.line(say("Nothing was removed"))
        return 0
    status = outcome.status or (Conflict.exit_code if outcome.kept and older is None else 0)
    if as_json:
        write_json({"removed": outcome.removed, "kept": outcome.kept, "dry_run": dry_run})
    else:
        _tell(session, outcome, dry_run=dry_run)
    return status


async def _named(engine: Engine, goal_ids: Sequence[str], dry_run: bool) -> list[str]:
    """Ids of goals that are all over; of one that is gone, what outlived it is removed.

    Raises:
        NotFound: there is no such goal.
        Conflict: one is not over.
    """
    found: list[str] = []
    for name in goal_ids:
        try:
            report = await find(engine, name)
        except NotFound:
            if not dry_run:
                with suppress(NotFound):
                    await engine.forget(name)
            raise
        if report.state not in OVER:
            raise not_over(report.id, report.state)
        found.append(report.id)
    return list(dict.fromkeys(found))


async def _over(engine: Engine, before: float, outcome: _Outcome) -> list[str]:
    """Ids of goals that were over before a moment; as steps tell, where an engine does not."""

    async def look(name: str) -> str:
        try:
            report = await engine.report(name)
        except NotFound:
            return ""
        except (SatchelError, OSError) as exc:
            outcome.keep(name, exc)
            return ""
        return name if (report.ended or last_sign(report)) < before else ""

    rows = await engine.list(states=_STATES, before=before, limit=_MOST)
    return [name for name in await _each(look, [one.id for one in rows]) if name]


def _agreed(session: Session, names: Sequence[str], *, as_json: bool) -> bool:
    """Whether a person agrees to remove several.

    Raises:
        Refused: nobody is there to be asked.
    """
    if as_json or not sys.stdin.isatty():
        raise Refused(
            say("Nobody is there to be asked"), say("Give `--yes`, or `--dry-run` to look")
        )
    err = session.err
    for name in names[:_SHOWN]:
        err.line(f"  {name}")
    if len(names) > _SHOWN:
        err.line(say("… and {count} more", count=len(names) - _SHOWN), "dim")
    return yes_or_no(session, say("Remove {count} for good?", count=len(names)))


async def _forget(outcome: _Outcome, found: tuple[Engine, str]) -> None:
    engine, goal = found
    try:
        await engine.forget(goal)
    except NotFound:
        return  # another process was quicker
    except (SatchelError, OSError) as exc:  # the others are removed all the same
        outcome.keep(goal, exc)
        return
    outcome.removed.append(goal)


async def _each(work: Callable[[Any], Awaitable[Any]], things: Sequence[Any]) -> list[Any]:
    """The same for many, a few at once."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(thing: Any) -> Any:
        async with room:
            return await work(thing)

    return list(await asyncio.gather(*map(one, things)))


def _tell(session: Session, outcome: _Outcome, *, dry_run: bool) -> None:
    """What was removed on stdout, what was not on stderr."""
    for name in outcome.removed:
        session.out.data(name)
    err, count = session.err, len(outcome.removed)
    for one in outcome.kept:
        words = say("`{goal}` was kept: {reason}", goal=one["goal"], reason=one_line(one["reason"]))
        err.line(words, "yellow")
    if dry_run:
        err.line(say("{count} would be removed", count=count), "dim")
    elif count:
        err.line("✓ " + say("{count} removed", count=count), "green")
    elif not outcome.kept:
        err.line(say("There are no such goals here"))
