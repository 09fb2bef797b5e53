"""The commands `goal run`, `resume`, `approve`, `retry`, and `worker`.

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
from satchel.cli.commands.goal_plan import (
    decompose_goal,
    is_plan,
    print_planning,
    read_plan_file,
    refuse_plan_name,
)
from satchel.cli.context import command, confirm
from satchel.cli.goal_engine import (
    complete_hints,
    is_shared,
    make_runner,
    open_engine,
    read_inputs,
    require_allowed_tools,
    run_options,
    worker_command,
)
from satchel.cli.goal_follow import (
    parse_answer,
    run_to_end,
    stop_on_interrupt,
    submit_answer,
    user_name,
)
from satchel.cli.goal_text import read_goal
from satchel.cli.models import quietly
from satchel.cli.options import (
    AnyPath,
    OneOf,
    WholeNumber,
    allow_tools_option,
    flag_option,
    input_option,
    model_option,
)
from satchel.errors import Conflict, InvalidInput, Refused
from satchel.goals.approvals import retried_plan, unfinished_plan
from satchel.goals.model import OVER
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.cli.context import CliContext
    from satchel.cli.goal_engine import LazyStepRunner, RunOptions
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Plan

_EXIT_CODES = say(
    "Exit codes: 0 done, 1 it failed or only part of it is done, 2 the plan is wrong or no model "
    "is chosen, 3 no such goal, 4 refused, 6 an extra is missing, 8 it waits for a person, 70 a "
    "bug in Satchel, 130 stopped by Ctrl-C. With `--json` the report is on stdout, a failure too "
    "as `error`."
)


@command(
    say("Run a plan, or plan a goal and run it.")
    + "\n\n"
    + say(
        "GOAL is a file that ends in `.yaml`, `.yml` or `.json`, or the goal in words: then the "
        "plan is shown first, and you are asked. What the last steps give goes to stdout, the "
        "course of it to stderr."
    ),
    "satchel goal run week.yaml",
    "satchel goal run week.yaml --input week=46 --id week-46",
    'satchel goal run "report what happened this week"',
    "satchel goal run week.yaml --engine dbos",
    more=_EXIT_CODES,
)
@click.argument("words", nargs=-1, metavar="GOAL", type=AnyPath())
@click.option(
    "--id",
    "goal_id",
    metavar="ID",
    help=say("What the goal is called; the same id and plan again is the same goal."),
)
@input_option(say("A value for the plan's inputs."))
@flag_option("--yes", say("Run a plan made of words unasked."), "unasked")
@run_options
def run(
    context: CliContext,
    words: tuple[str, ...],
    goal_id: str | None,
    inputs: tuple[str, ...],
    unasked: bool,
    options: RunOptions,
) -> int:
    from satchel.goals.model import Goal
    from satchel.goals.plan_checks import require_valid

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
    if len(words) == 1:
        refuse_plan_name(words[0])
    text = read_goal(context, words, None, "satchel goal run")
    if not sys.stdin.isatty() and not unasked:
        raise Refused(
            say("Nobody is there to agree to a plan that a model makes"),
            say("Run `satchel goal plan … -o plan.yaml`, read it, and run that; or give `--yes`"),
        )
    from satchel.cli.goal_format import print_plan

    made = decompose_goal(context, text, options.model, pairs=inputs, yes=options.yes)
    print_plan(context.err, made.plan)
    print_planning(context, made)
    if not unasked and not confirm(context, say("Run it?")):
        raise Refused(
            say("The plan was not run"), say("Change it: `satchel goal plan … -o plan.yaml`")
        )
    return made.plan


@command(
    say("Go on with a goal whose process is gone."),
    "satchel goal resume week-3f9a",
    more=say(
        "Steps that are done are not done again. A goal that another process runs is followed "
        "where its engine can."
    )
    + " "
    + _EXIT_CODES,
)
@click.argument("goal_id", metavar="GOAL")
@run_options
def resume(context: CliContext, goal_id: str, options: RunOptions) -> int:
    async def begin(engine: Engine) -> GoalReport:
        return await engine.resume((await find_goal(engine, goal_id)).id)

    return _continue_goal(context, goal_id, begin, options)


@command(
    say("Answer a step that asks a person; the goal goes on.")
    + "\n\n"
    + say(
        "STEP may be left out when only one asks. `--value` is what the step gives: a text, or "
        "JSON when the step says what form its output has."
    ),
    "satchel goal approve week-3f9a --allow-tools",
    'satchel goal approve week-3f9a review --value "shorter, please" --allow-tools',
    'satchel goal approve week-3f9a review --no --note "the numbers are old"',
    more=say(
        "Without `--value`, `--file` and `--no` the answer is a yes. `--allow-tools` is no answer: "
        "it lets the tools of later steps write and use the network, as in `satchel goal run`."
    )
    + " "
    + _EXIT_CODES,
)
@click.argument("goal_id", metavar="GOAL")
@click.argument("step", required=False)
@flag_option("--no", say("Say no: the step fails."), "refused")
@click.option("--value", metavar="TEXT", help=say("What to answer; a yes by default."))
@click.option("--file", metavar="FILE", help=say("Read the answer from a file; `-` is stdin."))
@click.option("--note", default="", metavar="TEXT", help=say("Why, for whoever reads it later."))
@run_options
def approve(
    context: CliContext,
    goal_id: str,
    step: str | None,
    refused: bool,
    value: str | None,
    file: str | None,
    note: str,
    options: RunOptions,
) -> int:
    from satchel.goals.model import Answer

    if refused and (value is not None or file is not None):
        raise InvalidInput(
            say("`--no` says no, and `--value` or `--file` what to answer"),
            say("Leave one of them out; `--note` says why"),
        )
    if value is not None and file is not None:
        raise InvalidInput(
            say("The answer is there twice: `--value` and `--file`"), say("Leave one of them out")
        )

    async def begin(engine: Engine) -> GoalReport:
        report = await find_goal(engine, goal_id)
        name = _waiting_step(report, step)
        text = value if file is None else read_goal(context, (), file, "satchel goal approve")
        schema = next(one.output for one in report.plan.steps if one.id == name)
        answer = Answer(not refused, parse_answer(text, schema), user_name(), note)
        await submit_answer(context, engine, report, name, answer)
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
            say("No step of `{goal}` asks anybody", goal=report.id),
            say("Run `satchel goal show {goal}` to see how far it is", goal=report.id),
        )
    names = listed(f"`{name}`" for name in asking)
    raise Conflict(
        say("Several steps of `{goal}` ask: {names}", goal=report.id, names=names),
        say("Name one: `satchel goal approve {goal} {step}`", goal=report.id, step=asking[0]),
    )


@command(
    say("Do the steps of a goal again that failed, or all from one step on.")
    + "\n\n"
    + say(
        "Results that still hold are kept. With `--plan` the goal goes on with a changed plan: "
        "steps that changed, and all that depend on them, are done again."
    ),
    "satchel goal retry week-3f9a",
    "satchel goal retry week-3f9a --from trends",
    "satchel goal retry week-3f9a --plan week.yaml",
    "satchel goal retry week-3f9a --input week=47",
    more=_EXIT_CODES,
)
@click.argument("goal_id", metavar="GOAL")
@click.option("--from", "from_step", default="", metavar="STEP",
              help=say("Do this step and all that depend on it again."))  # fmt: skip
@click.option("--plan", "path", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("The changed plan."))  # fmt: skip
@input_option(say("Another value for one of the plan's inputs."))
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


def _make_runner(context: CliContext, options: RunOptions, plan: Plan) -> LazyStepRunner:
    return make_runner(context, options.model, options.engine, yes=options.yes, plan=plan)


def _runs_here(context: CliContext, options: RunOptions) -> bool:
    """Whether this process, or one that it starts, runs the steps; else workers do."""
    settings = context.satchel.settings
    local = (options.engine or settings.engine) == "local"
    return local or not (options.detach or is_shared(settings, options.engine))


def _run_to_end(
    context: CliContext,
    runner: LazyStepRunner | None,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    options: RunOptions,
    *,
    goal_id: str,
) -> int:
    engine = open_engine(context, options.engine, runner, only=goal_id)
    shared = is_shared(context.satchel.settings, options.engine)
    here = _runs_here(context, options)
    ignored = not here and (options.yes or options.model is not None)
    if ignored:
        context.err.line(
            say("Workers do the steps: `--allow-tools` and `--model` count where they are started"),
            "yellow",
        )

    async def begin_and_report(opened: Engine) -> GoalReport:
        report = await begin(opened)
        if not (here or ignored or options.detach or report.state in OVER):
            command = worker_command(context, report)
            context.err.line(say("Workers do the steps: `{command}`", command=command), "dim")
        return report

    try:
        return run_to_end(context, engine, begin_and_report, options, shared=shared)
    finally:
        if runner is not None:
            runner.close()


@command(
    say("Do the steps of goals that others began, until told to stop.")
    + "\n\n"
    + say(
        "Start as many as you like, on as many machines as you like: with the same database, or "
        "the same Temporal server. The skills of this project are those that steps may use, so "
        "every worker should have the same."
    ),
    "satchel worker --engine dbos",
    "satchel worker --engine temporal --drain 120",
    more=say(
        "SIGTERM or Ctrl-C drains: no new work is taken, what is begun gets `--drain` seconds to "
        "end, and what is not finished goes on elsewhere. A second one ends it at once. Exit "
        "codes: 0 drained, 4 this engine has no workers, 6 an extra is missing, 130 ended at once."
    ),
)
@click.option(
    "--engine",
    type=OneOf(["dbos", "temporal"]),
    help=say("Whose goals; the setting `engine` by default."),
)
@model_option()
@allow_tools_option()
@click.option(
    "--drain",
    type=WholeNumber(),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help=say("How long begun steps may take to end."),
)
@complete_hints
def worker(
    context: CliContext,
    engine: str | None,
    model: str | None,
    yes: bool,
    drain: int,
    as_json: bool,
) -> int:
    name = engine or context.satchel.settings.engine
    if name == "local":
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )
    with quietly():
        runner = make_runner(context, model, name, yes=yes)
        runner.ready()  # fails before any work is taken
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
                context.err.line(say("Ended at once; what was begun goes on elsewhere"), "yellow")
                context.err.stream.flush()
                os._exit(EXIT_INTERRUPTED)  # engines recover the steps of a killed worker
        finally:
            for one in waiting:
                one.cancel()
        if not working.cancelled() and working.exception() is not None:
            await working
    report("drained", say("Drained"))
    return 0
