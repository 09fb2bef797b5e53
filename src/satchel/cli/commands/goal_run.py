"""The commands `goal run`, `resume`, `answer`, `retry` and `worker`.

The first four follow the goal until it ends or waits for an answer. A terminal asks for the answer;
elsewhere the command ends with 8 and prints how to answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from satchel.cli import EXIT_INTERRUPTED
from satchel.cli.commands.goal import find_goal, require_step
from satchel.cli.commands.goal_plan import decompose_goal, is_plan, print_planning, read_plan_file
from satchel.cli.context import command, confirm, read_goal
from satchel.cli.goal_engine import (
    is_shared,
    make_runner,
    open_engine,
    read_inputs,
    require_allowed_tools,
    run_options,
)
from satchel.cli.goal_view import print_plan
from satchel.cli.goal_wait import parse_answer, run_to_end, stop_on_interrupt, user_name
from satchel.cli.models import quietly
from satchel.cli.options import (
    AnyPath,
    OneOf,
    WholeNumber,
    allow_tools_option,
    cannot_combine,
    flag_option,
    input_option,
    model_option,
    yes_option,
)
from satchel.errors import Conflict, Refused
from satchel.goals.approvals import retried_plan, unfinished_plan
from satchel.goals.engines.factory import chosen_engine
from satchel.goals.model import OVER, Answer, Goal
from satchel.goals.plan_checks import require_valid
from satchel.i18n import say
from satchel.presentation.goals import worker_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.agent.tool_steps import ToolSteps
    from satchel.cli.context import CliContext
    from satchel.cli.goal_engine import RunOptions
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Plan


@command(
    say("Run a plan, or plan a goal and run it."),
    "satchel goal run week.yaml",
    "satchel goal run week.yaml --input week=46 --id week-46",
    'satchel goal run "report what happened this week"',
)
@click.argument("words", nargs=-1, metavar="GOAL", type=AnyPath())
@click.option(
    "--id",
    "goal_id",
    metavar="ID",
    help=say("The goal's id; the same id and plan is the same goal."),
)
@input_option
@yes_option("unasked")
@flag_option("--detach", say("Run it in the background."))
@run_options
def run(
    context: CliContext,
    words: tuple[str, ...],
    goal_id: str | None,
    inputs: tuple[str, ...],
    unasked: bool,
    options: RunOptions,
) -> int:
    def run_goal() -> int:
        plan = _read_or_make_plan(context, words, inputs, options, unasked=unasked)
        goal = Goal.of(plan)
        goal = goal if goal_id is None else goal._replace(id=goal_id)
        require_valid(goal)
        runner = None
        if _runs_here(context, options):
            if not options.yes:
                require_allowed_tools(context, plan)
            if not options.detach:
                runner = _make_runner(context, options, plan)
        return _run_to_end(
            context, runner, lambda engine: engine.submit(goal), options, goal_id=goal.id
        )

    return stop_on_interrupt(context, run_goal)


def _read_or_make_plan(
    context: CliContext,
    words: tuple[str, ...],
    inputs: tuple[str, ...],
    options: RunOptions,
    *,
    unasked: bool,
) -> Plan:
    """Read a plan file, or let a model make a plan and ask whether to run it."""
    if len(words) == 1 and is_plan(words[0]):
        return read_plan_file(context, words[0], known=True, inputs=inputs)
    text = read_goal(context, words, "satchel goal run")
    if not sys.stdin.isatty() and not unasked:
        raise Refused(
            say("Not a terminal; pass `--yes` to confirm"),
            say("Run `{command}`", command="satchel goal plan … -o plan.yaml"),
        )

    made = decompose_goal(context, text, options.model, pairs=inputs, yes=options.yes)
    print_plan(context.err, made.plan)
    print_planning(context, made)
    if not unasked and not confirm(context, say("Continue?")):
        raise Refused(
            say("Nothing was changed"),
            say("Run `{command}`", command="satchel goal plan … -o plan.yaml"),
        )
    return made.plan


@command(
    say("Continue a goal whose process is gone."),
    "satchel goal resume week-3f9a",
)
@click.argument("goal_id", metavar="GOAL")
@run_options
def resume(context: CliContext, goal_id: str, options: RunOptions) -> int:
    async def begin(engine: Engine) -> GoalReport:
        return await engine.resume((await find_goal(engine, goal_id)).id)

    return _continue_goal(context, goal_id, begin, options)


@command(
    say("Answer a step that waits for you; the goal continues."),
    "satchel goal answer week-3f9a",
    'satchel goal answer week-3f9a review --value "shorter, please"',
    "satchel goal answer week-3f9a review --no",
)
@click.argument("goal_id", metavar="GOAL")
@click.argument("step", required=False)
@flag_option("--no", say("Reject: the step fails."), "refused")
@click.option(
    "--value", metavar="TEXT", help=say("Your answer; default: approve, `-` reads stdin.")
)
@run_options
def answer(
    context: CliContext,
    goal_id: str,
    step: str | None,
    refused: bool,
    value: str | None,
    options: RunOptions,
) -> int:
    if refused and value is not None:
        raise cannot_combine("--no", "--value")

    async def begin(engine: Engine) -> GoalReport:
        report = await find_goal(engine, goal_id)
        name = _waiting_step(report, step)
        text = read_goal(context, [value], "satchel goal answer") if value == "-" else value
        schema = next(one.output for one in report.plan.steps if one.id == name)
        given = Answer(not refused, parse_answer(text, schema), user_name())
        await engine.answer(report.id, name, given)
        return await engine.report(report.id)

    def remaining(report: GoalReport) -> Plan:
        name = _waiting_step(report, step)
        asks = report.steps[name].state == "asking"
        # After a no, nothing that needs the step is run; if it is not waiting, the engine refuses.
        return unfinished_plan(report) if asks and not refused else report.plan._replace(steps=())

    return _continue_goal(context, goal_id, begin, options, remaining)


def _waiting_step(report: GoalReport, step: str | None) -> str:
    """The step to answer: the named one, else the only one that waits."""
    if step is not None:
        require_step(report, step)
        return step
    asking = [name for name, result in report.steps.items() if result.state == "asking"]
    if len(asking) == 1:
        return asking[0]
    if not asking:
        raise Conflict(
            say("No step of `{goal}` waits for an answer", goal=report.id),
            say("Run `{command}`", command=f"satchel goal show {report.id}"),
        )
    raise Conflict(
        say("`{name}` is missing", name="STEP"),
        say("Run `{command}`", command=f"satchel goal answer {report.id} {asking[0]}"),
    )


@command(
    say("Retry the failed steps of a goal, or all from one step on."),
    "satchel goal retry week-3f9a",
    "satchel goal retry week-3f9a --from trends",
    "satchel goal retry week-3f9a --plan week.yaml",
)
@click.argument("goal_id", metavar="GOAL")
@click.option("--from", "from_step", default="", metavar="STEP",
              help=say("Retry this step and all that depend on it."))  # fmt: skip
@click.option("--plan", "path", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("The changed plan."))  # fmt: skip
@input_option
@run_options
def retry(
    context: CliContext,
    goal_id: str,
    from_step: str,
    path: str | None,
    inputs: tuple[str, ...],
    options: RunOptions,
) -> int:
    given = None if path is None else read_plan_file(context, path, known=True, inputs=inputs)

    def changed_plan(report: GoalReport) -> Plan | None:
        # Inputs of the first run are kept unless the new plan has them.
        plan = None
        if given is not None:
            plan = given._replace(inputs={**report.plan.inputs, **given.inputs})
        elif inputs:
            changes = read_inputs(inputs, report.plan)
            plan = report.plan._replace(inputs={**report.plan.inputs, **changes})
        if from_step:
            require_step(report if plan is None else report._replace(steps=dict.fromkeys(
                (step.id for step in plan.steps), report.steps[report.plan.steps[0].id])),
                from_step)  # fmt: skip
        return plan

    def steps_to_run(report: GoalReport) -> Plan:
        return retried_plan(report, from_step, changed_plan(report))

    async def begin(engine: Engine) -> GoalReport:
        report = await find_goal(engine, goal_id)
        plan = changed_plan(report)
        unchanged = report.state == "done" and plan in (None, report.plan)
        if unchanged and not steps_to_run(report).steps:
            return report  # there is nothing to run, so no new revision is made
        return await engine.retry(report.id, from_step=from_step, plan=plan)

    return _continue_goal(context, goal_id, begin, options, steps_to_run)


def _continue_goal(
    context: CliContext,
    goal_id: str,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    options: RunOptions,
    steps_to_run: Callable[[GoalReport], Plan] = unfinished_plan,
) -> int:
    """Continue a stored goal by `begin` and follow it to its end."""

    async def find_report() -> GoalReport:
        async with open_engine(context, options.engine) as engine:
            return await find_goal(engine, goal_id)

    def continue_goal() -> int:
        runner = None
        whole_id = goal_id
        if not is_shared(context.satchel.settings, options.engine):
            report = asyncio.run(find_report())
            whole_id = report.id
            plan = steps_to_run(report)
            if not options.yes and _runs_here(context, options):
                require_allowed_tools(context, plan)
            if not options.detach:
                runner = _make_runner(context, options, plan)
        return _run_to_end(context, runner, begin, options, goal_id=whole_id)

    return stop_on_interrupt(context, continue_goal)


def _make_runner(context: CliContext, options: RunOptions, plan: Plan) -> ToolSteps:
    return make_runner(context, options.model, options.engine, yes=options.yes, plan=plan)


def _runs_here(context: CliContext, options: RunOptions) -> bool:
    """Whether this process, or one that it starts, runs the steps; else workers do."""
    settings = context.satchel.settings
    local = chosen_engine(settings, options.engine)[0] == "local"
    return local or not (options.detach or is_shared(settings, options.engine))


def _run_to_end(
    context: CliContext,
    runner: ToolSteps | None,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    options: RunOptions,
    *,
    goal_id: str,
) -> int:
    engine = open_engine(context, options.engine, runner, only=goal_id)
    shared = is_shared(context.satchel.settings, options.engine)
    here = _runs_here(context, options)

    async def begin_and_report(opened: Engine) -> GoalReport:
        report = await begin(opened)
        if not (here or options.detach or report.state in OVER):
            command = worker_command(context.satchel, report)
            context.err.line(say("Workers run the steps: `{command}`", command=command), "dim")
        return report

    try:
        return run_to_end(context, engine, begin_and_report, options, shared=shared)
    finally:
        if runner is not None:
            runner.close()


@command(
    say("Run goal steps started by other processes."),
    "satchel goal worker --engine dbos",
    "satchel goal worker --engine temporal --drain 120",
)
@click.option(
    "--engine",
    type=OneOf(["dbos", "temporal"]),
    help=say("Default: the setting `engine`."),
)
@model_option()
@allow_tools_option()
@click.option(
    "--drain",
    type=WholeNumber(),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help=say("Seconds that running steps get to end."),
)
def worker(
    context: CliContext,
    engine: str | None,
    model: str | None,
    yes: bool,
    drain: int,
    as_json: bool,
) -> int:
    name = chosen_engine(context.satchel.settings, engine)[0]
    if name == "local":
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )
    with quietly():
        runner = make_runner(context, model, name, yes=yes)
        try:
            return asyncio.run(
                _work(context, open_engine(context, name, runner), name, drain, as_json=as_json)
            )
        finally:
            runner.close()


async def _work(
    context: CliContext,
    engine: Engine,
    name: str,
    drain: int,
    *,
    as_json: bool,
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    at_once = asyncio.Event()

    def on_signal() -> None:
        (at_once if stop.is_set() else stop).set()

    def report(event: str, text: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"event": event}) + "\n")
            sys.stdout.flush()
        context.err.line(text, "dim")
        context.err.stream.flush()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, on_signal)
    async with engine as opened:
        working = asyncio.ensure_future(opened.work(drain=float(drain)))
        report("ready", say("Worker of `{engine}` is ready; Ctrl-C drains it", engine=name))
        waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(at_once.wait())]
        try:
            await asyncio.wait([working, waiting[0]], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working  # raises its error
                return 0
            message = say("Draining, {count} s at most; once more ends it at once", count=drain)
            report("draining", message)
            working.cancel()
            await asyncio.wait([working, waiting[1]], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                os._exit(EXIT_INTERRUPTED)  # engines recover the steps of a killed worker
        finally:
            for one in waiting:
                one.cancel()
        if not working.cancelled() and working.exception() is not None:
            await working
    report("drained", say("Stopped"))
    return 0
