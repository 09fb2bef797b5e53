"""The command `goal plan`, and reading and writing plan files."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from satchel._fs import write_atomic
from satchel._optional import must_be_installed
from satchel.cli.commands.search import explain_notes, show_notes
from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import command, read_bytes, read_goal, too_large
from satchel.cli.goal_engine import make_limiter, read_inputs
from satchel.cli.models import choose_model, quietly
from satchel.cli.options import AnyPath, input_option, model_option
from satchel.errors import InvalidInput, Refused
from satchel.goals.decomposition import decompose
from satchel.goals.labels import usage_words
from satchel.goals.model import Plan
from satchel.goals.plan_file import read_plan, write_plan
from satchel.goals.plan_rules import errors_in
from satchel.goals.reports import pack
from satchel.i18n import join_names, render, say
from satchel.presentation.goal_plans import check_plan
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.tools.selection import hidden_skill_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.goals.decomposition import Decomposed
    from satchel.goals.plan_rules import PlanProblem

_PLAN_EXTENSIONS = (".yaml", ".yml", ".json")
_MAX_PLAN_BYTES = 4 << 20


@command(
    say("Let a model plan a goal, for you to read, edit and run."),
    'satchel goal plan "report what happened this week"',
    'satchel goal plan "report what happened this week" -o week.yaml',
)
@click.argument("text", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("Write the plan to this file."))  # fmt: skip
@model_option()
@input_option
def plan(
    context: CliContext,
    text: tuple[str, ...],
    output: str | None,
    model: str | None,
    inputs: tuple[str, ...],
    as_json: bool,
) -> int:
    goal = read_goal(context, text, "satchel goal plan")
    decomposed = decompose_goal(context, goal, model, pairs=inputs)
    plan_text = write_plan(decomposed.plan)
    if output is not None:
        write_file(output, plan_text)
    if as_json:
        write_json(
            {
                "plan": pack(decomposed.plan),
                "path": output,
                "skills": list(decomposed.skills),
                "notes": list(decomposed.answer.notes),
                "attempts": len(decomposed.attempts),
                "usage": decomposed.usage._asdict(),
            }
        )
        return 0
    context.out.data(output if output is not None else plan_text)
    print_planning(context, decomposed)
    if output is not None:
        context.err.line(say("Run `{command}`", command=f"satchel goal run {output}"), "dim")
    return 0


def decompose_goal(
    context: CliContext,
    goal: str,
    model: str | None,
    *,
    pairs: Sequence[str] = (),
    allow_tools: bool = False,
) -> Decomposed:
    """Let a model make a plan, with a spinner on a terminal."""
    for package in ("rich", "pydantic_ai"):
        must_be_installed(package, "agent")
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    name = choose_model(context, model)
    with context.err.waiting(say("Starting {name}…", name=one_line(name))):
        from satchel.agent.planner import AgentPlanner
        from satchel.cli.turn_view import TurnScreen
    satchel = context.satchel
    values = read_inputs(pairs, Plan(goal, ()))
    screen = TurnScreen(context.err)
    with quietly():
        screen.open()
        try:
            return asyncio.run(
                decompose(
                    goal,
                    satchel=satchel,
                    planner=AgentPlanner(name, limiter=make_limiter(satchel.settings, None)),
                    session=satchel.session(approve=True if allow_tools else None),
                    inputs=values,
                )
            )
        finally:
            screen.close()


def print_planning(context: CliContext, decomposed: Decomposed) -> None:
    """Print the attempts, usage, skills and notes of making a plan."""
    err = context.err
    facts = [
        plural(len(decomposed.plan.steps), say("step"), say("steps")),
        join_names(usage_words(decomposed.usage)),
    ]
    err.line(" · ".join(fact for fact in facts if fact), "dim")
    if decomposed.skills:
        names = join_names(one_line(name) for name in decomposed.skills)
        err.line(say("Suggested skills: {names}", names=names), "dim")
    printed_notice = context.satchel.library.untrusted_notice()
    notes = [note for note in decomposed.answer.notes if note != printed_notice]
    show_notes(err, explain_notes(context, notes))


def is_plan(argument: str) -> bool:
    """Whether an argument is the path of a plan file."""
    return argument.endswith(_PLAN_EXTENSIONS)


def read_plan_file(
    context: CliContext, path: str, *, check_names: bool = False, inputs: Sequence[str] = ()
) -> Plan:
    """Read a plan file, or stdin for `-`, and print its warnings.

    `check_names` also checks that its skills and tools exist; `inputs` are the values of `--input`.
    """
    # A text without a line break would be taken for a path.
    text = _read_text(path) + "\n"
    plan, problems = check_plan(context.satchel, text) if check_names else read_plan(text)
    if inputs:
        plan = plan._replace(inputs={**plan.inputs, **read_inputs(inputs, plan)})
        problems = [
            problem
            for problem in problems
            if problem.code != "missing-input" or problem.values["name"] not in plan.inputs
        ]
    errors = errors_in(problems)
    if errors:
        trust_hint = _trust_hint(context, errors)
        lines = map(_error_line if trust_hint else _error_and_hint, errors)
        raise InvalidInput(
            "\n".join([say("`{path}` cannot be run", path=one_line(path)), *lines]),
            trust_hint or _correction_hint(errors),
        )
    for problem in problems:
        context.err.line(_error_line(problem), "yellow")
    return plan


def _trust_hint(context: CliContext, errors: Sequence[PlanProblem]) -> str:
    """The hint when all errors are about untrusted skills, else empty."""
    missing = [error for error in errors if error.code in {"unknown-skill", "unknown-tool"}]
    if missing and len(missing) == len(errors):
        library = context.satchel.library
        skills = (skill for error in missing for skill in library.find(str(error.values["name"])))
        notes = [
            render(hidden_skill_note(skill, locked=library.is_unpinned(skill)))
            for skill in skills
            if skill.state in ("untrusted", "blocked", "unverified", "needs setup")
        ]
        return say("; ").join(notes) or render(library.untrusted_notice())
    return ""


def _correction_hint(errors: Sequence[PlanProblem]) -> str:
    if all(error.code == "missing-input" for error in errors):
        name = errors[0].values["name"]
        return say("Give `--input {name}=…`, or write it under `inputs` in the file", name=name)
    return say("Correct it")


def _error_line(problem: PlanProblem) -> str:
    prefix = say("line {number}: ", number=problem.line) if problem.line else ""
    return f"  {prefix}{one_line(problem.message)}"


def _error_and_hint(problem: PlanProblem) -> str:
    return f"{_error_line(problem)}\n    → {one_line(problem.hint)}"


def _read_text(path: str) -> str:
    hint = say("Run `{command}`", command=f'satchel goal plan "…" -o {one_line(path)}')
    data = read_bytes(path, _MAX_PLAN_BYTES, hint)
    if len(data) > _MAX_PLAN_BYTES:
        raise too_large(path, _MAX_PLAN_BYTES)
    return data.decode("utf-8-sig", "replace")


def write_file(path: str, text: str) -> None:
    """Write a file atomically."""
    target = os.path.abspath(os.path.expanduser(path))
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with disk_errors_as_refusal(target):
            write_atomic(target, text.encode())
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=one_line(path), reason=exc.strerror),
            say("Check the permissions"),
        ) from exc
