"""`satchel goal` with its subcommands list, show, cancel and remove."""

from __future__ import annotations

import asyncio
import difflib
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

import click

from satchel.cli.console import clean, one_line, plural, write_json
from satchel.cli.context import command, confirm_change, group, no_such
from satchel.cli.goal_engine import engine_option, is_shared, open_engine
from satchel.cli.goal_view import (
    STYLES,
    note_text,
    output_text,
    print_advice,
    print_end,
    print_missing_output,
    print_plan,
    print_steps,
    report_dict,
    summary_dict,
    whole_outputs,
)
from satchel.cli.options import (
    AnyPath,
    OneOf,
    cannot_combine,
    wrong_form,
    yes_option,
)
from satchel.errors import NotFound
from satchel.goals.drawing.svg import to_svg
from satchel.goals.engines.base import goal_not_over
from satchel.goals.model import OVER, GoalState
from satchel.goals.plan_checks import order
from satchel.goals.reports import last_event_time, pack
from satchel.i18n import say
from satchel.presentation.change_words import names_of
from satchel.presentation.goals import goal_row, last_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary

_MAX_OUTPUT_CHARS = 4_000
"""Longer output is cut; `--json` and `--step` print all of it."""
_MAX_ROWS, _MAX_JSON_ROWS = 50, 10_000


goal = group(
    "goal",
    say("Plan a goal with a model and run its steps."),
    'satchel goal plan "report what happened this week" -o week.yaml',
    "satchel goal run week.yaml",
    "satchel goal show week-3f9a",
    modules={
        "plan": "commands.goal_plan:plan",
        "run": "commands.goal_run:run",
        "list": "commands.goal:list_",
        "show": "commands.goal:show",
        "answer": "commands.goal_run:answer",
        "retry": "commands.goal_run:retry",
        "resume": "commands.goal_run:resume",
        "cancel": "commands.goal:cancel",
        "remove": "commands.goal:remove",
        "worker": "commands.goal_run:worker",
    },
    synonyms={
        "start": "run",
        "continue": "resume",
        "approve": "answer",
        "status": "show",
        "graph": "show --graph",
        "delete": "remove",
        "stop": "cancel",
        "ls": "list",
        "rm": "remove",
    },
)


@command(
    say("List goals, the latest first."),
    "satchel goal list",
    "satchel goal list --state asking --state failed",
    name="list",
)
@engine_option
@click.option(
    "--state",
    "states",
    multiple=True,
    type=OneOf(get_args(GoalState)),
    help=say("Only goals in this state; repeatable."),
)
def list_(
    session: CliContext,
    engine: str | None,
    states: tuple[GoalState, ...],
    as_json: bool,
) -> int:
    """Print a row for each goal."""
    most = _MAX_JSON_ROWS if as_json else _MAX_ROWS

    async def load() -> list[GoalSummary]:
        async with open_engine(session, engine) as place:
            return await place.list(states=states, limit=most)

    found = asyncio.run(load())
    if len(found) == most:
        text = say("Only {count} are shown; see `--json` and `--state`", count=most)
        session.err.line(text, "dim")
    if as_json:
        write_json([summary_dict(one) for one in found])
        return 0
    if not found:
        session.err.line(say("No goals"))
        return 0
    rows = [
        (
            row.state.mark,
            one_line(row.id),
            row.state.word,
            f"{row.done}/{row.steps}",
            row.begun,
            one_line(row.goal),
        )
        for row in map(goal_row, found)
    ]
    styles = [(STYLES[one.state], "bold", STYLES[one.state], "", "dim", "") for one in found]
    head = ("", say("goal"), say("state"), say("steps"), say("started"), say("description"))
    session.out.table(head, rows, styles)
    return 0


@command(
    say("Show the steps and output of a goal, or the steps of a plan."),
    "satchel goal show week-3f9a",
    "satchel goal show week-3f9a --step trends",
    "satchel goal show week.yaml --graph week.svg",
)
@click.argument("goal_id", metavar="GOAL|PLAN", type=AnyPath())
@click.option("--step", metavar="STEP", help=say("Print only the output."))
@click.option(
    "--graph",
    metavar="[FILE]",
    is_flag=False,
    flag_value="-",
    type=AnyPath(dir_okay=False),
    help=say("Draw the steps as SVG; `-` is stdout."),
)
@engine_option
def show(
    session: CliContext,
    goal_id: str,
    step: str | None,
    graph: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Print the steps, then the outputs of the last ones."""
    if graph is not None:
        return _draw(session, goal_id, graph, engine, as_json=as_json)
    from satchel.cli.commands.goal_plan import is_plan, read_plan_file

    if step is None and is_plan(goal_id):
        plan = read_plan_file(session, goal_id)
        if as_json:
            write_json({"plan": pack(plan)})
        else:
            print_plan(session.out, plan)
        return 0
    report, outputs = asyncio.run(_outputs(session, engine, goal_id, step))
    if as_json:
        whole = report_dict(report)
        for one in whole["steps"]:
            one["output"] = outputs.get(one["id"], one["output"])
        write_json(whole if step is None else next(s for s in whole["steps"] if s["id"] == step))
        return 0
    if step is not None:
        session.out.data(output_text(outputs[step]))
        print_missing_output(session.err, report, step)
        return 0
    _show(session, report, outputs, engine)
    return 0


async def _outputs(
    session: CliContext, engine: str | None, goal_id: str, step: str | None
) -> tuple[GoalReport, dict[str, Any]]:
    """A goal, and the outputs of its steps; large ones are fetched."""
    async with open_engine(session, engine) as place:
        report = await find_goal(place, goal_id)
        if step is not None:
            require_step(report, step)
        wanted = report.steps if step is None else {step: report.steps[step]}
        return report, await whole_outputs(place, wanted)


def require_step(report: GoalReport, step: str) -> None:
    """Require that a goal has a step.

    Raises:
        NotFound: it has none; the hint names a similar one.
    """
    if step in report.steps:
        return
    near = difflib.get_close_matches(step, report.steps, n=1)
    raise no_such(say("step"), step, near, f"satchel goal show {report.id}")


async def find_goal(engine: Engine, goal_id: str) -> GoalReport:
    """Return a goal by its id, or by a unique prefix.

    Raises:
        NotFound: there is none, or there are several.
    """
    try:
        return await engine.report(goal_id)
    except NotFound as exc:
        known = [one.id for one in await engine.list(limit=500)]
        like = [name for name in known if name.startswith(goal_id)]
        if len(like) == 1:
            return await engine.report(like[0])

        near = like or difflib.get_close_matches(goal_id, known, n=1, cutoff=0.7)
        raise no_such(say("goal"), goal_id, near[:5], "satchel goal list") from exc


def _show(
    session: CliContext, report: GoalReport, outputs: dict[str, Any], engine: str | None
) -> None:
    out = session.out
    out.line(f"{report.id}  {one_line(report.plan.goal)}", "bold")
    print_steps(out, order(report.plan), report.steps, now=time.time())
    print_end(out, report)
    for name, result in report.steps.items():
        if result.state == "asking":
            out.title(f"? {name}")
            out.data(clean(str(result.output or "")))
    for name in last_steps(report.plan):
        if report.steps[name].state != "done":
            continue
        out.title(name)
        text = output_text(outputs[name])
        out.data(
            clean(text[:_MAX_OUTPUT_CHARS])
        )  # cleaned even in a pipe: `--step` prints it unchanged
        if len(text) > _MAX_OUTPUT_CHARS:
            command = f"satchel goal show {report.id} --step {name}"
            session.err.line(say("Run `{command}`", command=command), "dim")
    for name, result in report.steps.items():
        for note in result.notes:
            session.err.line(f"{name}: {note_text(note)}", "dim")
    if report.state in OVER:
        shared = is_shared(session.satchel.settings, engine)
        suffix = "" if engine is None else f" --engine {engine}"
        print_advice(session, report, suffix, shared=shared)


@command(
    say("Cancel a goal: running steps are stopped."),
    "satchel goal cancel week-3f9a",
)
@click.argument("goal_id", metavar="GOAL")
@engine_option
def cancel(session: CliContext, goal_id: str, engine: str | None, as_json: bool) -> int:
    """Cancel a goal; a finished one is unchanged."""

    async def stop() -> GoalReport:
        async with open_engine(session, engine) as place:
            report = await find_goal(place, goal_id)
            if report.state in OVER:
                return report
            await place.cancel(report.id)
            return await place.wait(report.id, timeout=10)

    report = asyncio.run(stop())
    if as_json:
        write_json(report_dict(report))
    else:
        print_end(session.err, report)
    return 0


def _draw(session: CliContext, what: str, path: str, engine: str | None, *, as_json: bool) -> int:
    """Write the graph of a plan or a goal to a file, or print it for `-`."""
    from satchel.cli.commands.goal_plan import is_plan, read_plan_file, write_file

    report: GoalReport | None = None
    if path != "-" and not path.lower().endswith(".svg"):
        raise wrong_form("--graph", "FILE.svg", path)
    if is_plan(what):
        plan = read_plan_file(session, what)
    else:
        report, _ = asyncio.run(_outputs(session, engine, what, None))
        plan = report.plan
    text = to_svg(plan, report)
    output = None if path == "-" else path
    if output is not None:
        write_file(output, text)
    if as_json:
        write_json({"format": "svg", "path": output, "text": None if output else text})
    else:
        session.out.data(output or text)
    return 0


_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MAX_GOALS_REMOVED = 10_000
_STATES: tuple[GoalState, ...] = ("done", "failed", "partial", "cancelled", "damaged")


class Age(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A duration such as `90m`, `12h`, `30d` or `8w`, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the duration."""
        del param, ctx
        found = re.fullmatch(r"(\d{1,6})([mhdw])", str(value).strip().lower(), re.ASCII)
        if found is None:
            raise wrong_form("--older", "30d", str(value))
        return int(found[1]) * _UNITS[found[2]]


@command(
    say("Remove finished goals with their journals and output."),
    "satchel goal remove week-3f9a",
    "satchel goal remove --older 30d",
)
@click.argument("goal_ids", metavar="[GOAL…]", nargs=-1)
@click.option(
    "--older",
    metavar="TIME",
    type=Age(),
    help=say("All goals that ended longer ago: `90m`, `12h`, `30d`, `8w`."),
)
@yes_option()
@engine_option
def remove(
    context: CliContext,
    goal_ids: tuple[str, ...],
    older: int | None,
    yes: bool,
    engine: str | None,
    as_json: bool,
) -> int:
    if bool(goal_ids) == (older is not None):
        raise cannot_combine("GOAL", "--older")  # fmt: skip

    async def choose() -> list[str]:
        async with open_engine(context, engine) as opened:
            if opened.name == "temporal":
                await opened.forget(goal_ids[0] if goal_ids else "GOAL")  # refuses
            return await _chosen(opened, goal_ids, older)

    async def forget(names: Sequence[str]) -> None:
        async with open_engine(context, engine) as opened:
            for name in names:
                with suppress(NotFound):  # removed by another process
                    await opened.forget(name)

    removed = asyncio.run(choose())
    exact = len(removed) == 1 and (older is not None or removed[0] in goal_ids)
    if removed and not yes and not exact and not _confirm(context, removed, as_json=as_json):
        context.err.line(say("Nothing was changed"))
        return 0
    asyncio.run(forget(removed))
    if as_json:
        write_json({"removed": removed})
    elif not removed:
        context.err.line(say("No goals"))
    else:
        for name in removed:
            context.out.data(name)
        goals = plural(len(removed), say("goal"), say("goals"))
        context.err.line("✓ " + say("Removed: {names}", names=goals), "green")
    return 0


async def _chosen(engine: Engine, goal_ids: Sequence[str], older: int | None) -> list[str]:
    """Ids of the named goals, or of those that ended long enough ago."""
    found: list[str] = []
    for name in goal_ids:
        report = await find_goal(engine, name)
        if report.state not in OVER:
            raise goal_not_over(report.id, report.state)
        found.append(report.id)
    if older is not None:
        before = time.time() - older
        for one in await engine.list(states=_STATES, before=before, limit=_MAX_GOALS_REMOVED):
            with suppress(NotFound):
                report = await engine.report(one.id)
                # By its steps, where the engine records no end.
                if (report.ended or last_event_time(report)) < before:
                    found.append(one.id)
    return list(dict.fromkeys(found))


def _confirm(context: CliContext, names: Sequence[str], *, as_json: bool) -> bool:
    if not as_json and sys.stdin.isatty():
        context.err.line(names_of(names), "", "  ")
    goals = plural(len(names), say("goal"), say("goals"))
    return confirm_change(context, say("Remove {names}?", names=goals), as_json=as_json)
