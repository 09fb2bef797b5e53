"""Which goals need not be kept any longer? `goal remove`, by name or by age."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel._language import say
from satchel.cli.goal_engines import engine_option, open_engine, other_projects
from satchel.cli.goal_failures import json_failures
from satchel.cli.goals import find
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command, yes_or_no
from satchel.cli.values import help_hint
from satchel.errors import Conflict, InvalidInput, NotFound, Refused, SatchelError
from satchel.goals.engines.base import not_over
from satchel.goals.model import OVER
from satchel.goals.reports import last_sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalState

_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_BATCH = 1_000
"""Goals that are looked for at once, by age."""
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


class _Found(NamedTuple):
    """A goal to remove, and who keeps it."""

    engine: Engine
    id: str


class _Kept(NamedTuple):
    """A goal that was not removed, and why."""

    goal: str
    reason: str


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
@json_failures
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
    if bool(goal_ids) == (older is not None):
        raise InvalidInput(
            say("Name goals, or say how old they are") if older is None
            else say("Goals are removed by name or by age, not by both"),
            say("Run `satchel goal remove GOAL`, or `satchel goal remove --older 30d`"),
        )  # fmt: skip
    work = _Removing(session, engine, dry_run=dry_run, yes=yes, as_json=as_json)
    return asyncio.run(work.named(goal_ids) if older is None else work.older(older, everything))


class _Removing:
    """One `goal remove`."""

    def __init__(
        self, session: Session, engine: str | None, *, dry_run: bool, yes: bool, as_json: bool
    ) -> None:
        self._session = session
        self._engine = engine
        self._dry_run = dry_run
        self._yes = yes
        self._as_json = as_json
        self._told = False
        self._removed: list[str] = []
        self._kept: list[_Kept] = []
        self._status = 0
        """What the command exits with, after a failure."""
        self._stopped = ""
        """Why no more goals were looked for, when there may be some."""

    async def named(self, goal_ids: Sequence[str]) -> int:
        """Goals by their names: all of them, or none when one cannot be removed."""
        async with open_engine(self._session, self._engine) as place:
            reports = [await self._find(place, name) for name in goal_ids]
            for report in reports:
                if report.state not in OVER:
                    raise not_over(report.id, report.state)
            found = [_Found(place, name) for name in dict.fromkeys(one.id for one in reports)]
            surely = len(found) == 1 and found[0].id in goal_ids
            if self._may_begin(found, surely=surely):
                await self._remove(found)
        return self._tell(strict=True)

    async def _find(self, place: Engine, name: str) -> GoalReport:
        """A goal by its name; of one that is gone, what outlived it is removed."""
        try:
            return await find(place, name)
        except NotFound:
            if not self._dry_run:
                with suppress(NotFound):
                    await place.forget(name)
            raise

    async def older(self, seconds: int, everything: bool) -> int:
        """Goals by their age."""
        from satchel.goals.engines.local import LocalEngine

        settings = self._session.satchel.settings
        before = time.time() - seconds
        async with AsyncExitStack() as places:
            engines = [await places.enter_async_context(open_engine(self._session, self._engine))]
            if everything and (self._engine or settings.engine) == "local":
                for folder in other_projects(settings).values():
                    other = await places.enter_async_context(LocalEngine(folder=folder))
                    engines.append(other)
            left: list[set[str]] = [set() for _ in engines]
            """Goals that ended since, and those that could not be removed."""
            pairs = list(zip(engines, left, strict=True))
            found = [one for place, some in pairs for one in await self._batch(place, before, some)]
            if self._may_begin(found, surely=len(found) == 1):
                while found:  # people are asked once, also when there are very many
                    await self._remove(found)
                    for some in left:
                        some.update(one.goal for one in self._kept)
                    try:
                        found = [
                            one
                            for place, some in pairs
                            for one in await self._batch(place, before, some)
                        ]
                    except (SatchelError, OSError) as exc:
                        self._stopped = self._failed(exc)
                        break
        return self._tell(strict=False)

    async def _batch(self, place: Engine, before: float, left: set[str]) -> list[_Found]:
        """Some goals that are over and old; goals that are to be left are added to `left`."""

        async def look(name: str) -> GoalReport | None:
            try:
                return await place.report(name)
            except NotFound:
                raise
            except (SatchelError, OSError) as exc:
                self._kept.append(_Kept(name, self._failed(exc)))
                return None

        while True:
            rows = await place.list(states=_STATES, before=before, limit=_BATCH + len(left))
            new = [one.id for one in rows if one.id not in left]
            reports = await _together(look, new)
            old = [one.id for one in reports if one is not None and _over_since(one) < before]
            left |= set(new) - set(old)
            if old or not new:
                return [_Found(place, name) for name in old]

    def _may_begin(self, found: list[_Found], *, surely: bool) -> bool:
        """Whether these may be removed: one that was named may; of several, a person says it.

        Raises:
            Refused: nobody is there to be asked.
        """
        names = [one.id for one in found]
        if self._dry_run:
            self._removed = names
            return False
        if self._yes or surely or not found:
            return True
        if self._as_json or not sys.stdin.isatty():
            raise Refused(
                say("Nobody is there to be asked"), say("Give `--yes`, or `--dry-run` to look")
            )
        err = self._session.err
        for name in names[:_SHOWN]:
            err.line(f"  {name}")
        if len(names) > _SHOWN:
            err.line(say("… and {count} more", count=len(names) - _SHOWN), "dim")
        question = say("Remove {count} for good?", count=len(names))
        if len(names) >= _BATCH:
            question = say("Remove {count} or more for good?", count=len(names))
        if yes_or_no(self._session, question):
            return True
        err.line(say("Nothing was removed"))
        self._told = True
        return False

    async def _remove(self, found: Sequence[_Found]) -> None:
        async def one(goal: _Found) -> None:
            try:
                await goal.engine.forget(goal.id)
            except NotFound:
                return  # somebody else was quicker
            except Conflict as exc:
                self._kept.append(_Kept(goal.id, exc.message))
                return
            except (SatchelError, OSError) as exc:  # the others go all the same
                self._kept.append(_Kept(goal.id, self._failed(exc)))
                return
            self._removed.append(goal.id)

        await _together(one, found)

    def _failed(self, exc: SatchelError | OSError) -> str:
        """Something could not be done, and the command will not exit with 0. Returns why."""
        known = isinstance(exc, SatchelError)
        self._status = self._status or (exc.exit_code if known else SatchelError.exit_code)
        return exc.message if known else str(exc)

    def _tell(self, *, strict: bool) -> int:
        """What was removed on stdout, what was not on stderr."""
        out, err = self._session.out, self._session.err
        status = self._status or (Conflict.exit_code if self._kept and strict else 0)
        if self._as_json:
            kept = [one._asdict() for one in self._kept]
            found = {"removed": self._removed, "kept": kept, "dry_run": self._dry_run}
            write_json({**found, "stopped": self._stopped} if self._stopped else found)
            return status
        for name in self._removed:
            out.data(name)
        for one in self._kept:
            reason = one_line(one.reason)
            err.line(say("`{goal}` was kept: {reason}", goal=one.goal, reason=reason), "yellow")
        count = len(self._removed)
        if self._dry_run:
            words = say("{count} would be removed", count=count)
            if count >= _BATCH:
                words = say("{count} or more would be removed", count=count)
            err.line(words, "dim")
        elif count:
            err.line("✓ " + say("{count} removed", count=count), "green")
        elif not self._kept and not self._told:
            err.line(say("There are no such goals here"))
        if self._stopped:
            err.line(
                say("There may be more, but looking for them failed: {reason}",
                    reason=one_line(self._stopped)),
                "yellow",
            )  # fmt: skip
        return status


async def _together(work: Any, things: Sequence[Any]) -> list[Any]:
    """The same for many, a few at once; None for one that is gone meanwhile."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(thing: Any) -> Any:
        async with room:
            try:
                return await work(thing)
            except NotFound:
                return None

    return list(await asyncio.gather(*map(one, things)))


def _over_since(report: GoalReport) -> float:
    """When a goal was over; as its steps tell, where an engine does not say it."""
    return report.ended or last_sign(report)
