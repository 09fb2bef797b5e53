"""How does a goal go on? goal run, resume, approve and retry.

All four end alike: the goal is followed until it is over or asks a person. In a terminal the person
is asked right there; elsewhere the command ends with 8 and says how to answer.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, say
from satchel.cli.goal_engines import (
    complete_hints,
    engine_option,
    is_shared,
    make_runner,
    model_options,
    must_be_allowed,
    open_engine,
    read_inputs,
    worker_command,
)
from satchel.cli.goal_following import (
    as_value,
    carry_on,
    detach_option,
    give_answer,
    run_to_end,
    user_name,
)
from satchel.cli.goal_plans import is_plan, must_be_no_plan, read_plan_file
from satchel.cli.goals import find, known_step
from satchel.cli.session import command, yes_or_no
from satchel.cli.values import AnyPath, OneOf, WholeNumber
from satchel.errors import Conflict, InvalidInput, Refused
from satchel.goals.model import OVER
from satchel.goals.permission import done_again, not_done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.cli.goal_engines import LateSteps
    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import Goal, GoalReport, Plan

_CODES = say(
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
    more=_CODES,
)
@click.argument("words", nargs=-1, metavar="GOAL", type=AnyPath())
@click.option(
    "--id",
    "goal_id",
    metavar="ID",
    help=say("What the goal is called; the same id and plan again is the same goal."),
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE",
              help=say("A value for the plan's inputs."))  # fmt: skip
@click.option("--yes", "unasked", is_flag=True, help=say("Run a plan made of words unasked."))
@engine_option
@detach_option
@model_options
@complete_hints
def run(
    session: Session,
    words: tuple[str, ...],
    goal_id: str | None,
    inputs: tuple[str, ...],
    unasked: bool,
    engine: str | None,
    detach: bool,
    model: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """One goal, from its plan to its end."""
    from satchel.goals.model import Goal

    def begin() -> tuple[Goal, Plan]:
        plan = _plan_of(session, words, inputs, model, yes=yes, unasked=unasked)
        goal = Goal.of(plan)
        return (goal if goal_id is None else goal._replace(id=goal_id)), plan

    def go() -> int:
        goal, plan = begin()
        from satchel.goals.graph import insist

        insist(goal)
        runner = None
        if _done_here(session, engine, detach=detach):
            if not yes:
                must_be_allowed(session, plan)
            if not detach:
                runner = make_runner(session, model, engine, yes=yes, plan=plan)
        return _to_the_end(
            session,
            engine,
            runner,
            lambda place: place.submit(goal),
            goal_id=goal.id,
            detach=detach,
            as_json=as_json,
            again=_again(engine, model, yes=yes),
        )

    return carry_on(session, go)


def _plan_of(
    session: Session,
    words: tuple[str, ...],
    inputs: tuple[str, ...],
    model: str | None,
    *,
    yes: bool,
    unasked: bool,
) -> Plan:
    """The plan of a file, or one that a model makes and a person agrees to.

    Raises:
        InvalidInput: the goal is a word that a plan beside it is called.
        Refused: a person said no, or nobody is there to be asked.
    """
    from satchel.cli.asking import read_goal

    if len(words) == 1 and is_plan(words[0]):
        return read_plan_file(session, words[0], known=True, inputs=inputs)
    if len(words) == 1:
        must_be_no_plan(words[0])
    text = read_goal(session, words, None, "satchel goal run")
    if not sys.stdin.isatty() and not unasked:
        raise Refused(
            say("Nobody is there to agree to a plan that a model makes"),
            say("Run `satchel goal plan … -o plan.yaml`, read it, and run that; or give `--yes`"),
        )
    from satchel.cli.goal_plans import decompose_goal, tell_planned
    from satchel.cli.goal_words import show_plan

    made = decompose_goal(session, text, model, pairs=inputs, yes=yes)
    show_plan(session.err, made.plan)
    tell_planned(session, made)
    if not unasked and not yes_or_no(session, say("Run it?")):
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
    + _CODES,
)
@click.argument("goal_id", metavar="GOAL")
@engine_option
@detach_option
@model_options
@complete_hints
def resume(
    session: Session,
    goal_id: str,
    engine: str | None,
    detach: bool,
    model: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """From what is known to its end."""

    async def begin(place: Engine) -> GoalReport:
        return await place.resume((await find(place, goal_id)).id)

    return _bring_on(
        session, goal_id, engine, model, begin, detach=detach, yes=yes, as_json=as_json
    )


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
    + _CODES,
)
@click.argument("goal_id", metavar="GOAL")
@click.argument("step", required=False)
@click.option("--no", "refused", is_flag=True, help=say("Say no: the step fails."))
@click.option("--value", metavar="TEXT", help=say("What to answer; a yes by default."))
@click.option("--file", metavar="FILE", help=say("Read the answer from a file; `-` is stdin."))
@click.option("--note", default="", metavar="TEXT", help=say("Why, for whoever reads it later."))
@engine_option
@detach_option
@model_options
@complete_hints
def approve(
    session: Session,
    goal_id: str,
    step: str | None,
    refused: bool,
    value: str | None,
    file: str | None,
    note: str,
    engine: str | None,
    detach: bool,
    model: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """One answer, then as far as it goes."""
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

    async def begin(place: Engine) -> GoalReport:
        report = await find(place, goal_id)
        name = _asking(report, step)
        text = value if file is None else _text_of(session, file)
        answer = Answer(not refused, _value_of(report, name, text), user_name(), note)
        await give_answer(session, place, report, name, answer)
        return await place.report(report.id)

    def left(report: GoalReport) -> Plan:
        name = _asking(report, step)
        asks = report.steps[name].state == "asking"
        # A no lets nothing begin that waits for it; where nobody asks, the engine says so.
        return not_done(report) if asks and not refused else report.plan._replace(steps=())

    return _bring_on(
        session, goal_id, engine, model, begin, left, detach=detach, yes=yes, as_json=as_json
    )


def _text_of(session: Session, file: str) -> str:
    from satchel.cli.asking import read_goal

    return read_goal(session, (), file, "satchel goal approve")


def _asking(report: GoalReport, step: str | None) -> str:
    """The step that is answered.

    Raises:
        NotFound: the goal has no such step.
        Conflict: none asks, or several do and none was named.
    """
    if step is not None:
        known_step(report, step)
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


def _value_of(report: GoalReport, step: str, text: str | None) -> Any:
    """What a person said, in the form that the step wants.

    Raises:
        InvalidInput: it should be JSON, and is none.
    """
    schema = next(one.output for one in report.plan.steps if one.id == step)
    return as_value(text, schema)


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
    more=_CODES,
)
@click.argument("goal_id", metavar="GOAL")
@click.option("--from", "from_step", default="", metavar="STEP",
              help=say("Do this step and all that depend on it again."))  # fmt: skip
@click.option("--plan", "path", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("The changed plan."))  # fmt: skip
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE",
              help=say("Another value for one of the plan's inputs."))  # fmt: skip
@engine_option
@detach_option
@model_options
@complete_hints
def retry(
    session: Session,
    goal_id: str,
    from_step: str,
    path: str | None,
    inputs: tuple[str, ...],
    engine: str | None,
    detach: bool,
    model: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """A new revision, to its end."""
    given = None if path is None else read_plan_file(session, path, known=True, inputs=inputs)

    def changed(report: GoalReport) -> Plan | None:
        # What was given for the first run holds, unless the file now says otherwise itself.
        plan = None
        if given is not None:
            plan = given._replace(inputs={**report.plan.inputs, **given.inputs})
        elif inputs:
            changes = read_inputs(inputs, report.plan)
            plan = report.plan._replace(inputs={**report.plan.inputs, **changes})
        if from_step:
            known_step(report if plan is None else report._replace(steps=dict.fromkeys(
                (step.id for step in plan.steps), report.steps[report.plan.steps[0].id])),
                from_step)  # fmt: skip
        return plan

    def again(report: GoalReport) -> Plan:
        return done_again(report, from_step, changed(report))

    async def begin(place: Engine) -> GoalReport:
        report = await find(place, goal_id)
        plan = changed(report)
        if report.state == "done" and plan in (None, report.plan) and not again(report).steps:
            return report  # a revision in which nothing happens would only be told as one
        return await place.retry(report.id, from_step=from_step, plan=plan)

    return _bring_on(
        session, goal_id, engine, model, begin, again, detach=detach, yes=yes, as_json=as_json
    )


def _bring_on(
    session: Session,
    goal_id: str,
    engine: str | None,
    model: str | None,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    left: Callable[[GoalReport], Plan] = not_done,
    *,
    detach: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Let a goal that exists go on, as `begin` says, to its end; `left` are the steps it does."""
    import asyncio

    async def look() -> GoalReport:
        async with open_engine(session, engine) as place:
            return await find(place, goal_id)

    def go() -> int:
        runner = None
        whole_id = goal_id
        if not is_shared(session.satchel.settings, engine):
            report = asyncio.run(look())
            whole_id = report.id
            plan = left(report)
            if not yes and _done_here(session, engine, detach=detach):
                must_be_allowed(session, plan)
            if not detach:
                runner = make_runner(session, model, engine, yes=yes, plan=plan)
        return _to_the_end(
            session,
            engine,
            runner,
            begin,
            goal_id=whole_id,
            detach=detach,
            as_json=as_json,
            again=_again(engine, model, yes=yes),
        )

    return carry_on(session, go)


def _done_here(session: Session, engine: str | None, *, detach: bool) -> bool:
    """Whether this process does the steps, or one that it starts: what it allows counts then."""
    settings = session.satchel.settings
    local = (engine or settings.engine) == "local"
    return local or not (detach or is_shared(settings, engine))


def _to_the_end(
    session: Session,
    engine: str | None,
    runner: LateSteps | None,
    begin: Callable[[Engine], Awaitable[GoalReport]],
    *,
    goal_id: str,
    **how: Any,
) -> int:
    place = open_engine(session, engine, runner, only=goal_id)
    shared = is_shared(session.satchel.settings, engine)
    here = _done_here(session, engine, detach=how["detach"])
    told = not here and bool(set(how["again"]) & {"--allow-tools", "--model"})
    if told:
        session.err.line(
            say("Workers do the steps: `--allow-tools` and `--model` count where they are started"),
            "yellow",
        )

    async def begun(place: Engine) -> GoalReport:
        report = await begin(place)
        if not (here or told or how["detach"] or report.state in OVER):
            command = worker_command(session, report)
            session.err.line(say("Workers do the steps: `{command}`", command=command), "dim")
        return report

    try:
        return run_to_end(session, place, begun, shared=shared, **how)
    finally:
        if runner is not None:
            runner.close()


def _again(engine: str | None, model: str | None, *, yes: bool) -> list[str]:
    """Options that hold for a process that goes on instead of this one."""
    words = [] if engine is None else ["--engine", engine]
    words += [] if model is None else ["--model", model]
    return [*words, *(["--allow-tools"] if yes else [])]


_FORCED = 130


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
@click.option("--model", metavar="PROVIDER:NAME", help=say("Who answers."))
@click.option("--allow-tools", "yes", is_flag=True, help=say("Let every tool be called."))
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
    session: Session,
    engine: str | None,
    model: str | None,
    yes: bool,
    drain: int,
    as_json: bool,
) -> int:
    """Nothing on stdout; with `--json` a line for each event: ready, draining, drained."""
    from satchel.cli.chat.models import quietly

    name = engine or session.satchel.settings.engine
    if name == "local":
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )
    with quietly():
        runner = make_runner(session, model, name, yes=yes)
        runner.ready()  # a worker that takes work can do it
        place = open_engine(session, name, runner)
        try:
            return asyncio.run(_work(session, place, name, drain, as_json=as_json))
        finally:
            runner.close()


async def _work(
    session: Session,
    engine: Engine,
    name: str,
    drain: int,
    *,
    as_json: bool,
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    at_once = asyncio.Event()

    def told() -> None:
        (at_once if stop.is_set() else stop).set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, told)
    async with engine as place:
        working = asyncio.ensure_future(place.work(drain=float(drain)))
        _say(session, say("Worker of `{engine}` is ready; Ctrl-C drains it", engine=name),
             "ready", as_json=as_json)  # fmt: skip
        waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(at_once.wait())]
        try:
            await asyncio.wait([working, waiting[0]], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working  # it ended by itself: with an error, which is told
                return 0
            words = say("Draining, {count} s at most; once more ends it at once", count=drain)
            _say(session, words, "draining", as_json=as_json)
            working.cancel()
            await asyncio.wait([working, waiting[1]], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return _at_once(session)
        finally:
            for one in waiting:
                one.cancel()
        if not working.cancelled() and working.exception() is not None:
            await working
    _say(session, say("Drained"), "drained", as_json=as_json)
    return 0


def _at_once(session: Session) -> int:
    """End without waiting for anything: a worker that is killed is what engines are made for."""
    import os

    session.err.line(say("Ended at once; what was begun goes on elsewhere"), "yellow")
    session.err.stream.flush()
    os._exit(_FORCED)


def _say(session: Session, words: str, event: str, *, as_json: bool) -> None:
    if as_json:
        _json_line({"event": event})
    session.err.line(words, "dim")
    session.err.stream.flush()


def _json_line(value: dict[str, Any]) -> None:
    """One event, on a line of its own: whoever reads need not wait for the end."""
    import json
    import sys

    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
