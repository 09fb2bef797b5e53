"""`satchel goal` with its subcommands list, show, cancel and remove."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

import click

from satchel.cli.console import clean, one_line, plural, write_json
from satchel.cli.context import command, confirm_change, group, no_such
from satchel.cli.goal_engine import engine_option, is_shared, open_engine
from satchel.cli.goal_view import (
    STATE_STYLES,
    note_text,
    output_text,
    print_advice,
    print_end,
    print_missing_output,
    print_plan,
    print_steps,
    report_to_dict,
    summary_to_dict,
    whole_outputs,
)
from satchel.cli.options import AnyPath, OneOf, cannot_combine, wrong_form, yes_option
from satchel.errors import NotFound
from satchel.goals.approval_files import waiting_goals
from satchel.goals.engines.base import MAX_BATCH_GOALS, goal_not_over
from satchel.goals.engines.factory import approvals_folder
from satchel.goals.model import FINAL_GOAL_STATES, GoalState
from satchel.goals.plan_graph import order
from satchel.goals.reports import pack
from satchel.i18n import say, similar_names
from satchel.presentation.change_words import join_ids
from satchel.presentation.goals import goal_row, last_steps

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary

_MAX_OUTPUT_CHARS = 4_000
"""Longer output is cut; `--json` and `--step` print all of it."""
_MAX_ROWS, _MAX_JSON_ROWS = 50, 10_000
_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}

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
        "status": "commands.goal_status:status",
        "schedule": "commands.goal_schedule:schedule",
        "answer": "commands.goal_run:answer",
        "retry": "commands.goal_run:retry",
        "resume": "commands.goal_run:resume",
        "cancel": "commands.goal:cancel",
        "remove": "commands.goal:remove",
        "worker": "commands.goal_worker:worker",
    },
    synonyms={
        "start": "run",
        "continue": "resume",
        "approve": "answer",
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
    metavar="STATE",
    help=say("Only goals in this state, such as `asking`; repeatable."),
)
def list_(
    context: CliContext, engine: str | None, states: tuple[GoalState, ...], as_json: bool
) -> int:
    """Print a row for each goal."""
    limit = _MAX_JSON_ROWS if as_json else _MAX_ROWS
    settings = context.satchel.settings
    # Of these the engine says that they run, since their processes wait for an answer.
    waiting_ids = frozenset[str]()
    if not is_shared(settings, engine):
        waiting_ids = waiting_goals(approvals_folder(settings))
    engine_states = (*states, "running") if "asking" in states and waiting_ids else states

    async def load() -> list[GoalSummary]:
        async with open_engine(context, engine) as opened:
            return await opened.list(states=engine_states, limit=limit)

    goals = [
        goal._replace(state="asking") if goal.id in waiting_ids else goal
        for goal in asyncio.run(load())
    ]
    goals = [goal for goal in goals if not states or goal.state in states]
    if len(goals) == limit:
        text = say("Only {count} are shown; see `--json` and `--state`", count=limit)
        context.err.line(text, "dim")
    if as_json:
        write_json([summary_to_dict(goal) for goal in goals])
        return 0
    if not goals:
        context.err.line(say("No goals"))
        return 0
    _print_table(context.out, goals)
    return 0


def _print_table(out: Screen, goals: Sequence[GoalSummary]) -> None:
    rows = [
        (
            row.state.symbol,
            one_line(row.id),
            row.state.label,
            f"{row.done_steps}/{row.steps}",
            row.started,
            one_line(row.goal),
        )
        for row in map(goal_row, goals)
    ]
    styles = [
        (STATE_STYLES[goal.state], "bold", STATE_STYLES[goal.state], "", "dim", "")
        for goal in goals
    ]
    titles = ("", say("goal"), say("state"), say("steps"), say("started"), say("description"))
    out.table(titles, rows, styles)


@command(
    say("Show the steps and output of a goal, or the steps of a plan."),
    "satchel goal show week-3f9a",
    "satchel goal show week-3f9a --step trends",
)
@click.argument("goal_id", metavar="GOAL|PLAN", type=AnyPath())
@click.option("--step", metavar="STEP", help=say("Print only the output."))
@engine_option
def show(
    context: CliContext, goal_id: str, step: str | None, engine: str | None, as_json: bool
) -> int:
    """Print the steps, then the outputs of the last ones."""
    from satchel.cli.commands.goal_plan import is_plan, read_plan_file

    if step is None and is_plan(goal_id):
        plan = read_plan_file(context, goal_id)
        if as_json:
            write_json({"plan": pack(plan)})
        else:
            print_plan(context.out, plan)
        return 0
    report, outputs = asyncio.run(_load_outputs(context, engine, goal_id, step))
    if as_json:
        record = report_to_dict(report)
        for step_record in record["steps"]:
            step_record["output"] = outputs.get(step_record["id"], step_record["output"])
        if step is not None:
            record = next(
                step_record for step_record in record["steps"] if step_record["id"] == step
            )
        write_json(record)
        return 0
    if step is not None:
        context.out.data(output_text(outputs[step]))
        print_missing_output(context.err, report, step)
        return 0
    _print_goal(context, report, outputs, engine)
    return 0


async def _load_outputs(
    context: CliContext, engine: str | None, goal_id: str, step: str | None
) -> tuple[GoalReport, dict[str, Any]]:
    """Return a goal, and the outputs of its steps; large ones are fetched."""
    async with open_engine(context, engine) as opened:
        report = await find_goal(opened, goal_id)
        if step is not None:
            require_step(step, report.steps, report.id)
        results = report.steps if step is None else {step: report.steps[step]}
        return report, await whole_outputs(opened, results)


def require_step(step: str, steps: Collection[str], goal_id: str) -> None:
    """Require that a step is one of a goal's steps.

    Raises:
        NotFound: it has none; the hint names a similar one.
    """
    if step in steps:
        return
    names = similar_names(step, steps)
    raise no_such(say("step"), step, names, f"satchel goal show {goal_id}")


async def find_goal(engine: Engine, goal_id: str) -> GoalReport:
    """Return a goal by its id, or by a unique prefix.

    Raises:
        NotFound: there is none, or there are several.
    """
    try:
        return await engine.report(goal_id)
    except NotFound as exc:
        goal_ids = [goal.id for goal in await engine.list(limit=500)]
        matching_ids = [other for other in goal_ids if other.startswith(goal_id)]
        if len(matching_ids) == 1:
            return await engine.report(matching_ids[0])
        similar_ids = matching_ids or similar_names(goal_id, goal_ids, ratio=0.7)
        raise no_such(say("goal"), goal_id, similar_ids[:5], "satchel goal list") from exc


def _print_goal(
    context: CliContext, report: GoalReport, outputs: dict[str, Any], engine: str | None
) -> None:
    out = context.out
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
            context.err.line(say("Run `{command}`", command=command), "dim")
    for name, result in report.steps.items():
        for note in result.notes:
            context.err.line(f"{name}: {note_text(note)}", "dim")
    for name, result in report.substeps.items():
        if result.state == "failed" and result.error is not None:
            context.err.line(f"{name}: {note_text(result.error.message)}", "dim")
    if report.state in FINAL_GOAL_STATES:
        shared = is_shared(context.satchel.settings, engine)
        suffix = "" if engine is None else f" --engine {engine}"
        print_advice(context, report, suffix, shared=shared)


@command(say("Cancel a goal: running steps are stopped."), "satchel goal cancel week-3f9a")
@click.argument("goal_id", metavar="GOAL")
@engine_option
def cancel(context: CliContext, goal_id: str, engine: str | None, as_json: bool) -> int:
    """Cancel a goal; a finished one is unchanged."""

    async def stop() -> GoalReport:
        async with open_engine(context, engine) as opened:
            report = await find_goal(opened, goal_id)
            if report.state in FINAL_GOAL_STATES:
                return report
            await opened.cancel(report.id)
            return await opened.wait(report.id, timeout=10)

    report = asyncio.run(stop())
    if as_json:
        write_json(report_to_dict(report))
    else:
        print_end(context.err, report)
    return 0


class Age(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A duration such as `90m`, `12h`, `30d` or `8w`, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the duration."""
        del param, ctx
        match = re.fullmatch(r"(\d{1,6})([mhdw])", str(value).strip().lower(), re.ASCII)
        if match is None:
            raise wrong_form("--older", "30d", str(value))
        return int(match[1]) * _UNIT_SECONDS[match[2]]


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

    chosen = asyncio.run(_choose_removable(context, engine, goal_ids, older))
    is_exact = len(chosen) == 1 and (older is not None or chosen[0] in goal_ids)
    needs_answer = bool(chosen) and not yes and not is_exact
    if needs_answer and not _confirm_removal(context, chosen, as_json=as_json):
        context.err.line(say("Nothing was changed"))
        return 0
    removed = asyncio.run(_remove_in_batches(context, engine, chosen))
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


async def _choose_removable(
    context: CliContext, engine: str | None, goal_ids: Sequence[str], older: int | None
) -> Sequence[str]:
    """Return the ids of the named goals, or of those that ended long enough ago."""
    async with open_engine(context, engine) as opened:
        if older is not None:
            return await opened.ended_before(time.time() - older)
        if opened.name == "temporal":
            await opened.forget(goal_ids[0])  # refuses
        ids: list[str] = []
        for name in goal_ids:
            report = await find_goal(opened, name)
            if report.state not in FINAL_GOAL_STATES:
                raise goal_not_over(report.id, report.state)
            ids.append(report.id)
        return list(dict.fromkeys(ids))


async def _remove_in_batches(
    context: CliContext, engine: str | None, goal_ids: Sequence[str]
) -> list[str]:
    """Remove goals, and show the progress when there are many; returns those removed."""
    removed: list[str] = []
    async with open_engine(context, engine) as opened:
        for start in range(0, len(goal_ids), MAX_BATCH_GOALS):
            removed += await opened.forget_all(goal_ids[start : start + MAX_BATCH_GOALS])
            if len(goal_ids) > MAX_BATCH_GOALS:
                goals = plural(len(goal_ids), say("goal"), say("goals"))
                text = say("{count} of {goals} removed", count=f"{len(removed):,}", goals=goals)
                context.err.line(text, "dim")
    return removed


def _confirm_removal(context: CliContext, names: Sequence[str], *, as_json: bool) -> bool:
    if not as_json and sys.stdin.isatty():
        context.err.line(join_ids(names), indent="  ")
    goals = plural(len(names), say("goal"), say("goals"))
    return confirm_change(context, say("Remove {names}?", names=goals), as_json=as_json)
