"""The commands `goal run`, `resume`, `answer` and `retry`.

They follow the goal until it ends or waits for an answer. A terminal asks for the answer; elsewhere
the command ends with 8 and prints how to answer.

Each command passes its change of the goal to `_GoalRun` as a function, since the engine is opened
later, with the runner for the steps that remain.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

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
from satchel.cli.options import (
    AnyPath,
    WholeNumber,
    cannot_combine,
    flag_option,
    input_option,
    yes_option,
)
from satchel.errors import Conflict, Refused
from satchel.goals.approval_files import FileApproval
from satchel.goals.approvals import retried_plan, unfinished_plan
from satchel.goals.engines.factory import approvals_folder, chosen_engine
from satchel.goals.model import (
    DEFAULT_PRIORITY,
    FINAL_GOAL_STATES,
    MAX_PRIORITY,
    Answer,
    Goal,
)
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
    from satchel.session.permissions import Approve


@command(
    say("Run a plan, or plan a goal and run it."),
    "satchel goal run week.yaml",
    "satchel goal run week.yaml --input week=46 --id week-46",
    'satchel goal run "report what happened this week"',
)
@click.argument("goal_words", nargs=-1, metavar="GOAL", type=AnyPath())
@click.option(
    "--id",
    "goal_id",
    metavar="ID",
    help=say("The goal's id; the same id and plan is the same goal."),
)
@input_option
@yes_option()
@flag_option("--detach", say("Run it in the background."))
@flag_option(
    "--latest", say("Let workers run skills and tools in any version, not in the one of now.")
)
@click.option(
    "--priority",
    type=WholeNumber(1, MAX_PRIORITY),
    default=DEFAULT_PRIORITY,
    show_default=True,
    metavar="N",
    help=say("From 1 (first) to 5, when many goals wait for workers."),
)
@run_options
def run(
    context: CliContext,
    goal_words: tuple[str, ...],
    goal_id: str | None,
    inputs: tuple[str, ...],
    yes: bool,
    latest: bool,
    priority: int,
    options: RunOptions,
) -> int:
    def run_goal() -> int:
        plan = _read_or_make_plan(context, goal_words, inputs, options, yes=yes)
        goal = Goal.of(plan)._replace(priority=priority)
        goal = goal if goal_id is None else goal._replace(id=goal_id)
        require_valid(goal)
        goal_run = _GoalRun(context, options)
        return goal_run.submit(
            goal if latest else goal._replace(versions=goal_run.versions_of(plan) or {})
        )

    return stop_on_interrupt(context, run_goal)


def _read_or_make_plan(
    context: CliContext,
    goal_words: tuple[str, ...],
    inputs: tuple[str, ...],
    options: RunOptions,
    *,
    yes: bool,
) -> Plan:
    """Read a plan file, or let a model make a plan and ask whether to run it."""
    if len(goal_words) == 1 and is_plan(goal_words[0]):
        return read_plan_file(context, goal_words[0], check_names=True, inputs=inputs)
    text = read_goal(context, goal_words, "satchel goal run")
    if not sys.stdin.isatty() and not yes:
        raise Refused(
            say("Not a terminal; pass `--yes` to confirm"),
            say("Run `{command}`", command="satchel goal plan … -o plan.yaml"),
        )

    decomposed = decompose_goal(
        context, text, options.model, pairs=inputs, allow_tools=options.allow_tools
    )
    print_plan(context.err, decomposed.plan)
    print_planning(context, decomposed)
    if not yes and not confirm(context, say("Continue?")):
        raise Refused(
            say("Nothing was changed"),
            say("Run `{command}`", command="satchel goal plan … -o plan.yaml"),
        )
    return decomposed.plan


@command(say("Continue a goal whose process is gone."), "satchel goal resume week-3f9a")
@click.argument("goal_id", metavar="GOAL")
@click.option("--ask-in-browser", is_flag=True, hidden=True)
@run_options
def resume(context: CliContext, goal_id: str, options: RunOptions) -> int:
    async def resume_goal(engine: Engine) -> GoalReport:
        return await engine.resume((await find_goal(engine, goal_id)).id)

    return _continue_goal(context, options, goal_id, resume_goal)


@command(
    say("Answer a step that waits for you; the goal continues."),
    "satchel goal answer week-3f9a",
    'satchel goal answer week-3f9a review --value "shorter, please"',
    "satchel goal answer week-3f9a review --no",
)
@click.argument("goal_id", metavar="GOAL")
@click.argument("step", required=False)
@flag_option("--no", say("Reject: the step fails."), "is_rejected")
@click.option(
    "--value", metavar="TEXT", help=say("Your answer; default: approve, `-` reads stdin.")
)
@run_options
def answer(
    context: CliContext,
    goal_id: str,
    step: str | None,
    is_rejected: bool,
    value: str | None,
    options: RunOptions,
) -> int:
    if is_rejected and value is not None:
        raise cannot_combine("--no", "--value")

    async def send_answer(engine: Engine) -> GoalReport:
        report = await find_goal(engine, goal_id)
        waiting_step = _find_waiting_step(report, step)
        text = read_goal(context, [value], "satchel goal answer") if value == "-" else value
        schema = next(
            plan_step.output for plan_step in report.plan.steps if plan_step.id == waiting_step
        )
        reply = Answer(not is_rejected, parse_answer(text, schema), user_name())
        await engine.answer(report.id, waiting_step, reply)
        return await engine.report(report.id)

    def remaining_plan(report: GoalReport) -> Plan:
        waiting_step = _find_waiting_step(report, step)
        is_waiting = report.steps[waiting_step].state == "asking"
        if is_waiting and not is_rejected:
            return unfinished_plan(report)
        # After a no, nothing that needs the step is run; if it is not waiting, the engine refuses.
        return report.plan._replace(steps=())

    return _continue_goal(context, options, goal_id, send_answer, remaining_plan)


def _find_waiting_step(report: GoalReport, step: str | None) -> str:
    """Return the step to answer: the named one, else the only one that waits."""
    if step is not None:
        require_step(step, report.steps, report.id)
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
@click.option("--plan", "plan_path", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("The changed plan."))  # fmt: skip
@input_option
@run_options
def retry(
    context: CliContext,
    goal_id: str,
    from_step: str,
    plan_path: str | None,
    inputs: tuple[str, ...],
    options: RunOptions,
) -> int:
    plan_of_file = None
    if plan_path is not None:
        plan_of_file = read_plan_file(context, plan_path, check_names=True, inputs=inputs)

    def new_plan(report: GoalReport) -> Plan | None:
        plan = _merge_inputs(report, plan_of_file, inputs)
        if from_step:
            steps = report.steps if plan is None else [step.id for step in plan.steps]
            require_step(from_step, steps, report.id)
        return plan

    def remaining_plan(report: GoalReport) -> Plan:
        return retried_plan(report, from_step, new_plan(report))

    async def retry_steps(engine: Engine) -> GoalReport:
        report = await find_goal(engine, goal_id)
        plan = new_plan(report)
        is_unchanged = report.state == "done" and plan in (None, report.plan)
        if is_unchanged and not retried_plan(report, from_step, plan).steps:
            return report  # there is nothing to run, so no new revision is made
        versions = _GoalRun(context, options).versions_of(plan or report.plan)
        return await engine.retry(report.id, from_step=from_step, plan=plan, versions=versions)

    return _continue_goal(context, options, goal_id, retry_steps, remaining_plan)


def _merge_inputs(
    report: GoalReport, plan_of_file: Plan | None, inputs: tuple[str, ...]
) -> Plan | None:
    """Return the plan of the file, or that of the goal with new inputs; None when neither is given.

    Inputs of the first run are kept unless the new plan has them.
    """
    if plan_of_file is not None:
        return plan_of_file._replace(inputs={**report.plan.inputs, **plan_of_file.inputs})
    if inputs:
        changes = read_inputs(inputs, report.plan)
        return report.plan._replace(inputs={**report.plan.inputs, **changes})
    return None


def _continue_goal(
    context: CliContext,
    options: RunOptions,
    goal_id: str,
    change_goal: Callable[[Engine], Awaitable[GoalReport]],
    remaining_plan: Callable[[GoalReport], Plan] = unfinished_plan,
) -> int:
    def continue_goal() -> int:
        return _GoalRun(context, options).continue_goal(goal_id, change_goal, remaining_plan)

    return stop_on_interrupt(context, continue_goal)


class _GoalRun:
    """Starts or continues a goal as the options say, and follows it to its end.

    Who runs the steps: this process; with `--detach` and the engine `local`, a process that is
    started in the background; workers, if the engine is shared, or with `--detach` and another
    engine.
    """

    def __init__(self, context: CliContext, options: RunOptions) -> None:
        settings = context.satchel.settings
        is_local = chosen_engine(settings, options.engine)[0] == "local"
        self._context = context
        self._options = options
        self._is_shared = is_shared(settings, options.engine)
        self._runs_here = is_local or not (options.detach or self._is_shared)

    def versions_of(self, plan: Plan) -> dict[str, str] | None:
        """The present digests of a plan's skills and tools, if workers run it; else None."""
        if not self._is_shared:
            return None
        from satchel.agent.tool_steps import ToolSteps

        return ToolSteps(self._context.satchel).versions_of(plan)

    def submit(self, goal: Goal) -> int:
        """Run a new goal; returns the exit code."""

        async def submit_goal(engine: Engine) -> GoalReport:
            return await engine.submit(goal)

        runner = None
        if self._runs_here:
            if not self._options.allow_tools:
                require_allowed_tools(self._context, goal.plan)
            if not self._options.detach:
                runner = self._make_runner(goal.plan)
        return self._follow(goal.id, submit_goal, runner)

    def continue_goal(
        self,
        goal_id: str,
        change_goal: Callable[[Engine], Awaitable[GoalReport]],
        remaining_plan: Callable[[GoalReport], Plan],
    ) -> int:
        """Continue a stored goal by `change_goal`; returns the exit code.

        The engine is opened twice: first for the report, whose remaining plan decides which tools
        and which model the runner needs, then with that runner.
        """
        runner = None
        if not self._is_shared:
            report = asyncio.run(self._find_report(goal_id))
            goal_id = report.id
            plan = remaining_plan(report)
            is_decided = self._options.allow_tools or self._options.ask_in_browser
            if self._runs_here and not is_decided:
                require_allowed_tools(self._context, plan)
            if not self._options.detach:
                runner = self._make_runner(plan, goal_id)
        return self._follow(goal_id, change_goal, runner)

    async def _find_report(self, goal_id: str) -> GoalReport:
        async with open_engine(self._context, self._options.engine) as engine:
            return await find_goal(engine, goal_id)

    def _make_runner(self, plan: Plan, goal_id: str = "") -> ToolSteps:
        options = self._options
        approve: Approve = True if options.allow_tools else None
        if options.ask_in_browser and not options.allow_tools:
            approve = FileApproval(approvals_folder(self._context.satchel.settings, goal_id))
        return make_runner(self._context, options.model, options.engine, approve=approve, plan=plan)

    def _follow(
        self,
        goal_id: str,
        change_goal: Callable[[Engine], Awaitable[GoalReport]],
        runner: ToolSteps | None,
    ) -> int:
        context = self._context
        engine = open_engine(context, self._options.engine, runner, only=goal_id)

        async def change_and_report(opened: Engine) -> GoalReport:
            report = await change_goal(opened)
            waits_for_workers = not (self._runs_here or self._options.detach)
            if waits_for_workers and report.state not in FINAL_GOAL_STATES:
                command = worker_command(context.satchel, report)
                context.err.line(say("Workers run the steps: `{command}`", command=command), "dim")
            return report

        try:
            return run_to_end(
                context, engine, change_and_report, self._options, shared=self._is_shared
            )
        finally:
            if runner is not None:
                runner.close()
