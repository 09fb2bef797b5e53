"""Which goals are there, and how far are they? goal, with list, show, cancel and graph.

`goal_plans` has `plan`; `goal_runs` has what lets a goal go on; `goal_removing` has `remove`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import TYPE_CHECKING, Any, get_args

import click

from satchel._language import listed, say
from satchel.cli.goal_engines import (
    complete_hints,
    engine_option,
    is_shared,
    open_engine,
    other_projects,
)
from satchel.cli.output import clean, one_line, write_json
from satchel.cli.session import Session, command, group
from satchel.cli.values import AnyPath, OneOf, WholeNumber
from satchel.errors import InvalidInput
from satchel.goals.model import OVER, GoalState

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary, Plan

_SHOWN = 4_000
"""Characters of a step's output that people are shown; `--json` and `--step` have all of it."""


@group(
    say("Let a model plan a goal and run its steps, also over crashes and with people in between."),
    'satchel goal plan "report what happened this week" -o week.yaml',
    "satchel goal run week.yaml",
    "satchel goal list",
    "satchel goal show week-3f9a",
    places={
        "plan": "goal_plans:plan",
        "graph": "goals:graph",
        "run": "goal_runs:run",
        "resume": "goal_runs:resume",
        "approve": "goal_runs:approve",
        "retry": "goal_runs:retry",
        "cancel": "goals:cancel",
        "remove": "goal_removing:remove",
        "list": "goals:list_",
        "show": "goals:show",
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
def goal(session: Session) -> int:
    """Without a command, help is shown."""
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
    session: Session,
    engine: str | None,
    states: tuple[GoalState, ...],
    everything: bool,
    limit: int,
    as_json: bool,
) -> int:
    """A row for each goal on stdout."""
    from satchel.cli.goal_words import summary_dict
    from satchel.goals.engines.local import LocalEngine

    settings = session.satchel.settings
    local = (engine or settings.engine) == "local"

    async def look() -> list[tuple[GoalSummary, str]]:
        async with open_engine(session, engine) as place:
            rows = [(one, settings.project) for one in await place.list(states=states, limit=limit)]
        for project, folder in other_projects(settings).items() if local and everything else ():
            async with LocalEngine(folder=folder) as place:
                rows += [(one, project) for one in await place.list(states=states, limit=limit)]
        return sorted(rows, key=lambda row: -row[0].started)[:limit] if everything else rows

    found = asyncio.run(look())
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
        _of_others(session, found)
    if len(found) == limit:
        session.err.line(say("Only {count} are shown; `--limit` shows more", count=limit), "dim")
    return 0


def _of_others(session: Session, found: list[tuple[GoalSummary, str]]) -> None:
    """Which goals of the list are of which other project."""
    goals: dict[str, list[str]] = {}
    for one, project in found:
        if project != session.satchel.settings.project:
            goals.setdefault(project, []).append(one_line(one.id))
    for project, names in goals.items():
        words = say("Of `{project}`: {names}", project=one_line(project), names=listed(names))
        session.err.line(words, "dim")


def _table(session: Session, found: list[tuple[GoalSummary, str]]) -> None:
    """Rows; with the project of each where there are several: they may use the same ids."""
    from satchel.cli.goal_words import GOAL_MARKS, STYLES
    from satchel.goals.drawing.words import state_word

    several = len({project for _, project in found}) > 1
    rows = [
        (
            GOAL_MARKS[one.state],
            one_line(one.id),
            state_word(one.state),
            f"{one.done}/{one.steps}",
            _when(one.started),
            *([one_line(os.path.basename(project))] if several else ()),
            one_line(one.goal),
        )
        for one, project in found
    ]
    styles = [(STYLES[one.state], "bold", STYLES[one.state], "", "dim", "") for one, _ in found]
    head = ("", say("goal"), say("state"), say("steps"), say("started"),
            *([say("project")] if several else ()), say("what it is for"))  # fmt: skip
    session.out.table(head, rows, styles)


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) if moment else ""


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
    session: Session, goal_id: str, step: str | None, engine: str | None, as_json: bool
) -> int:
    """The steps, then what the last ones gave."""
    from satchel.cli.goal_words import report_dict, told_step

    report, outputs = asyncio.run(_outputs(session, engine, goal_id, step))
    if as_json:
        whole = report_dict(report)
        for one in whole["steps"]:
            one["output"] = outputs.get(one["id"], one["output"])
        write_json(whole if step is None else next(s for s in whole["steps"] if s["id"] == step))
        return 0
    if step is not None:
        session.out.data(as_text(outputs[step]))
        told_step(session.err, report, step)
        return 0
    _show(session, report, outputs, engine)
    return 0


async def _outputs(
    session: Session, engine: str | None, goal_id: str, step: str | None
) -> tuple[GoalReport, dict[str, Any]]:
    """A goal, and the outputs of its steps as they are: those that lie elsewhere are fetched."""
    async with open_engine(session, engine) as place:
        report = await find(place, goal_id)
        if step is not None:
            known_step(report, step)
        wanted = report.steps if step is None else {step: report.steps[step]}
        return report, await whole_outputs(place, wanted)


async def whole_outputs(engine: Engine, steps: Any) -> dict[str, Any]:
    """Step id -> its output; large ones are fetched from where they lie."""
    from satchel.goals.artefacts import load

    return {name: await load(result.output, engine.artefacts) for name, result in steps.items()}


def known_step(report: GoalReport, step: str) -> None:
    """Make sure that a goal has a step.

    Raises:
        NotFound: it has not; the hint names one that is like it.
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


async def find(engine: Engine, goal_id: str) -> GoalReport:
    """A goal by its id, or by its beginning when only one goal begins so.

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
    """Where a goal may be that is not here."""
    import difflib

    near = difflib.get_close_matches(goal_id, known, n=1, cutoff=0.7)
    if near:
        return say("Did you mean {names}?", names=f"`{near[0]}`")
    session = click.get_current_context().find_object(Session)
    if engine.name == "local" and session is not None and re.fullmatch(r"[\w.-]+", goal_id):
        for project, folder in other_projects(session.satchel.settings).items():
            if os.path.isdir(os.path.join(folder, "goals", goal_id)):
                return say("It is of another project: `satchel --project {project} goal …`",
                           project=one_line(project))  # fmt: skip
    return say("Run `satchel goal list`, or name another engine with `--engine`")


def _show(
    session: Session, report: GoalReport, outputs: dict[str, Any], engine: str | None
) -> None:
    from satchel.cli.goal_words import step_rows, told_advice, told_end, told_note
    from satchel.goals.wiring import order

    out = session.out
    out.line(f"{report.id}  {one_line(report.plan.goal)}", "bold")
    for row in step_rows(out, order(report.plan), report.steps, now=time.time()):
        out.write(f"{row}\n")
    told_end(out, report)
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
        text = as_text(outputs[name])
        out.data(clean(text[:_SHOWN]))  # for people, also through a pipe: `--step` has it as it is
        if len(text) > _SHOWN:
            words = say("… {count} more characters: `satchel goal show {goal} --step {step}`",
                        count=len(text) - _SHOWN, goal=report.id, step=name)  # fmt: skip
            session.err.line(words, "dim")
    for name, result in report.steps.items():
        for note in result.notes:
            session.err.line(f"{name}: {told_note(note)}", "dim")
    if report.state in OVER:
        shared = is_shared(session.satchel.settings, engine)
        suffix = "" if engine is None else f" --engine {engine}"
        told_advice(session, report, suffix, shared=shared)


def last_steps(plan: Plan) -> list[str]:
    """The steps that no other needs: what they give is what the goal gives."""
    from satchel.goals.wiring import needs_in

    needed = {need for needs in needs_in(plan).values() for need in needs}
    return [step.id for step in plan.steps if step.id not in needed]


def as_text(output: Any) -> str:
    """An output as people read it."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    import json

    return json.dumps(output, ensure_ascii=False, indent=2)


@command(
    say("Stop a goal: running steps are ended, the others never begin."),
    "satchel goal cancel week-3f9a",
)
@click.argument("goal_id", metavar="GOAL")
@engine_option
@complete_hints
def cancel(session: Session, goal_id: str, engine: str | None, as_json: bool) -> int:
    """Nothing happens to a goal that is over."""

    async def stop() -> tuple[GoalReport, GoalReport]:
        async with open_engine(session, engine) as place:
            before = await find(place, goal_id)
            if before.state in OVER:
                return before, before
            await place.cancel(before.id)
            return before, await place.wait(before.id, timeout=10)

    before, after = asyncio.run(stop())
    if as_json:
        from satchel.cli.goal_words import report_dict

        write_json(report_dict(after))
    elif before.state in OVER:
        session.err.line(say("`{goal}` is over already", goal=after.id))
    else:
        from satchel.cli.goal_words import told_end

        told_end(session.err, after)
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
    session: Session,
    what: str,
    form: str | None,
    output: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """The picture on stdout, or its path."""
    from satchel.cli.goal_plans import is_plan, read_plan_file, write_file
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
