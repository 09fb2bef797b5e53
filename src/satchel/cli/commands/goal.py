"""`satchel goal` with its subcommands list, show, cancel and graph.

The other subcommands are in `goal_plan`, `goal_run` and `goal_remove`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import TYPE_CHECKING, Any, get_args

import click

from satchel.cli.console import clean, one_line, write_json
from satchel.cli.context import CliContext, command, group
from satchel.cli.goal_engine import (
    complete_hints,
    engine_option,
    is_shared,
    open_engine,
)
from satchel.cli.goal_format import (
    STYLES,
    note_text,
    output_text,
    print_advice,
    print_end,
    print_missing_output,
    report_dict,
    step_rows,
    summary_dict,
    whole_outputs,
)
from satchel.cli.options import AnyPath, OneOf, WholeNumber
from satchel.errors import InvalidInput
from satchel.goals.engines.factory import other_projects
from satchel.goals.model import OVER, GoalState
from satchel.i18n import listed, say
from satchel.presentation.goals import goal_row, last_steps

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary

_MAX_OUTPUT_CHARS = 4_000
"""Longer output is cut; `--json` and `--step` print all of it."""


@group(
    say("Let a model plan a goal and run its steps, also over crashes and with people in between."),
    'satchel goal plan "report what happened this week" -o week.yaml',
    "satchel goal run week.yaml",
    "satchel goal list",
    "satchel goal show week-3f9a",
    modules={
        "plan": "commands.goal_plan:plan",
        "graph": "commands.goal:graph",
        "run": "commands.goal_run:run",
        "resume": "commands.goal_run:resume",
        "approve": "commands.goal_run:approve",
        "retry": "commands.goal_run:retry",
        "cancel": "commands.goal:cancel",
        "remove": "commands.goal_remove:remove",
        "list": "commands.goal:list_",
        "show": "commands.goal:show",
    },
    headings={
        "plan": say("Plans"),
        "run": say("Let it run"),
        "list": say("Look at it"),
    },
    more=say(
        "A goal is kept by an engine: `local` in your state folder, `dbos` in a database, "
        "`temporal` on a Temporal server. Exit codes: 0 done, 1 it failed, 2 the plan is wrong, "
        "3 no such goal, 4 refused, 6 an extra is missing, 8 it waits for a person, 70 a bug in "
        "Satchel, 130 stopped."
    ),
)
def goal(session: CliContext) -> int:
    """Print help when there is no subcommand."""
    del session
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


goal.synonyms = {
    "start": "run", "continue": "resume", "answer": "approve", "ls": "list", "status": "show",
    "stop": "cancel", "draw": "graph", "decompose": "plan", "redo": "retry",
    "delete": "remove", "rm": "remove", "forget": "remove",
}  # fmt: skip


@command(
    say("Show the goals that an engine keeps, the latest first."),
    "satchel goal list",
    "satchel goal list --state asking --state failed",
    "satchel goal list --json",
    name="list",
)
@engine_option
@click.option(
    "--state",
    "states",
    multiple=True,
    type=OneOf(get_args(GoalState)),
    help=say("Only goals in this state; may be given several times."),
)
@click.option("--all", "everything", is_flag=True,
              help=say("Also those of other projects, with the engine `local`."))  # fmt: skip
@click.option(
    "--limit",
    type=WholeNumber(1),
    default=50,
    show_default=True,
    help=say("Goals that are shown at most."),
)
@complete_hints
def list_(
    session: CliContext,
    engine: str | None,
    states: tuple[GoalState, ...],
    everything: bool,
    limit: int,
    as_json: bool,
) -> int:
    """Print a row for each goal."""
    from satchel.goals.engines.local import LocalEngine

    settings = session.satchel.settings
    local = (engine or settings.engine) == "local"

    async def load() -> list[tuple[GoalSummary, str]]:
        async with open_engine(session, engine) as place:
            rows = [(one, settings.project) for one in await place.list(states=states, limit=limit)]
        for project, folder in other_projects(settings).items() if local and everything else ():
            async with LocalEngine(folder=folder) as place:
                rows += [(one, project) for one in await place.list(states=states, limit=limit)]
        return sorted(rows, key=lambda row: -row[0].started)[:limit] if everything else rows

    found = asyncio.run(load())
    if as_json:
        write_json([{**summary_dict(one), "project": project} for one, project in found])
        return 0
    if not found:
        names = listed(f"`{state}`" for state in states)
        words = say("No goal here has the state {states}", states=names) if states else ""
        session.err.line(words or say("There are no goals here yet"))
        return 0
    _table(session, found)
    if everything and local:
        _print_other_projects(session, found)
    if len(found) == limit:
        session.err.line(say("Only {count} are shown; `--limit` shows more", count=limit), "dim")
    return 0


def _print_other_projects(session: CliContext, found: list[tuple[GoalSummary, str]]) -> None:
    """Print which goals belong to which other project."""
    goals: dict[str, list[str]] = {}
    for one, project in found:
        if project != session.satchel.settings.project:
            goals.setdefault(project, []).append(one_line(one.id))
    for project, names in goals.items():
        words = say("Of `{project}`: {names}", project=one_line(project), names=listed(names))
        session.err.line(words, "dim")


def _table(session: CliContext, found: list[tuple[GoalSummary, str]]) -> None:
    """With a project column if there are several: ids may repeat."""
    several = len({project for _, project in found}) > 1
    rows = [
        (
            row.state.mark,
            one_line(row.id),
            row.state.word,
            f"{row.done}/{row.steps}",
            row.begun,
            *([one_line(os.path.basename(project))] if several else ()),
            one_line(row.goal),
        )
        for row, project in ((goal_row(one), project) for one, project in found)
    ]
    styles = [(STYLES[one.state], "bold", STYLES[one.state], "", "dim", "") for one, _ in found]
    head = ("", say("goal"), say("state"), say("steps"), say("started"),
            *([say("project")] if several else ()), say("what it is for"))  # fmt: skip
    session.out.table(head, rows, styles)


@command(
    say("Show how far a goal is, and what its steps gave."),
    "satchel goal show week-3f9a",
    "satchel goal show week-3f9a --step trends",
    "satchel goal show week-3f9a --json",
    more=say("With `--step` the output of that step goes to stdout, whole, and nothing else does."),
)
@click.argument("goal_id", metavar="GOAL")
@click.option("--step", metavar="STEP", help=say("Only the output of this step."))
@engine_option
@complete_hints
def show(
    session: CliContext, goal_id: str, step: str | None, engine: str | None, as_json: bool
) -> int:
    """Print the steps, then the outputs of the last ones."""
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
    import difflib

    from satchel.errors import NotFound

    if step in report.steps:
        return
    near = difflib.get_close_matches(step, report.steps, n=1)
    raise NotFound(
        say("`{goal}` has no step `{step}`", goal=report.id, step=one_line(step)),
        say("Did you mean {names}?", names=f"`{near[0]}`")
        if near
        else say("Run `satchel goal show {goal}` to see its steps", goal=report.id),
    )


async def find_goal(engine: Engine, goal_id: str) -> GoalReport:
    """Return a goal by its id, or by a unique prefix.

    Raises:
        NotFound: there is none, or there are several.
    """
    from satchel.errors import NotFound

    try:
        return await engine.report(goal_id)
    except NotFound as exc:
        known = [one.id for one in await engine.list(limit=500)]
        like = [name for name in known if name.startswith(goal_id)]
        if len(like) == 1:
            return await engine.report(like[0])
        raise NotFound(
            say("The engine `{engine}` keeps no goal `{goal}`",
                engine=engine.name, goal=one_line(goal_id)),
            say("Several begin so: run `satchel goal list`")
            if like
            else _where(engine, goal_id, known),
        ) from exc  # fmt: skip


def _where(engine: Engine, goal_id: str, known: list[str]) -> str:
    """The hint for a goal that was not found."""
    import difflib

    near = difflib.get_close_matches(goal_id, known, n=1, cutoff=0.7)
    if near:
        return say("Did you mean {names}?", names=f"`{near[0]}`")
    session = click.get_current_context().find_object(CliContext)
    if engine.name == "local" and session is not None and re.fullmatch(r"[\w.-]+", goal_id):
        for project, folder in other_projects(session.satchel.settings).items():
            if os.path.isdir(os.path.join(folder, "goals", goal_id)):
                return say("It is of another project: `satchel --project {project} goal …`",
                           project=one_line(project))  # fmt: skip
    return say("Run `satchel goal list`, or name another engine with `--engine`")


def _show(
    session: CliContext, report: GoalReport, outputs: dict[str, Any], engine: str | None
) -> None:
    from satchel.goals.plan_checks import order

    out = session.out
    out.line(f"{report.id}  {one_line(report.plan.goal)}", "bold")
    for row in step_rows(out, order(report.plan), report.steps, now=time.time()):
        out.write(f"{row}\n")
    print_end(out, report)
    if (
        report.state == "running"
        and report.engine == "dbos"
        and not is_shared(session.satchel.settings, report.engine)
    ):
        words = say("Should its process be gone: `satchel goal resume {goal} --engine dbos`, or a "
                    "`satchel worker`", goal=report.id)  # fmt: skip
        session.err.line(words, "dim")
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
            words = say("… {count} more characters: `satchel goal show {goal} --step {step}`",
                        count=len(text) - _MAX_OUTPUT_CHARS, goal=report.id, step=name)  # fmt: skip
            session.err.line(words, "dim")
    for name, result in report.steps.items():
        for note in result.notes:
            session.err.line(f"{name}: {note_text(note)}", "dim")
    if report.state in OVER:
        shared = is_shared(session.satchel.settings, engine)
        suffix = "" if engine is None else f" --engine {engine}"
        print_advice(session, report, suffix, shared=shared)


@command(
    say("Stop a goal: running steps are ended, the others never begin."),
    "satchel goal cancel week-3f9a",
)
@click.argument("goal_id", metavar="GOAL")
@engine_option
@complete_hints
def cancel(session: CliContext, goal_id: str, engine: str | None, as_json: bool) -> int:
    """Cancel a goal; a finished one is unchanged."""

    async def stop() -> tuple[GoalReport, GoalReport]:
        async with open_engine(session, engine) as place:
            before = await find_goal(place, goal_id)
            if before.state in OVER:
                return before, before
            await place.cancel(before.id)
            return before, await place.wait(before.id, timeout=10)

    before, after = asyncio.run(stop())
    if as_json:
        write_json(report_dict(after))
    elif before.state in OVER:
        session.err.line(say("`{goal}` is over already", goal=after.id))
    else:
        print_end(session.err, after)
    return 0


@command(
    say("Draw a plan, or a goal as far as it is."),
    "satchel goal graph week.yaml -o week.svg",
    "satchel goal graph week.yaml --format mermaid",
    "satchel goal graph week-3f9a",
    more=say("What ends in `.yaml`, `.yml` or `.json` is a plan, anything else a goal."),
)
@click.argument("what", metavar="PLAN|GOAL", type=AnyPath())
@click.option(
    "--format",
    "form",
    type=OneOf(["svg", "mermaid"]),
    help=say("By default as the file is called, else `svg`."),
)
@click.option("-o", "--output", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("Write it there instead of to stdout."))  # fmt: skip
@engine_option
@complete_hints
def graph(
    session: CliContext,
    what: str,
    form: str | None,
    output: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Print the drawing, or the path it is written to."""
    from satchel.cli.commands.goal_plan import is_plan, read_plan_file, write_file
    from satchel.goals.drawing.svg import to_mermaid, to_svg

    report: GoalReport | None = None
    if output is not None and not output.lower().endswith((".svg", ".mmd", ".md", ".txt")):
        raise InvalidInput(
            say("`{path}` is no name for a drawing: it is SVG or Mermaid", path=one_line(output)),
            say("Let it end in `.svg`, `.mmd`, `.md` or `.txt`"),
        )
    if is_plan(what):
        plan = read_plan_file(session, what)
    else:
        report, _ = asyncio.run(_outputs(session, engine, what, None))
        plan = report.plan
    chosen = form or ("mermaid" if (output or "").endswith((".mmd", ".md")) else "svg")
    text = to_svg(plan, report) if chosen == "svg" else to_mermaid(plan, report)
    if output is not None:
        write_file(output, text)
    if as_json:
        write_json({"format": chosen, "path": output, "text": None if output else text})
    elif output is not None:
        session.out.data(output)
    else:
        session.out.write(text)
    return 0
