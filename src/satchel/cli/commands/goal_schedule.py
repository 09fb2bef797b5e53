"""The command `goal schedule`: goals that the engine starts at fixed times."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

import click

from satchel.cli.commands.goal_plan import read_plan_file
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.goal_engine import engine_option, is_shared, open_engine
from satchel.cli.options import AnyPath, cannot_combine, needs
from satchel.goals.engines.base import cron_invalid
from satchel.goals.model import Goal
from satchel.goals.reports import pack
from satchel.i18n import say
from satchel.presentation.goals import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.goals.model import Schedule

_FIVE_FIELDS = re.compile(r"\s*(?:\S+\s+){4}\S+\s*")


@command(
    say("Run a plan at fixed times; without a plan, list the schedules."),
    'satchel goal schedule week.yaml --cron "0 7 * * 1"',
    "satchel goal schedule",
    "satchel goal schedule --remove week",
)
@click.argument("plan_path", metavar="[PLAN]", required=False, type=AnyPath(dir_okay=False))
@click.option("--cron", metavar="TIMES", help=say("Minute, hour, day, month and weekday, in UTC."))
@click.option(
    "--id",
    "name",
    metavar="NAME",
    help=say("The schedule's name, with which the ids of its goals begin; default: the file's."),
)
@click.option("--remove", "removed", metavar="NAME", help=say("Remove a schedule; its goals stay."))
@engine_option
def schedule(
    context: CliContext,
    plan_path: str | None,
    cron: str | None,
    name: str | None,
    removed: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    _require_fitting_words(plan_path, cron, name, removed)
    goal = None if plan_path is None else _make_goal(context, plan_path, name, engine)

    async def change_or_list() -> Sequence[Schedule]:
        async with open_engine(context, engine) as opened:
            if goal is not None:
                await opened.schedule(goal, cron or "")
            elif removed is not None:
                await opened.unschedule(removed)
            else:
                return await opened.schedules()
        return ()

    schedules = asyncio.run(change_or_list())
    if goal is not None:
        text = say("Workers run it at these times; `{command}` lists them",
                   command="satchel goal schedule")  # fmt: skip
        _print_change(context, {"scheduled": goal.id}, text, as_json=as_json)
    elif removed is not None:
        text = say("Removed: {names}", names=one_line(removed))
        _print_change(context, {"removed": removed}, text, as_json=as_json)
    else:
        _print_schedules(context, schedules, as_json=as_json)
    return 0


def _require_fitting_words(
    plan_path: str | None, cron: str | None, name: str | None, removed: str | None
) -> None:
    """Refuse words that do not go together, and times that only one of the engines can read."""
    if plan_path is not None and removed is not None:
        raise cannot_combine("PLAN", "--remove")
    if plan_path is None and (cron or name):
        raise needs("--cron" if cron else "--id", "PLAN")
    if plan_path is not None and cron is None:
        raise needs("PLAN", "--cron")
    if cron is not None and not _FIVE_FIELDS.fullmatch(cron):
        raise cron_invalid(one_line(cron))


def _make_goal(context: CliContext, plan_path: str, name: str | None, engine: str | None) -> Goal:
    """Make the goal that is started each time; its steps need the skills and tools of now."""
    plan = read_plan_file(context, plan_path, check_names=True)
    goal = Goal(name or os.path.splitext(os.path.basename(plan_path))[0], plan)
    if not is_shared(context.satchel.settings, engine):
        return goal
    from satchel.agent.tool_steps import ToolSteps

    return goal._replace(versions=ToolSteps(context.satchel).versions_of(plan))


def _print_change(context: CliContext, change: dict[str, str], text: str, *, as_json: bool) -> None:
    if as_json:
        write_json(change)
        return
    context.out.data(*change.values())
    context.err.line("✓ " + text, "green")


def _print_schedules(context: CliContext, schedules: Sequence[Schedule], *, as_json: bool) -> None:
    if as_json:
        write_json([pack(row) for row in schedules])
        return
    if not schedules:
        context.err.line(say("No schedules"))
        return
    cells = [(one_line(row.name), one_line(row.cron), format_time(row.next)) for row in schedules]
    titles = (say("schedule"), say("times"), say("next run"))
    context.out.table(titles, cells, [("bold",)] * len(cells))
