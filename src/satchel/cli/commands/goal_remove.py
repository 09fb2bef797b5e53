"""The command `goal remove`: removes ended goals by name or age."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.goal import find_goal
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, confirm_change
from satchel.cli.goal_engine import complete_hints, engine_option, open_engine
from satchel.cli.options import all_option, dry_run_option, flag_option, help_hint
from satchel.errors import Conflict, InvalidInput, NotFound, SatchelError
from satchel.goals.engines.base import goal_not_over
from satchel.goals.engines.factory import other_projects
from satchel.goals.model import OVER
from satchel.goals.reports import last_event_time
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalState

_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MAX_GOALS_REMOVED = 10_000
_MAX_CONCURRENT_CALLS = 8
_MAX_NAMES_SHOWN = 20
_STATES: tuple[GoalState, ...] = ("done", "failed", "partial", "cancelled", "damaged")


class Age(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A duration such as `90m`, `12h`, `30d` or `8w`, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the duration."""
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
    def __init__(self) -> None:
        self.removed: list[str] = []
        self.kept: list[dict[str, str]] = []
        self.status = 0

    def add_kept(self, goal: str, exc: SatchelError | OSError) -> None:
        """Record that a goal was not removed; an error other than a conflict sets the status."""
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
@all_option(say("Also those of other projects, with the engine `local` and `--older`."))
@dry_run_option(say("Show what would be removed, and stop."))
@flag_option("--yes", say("Remove several without asking."))
@engine_option
@complete_hints
def remove(
    context: CliContext,
    goal_ids: tuple[str, ...],
    older: int | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
    engine: str | None,
    as_json: bool,
) -> int:
    from satchel.goals.engines.local import LocalEngine

    if bool(goal_ids) == (older is not None):
        raise InvalidInput(
            say("Name goals, or say how old they are") if older is None
            else say("Goals are removed by name or by age, not by both"),
            say("Run `satchel goal remove GOAL`, or `satchel goal remove --older 30d`"),
        )  # fmt: skip
    outcome = _Outcome()

    async def remove_goals() -> bool:
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(open_engine(context, engine))]
            if older is None:
                found = [(engines[0], name) for name in await _named(engines[0], goal_ids, dry_run)]
            else:
                settings = context.satchel.settings
                if everything and (engine or settings.engine) == "local":
                    engines += [
                        await stack.enter_async_context(LocalEngine(folder=folder))
                        for folder in other_projects(settings).values()
                    ]
                before = time.time() - older
                found = [
                    (one, name) for one in engines for name in await _over(one, before, outcome)
                ]
            names = [name for _, name in found]
            exact = len(names) == 1 and (older is not None or names[0] in goal_ids)
            if dry_run:
                outcome.removed = names
            elif names and not yes and not exact and not _confirm(context, names, as_json=as_json):
                return False
            else:
                await _for_each(partial(_forget, outcome), found)
        return True

    if not asyncio.run(remove_goals()):
        context.err.line(say("Nothing was removed"))
        return 0
    status = outcome.status or (Conflict.exit_code if outcome.kept and older is None else 0)
    if as_json:
        write_json({"removed": outcome.removed, "kept": outcome.kept, "dry_run": dry_run})
    else:
        _print_outcome(context, outcome, dry_run=dry_run)
    return status


async def _named(engine: Engine, goal_ids: Sequence[str], dry_run: bool) -> list[str]:
    """Resolve names to ids of ended goals; leftovers of an unknown goal are removed."""
    found: list[str] = []
    for name in goal_ids:
        try:
            report = await find_goal(engine, name)
        except NotFound:
            if not dry_run:
                with suppress(NotFound):
                    await engine.forget(name)
            raise
        if report.state not in OVER:
            raise goal_not_over(report.id, report.state)
        found.append(report.id)
    return list(dict.fromkeys(found))


async def _over(engine: Engine, before: float, outcome: _Outcome) -> list[str]:
    """Ids of goals that ended before a time; by their steps, where the engine records no end."""

    async def ended_before(name: str) -> str:
        try:
            report = await engine.report(name)
        except NotFound:
            return ""
        except (SatchelError, OSError) as exc:
            outcome.add_kept(name, exc)
            return ""
        return name if (report.ended or last_event_time(report)) < before else ""

    rows = await engine.list(states=_STATES, before=before, limit=_MAX_GOALS_REMOVED)
    return [name for name in await _for_each(ended_before, [one.id for one in rows]) if name]


def _confirm(context: CliContext, names: Sequence[str], *, as_json: bool) -> bool:
    if not as_json and sys.stdin.isatty():
        for name in names[:_MAX_NAMES_SHOWN]:
            context.err.line(f"  {name}")
        if len(names) > _MAX_NAMES_SHOWN:
            more = say("… and {count} more", count=len(names) - _MAX_NAMES_SHOWN)
            context.err.line(more, "dim")
    question = say("Remove {count} for good?", count=len(names))
    return confirm_change(context, question, as_json=as_json)


async def _forget(outcome: _Outcome, found: tuple[Engine, str]) -> None:
    engine, goal = found
    try:
        await engine.forget(goal)
    except NotFound:
        return  # removed by another process
    except (SatchelError, OSError) as exc:  # the others are removed anyway
        outcome.add_kept(goal, exc)
        return
    outcome.removed.append(goal)


async def _for_each(call: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
    """Call a coroutine function with each item, a few at a time."""
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)

    async def limited(item: Any) -> Any:
        async with semaphore:
            return await call(item)

    return list(await asyncio.gather(*map(limited, items)))


def _print_outcome(context: CliContext, outcome: _Outcome, *, dry_run: bool) -> None:
    for name in outcome.removed:
        context.out.data(name)
    err, count = context.err, len(outcome.removed)
    for one in outcome.kept:
        message = say(
            "`{goal}` was kept: {reason}", goal=one["goal"], reason=one_line(one["reason"])
        )
        err.line(message, "yellow")
    if dry_run:
        err.line(say("{count} would be removed", count=count), "dim")
    elif count:
        err.line("✓ " + say("{count} removed", count=count), "green")
    elif not outcome.kept:
        err.line(say("There are no such goals here"))
