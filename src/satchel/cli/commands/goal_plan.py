"""The command `goal plan`, and reading and writing plan files."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from satchel._fs import write_atomic
from satchel._optional import require
from satchel.cli.commands.search import notes_of, show_notes
from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import command, read_bytes, read_goal, too_large
from satchel.cli.goal_engine import make_limiter, read_inputs
from satchel.cli.models import choose_model, quietly
from satchel.cli.options import AnyPath, input_option, model_option
from satchel.errors import InvalidInput, Refused
from satchel.goals.decomposition import decompose
from satchel.goals.drawing.labels import usage_words
from satchel.goals.model import Plan
from satchel.goals.plan_checks import errors_in
from satchel.goals.plan_file import read_plan, write_plan
from satchel.goals.reports import pack
from satchel.i18n import join_names, render, say
from satchel.presentation.goals import check_plan
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.tools.selection import hidden_skill_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.goals.decomposition import Decomposed
    from satchel.goals.plan_checks import PlanProblem

_EXTENSIONS = (".yaml", ".yml", ".json")
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
    made = decompose_goal(context, goal, model, pairs=inputs)
    written = write_plan(made.plan)
    if output is not None:
        write_file(output, written)
    if as_json:
        write_json(
            {
                "plan": pack(made.plan),
                "path": output,
                "skills": list(made.skills),
                "notes": list(made.answer.notes),
                "attempts": len(made.attempts),
                "usage": made.usage._asdict(),
            }
        )
        return 0
    context.out.data(output if output is not None else written)
    print_planning(context, made)
    if output is not None:
        context.err.line(say("Run `{command}`", command=f"satchel goal run {output}"), "dim")
    return 0


def decompose_goal(
    context: CliContext,
    goal: str,
    model: str | None,
    *,
    pairs: Sequence[str] = (),
    yes: bool = False,
) -> Decomposed:
    """Let a model make a plan, with a spinner on a terminal."""
    for package in ("rich", "pydantic_ai"):
        require(package, "agent")
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    from satchel.agent.planner import AgentPlanner
    from satchel.cli.turn_view import TurnScreen

    satchel = context.satchel
    name = choose_model(context, model)
    given = read_inputs(pairs, Plan(goal, ()))
    screen = TurnScreen(context.err)
    with quietly():
        screen.open()
        try:
            return asyncio.run(
                decompose(
                    goal,
                    satchel=satchel,
                    planner=AgentPlanner(name, limiter=make_limiter(satchel.settings, None)),
                    session=satchel.session(approve=True if yes else None),
                    inputs=given,
                )
            )
        finally:
            screen.close()


def print_planning(context: CliContext, made: Decomposed) -> None:
    """Print the attempts, usage, skills and notes of making a plan."""
    err = context.err
    words = [
        plural(len(made.plan.steps), say("step"), say("steps")),
        join_names(usage_words(made.usage)),
    ]
    err.line(" · ".join(word for word in words if word), "dim")
    if made.skills:
        names = join_names(one_line(name) for name in made.skills)
        err.line(say("Suggested skills: {names}", names=names), "dim")
    printed = context.satchel.library.untrusted_notice()
    notes = [note for note in made.answer.notes if note != printed]
    show_notes(err, notes_of(context, notes))


def is_plan(word: str) -> bool:
    """Whether an argument is the path of a plan file."""
    return word.endswith(_EXTENSIONS)


def read_plan_file(
    context: CliContext, path: str, *, known: bool = False, inputs: Sequence[str] = ()
) -> Plan:
    """Read a plan file, or stdin for `-`, and print its warnings.

    `known` also checks that its skills and tools exist; `inputs` are the values of `--input`.
    """
    # A text without a line break would be taken for a path.
    text = _read(path) + "\n"
    made, problems = check_plan(context.satchel, text) if known else read_plan(text)
    if inputs:
        made = made._replace(inputs={**made.inputs, **read_inputs(inputs, made)})
        problems = [
            one
            for one in problems
            if one.code != "missing-input" or one.values["name"] not in made.inputs
        ]
    errors = errors_in(problems)
    if errors:
        trust = _trust_first(context, errors)
        lines = map(_message if trust else _message_and_hint, errors)
        raise InvalidInput(
            "\n".join([say("`{path}` cannot be run", path=one_line(path)), *lines]),
            trust or _fix(errors),
        )
    for problem in problems:
        context.err.line(_message(problem), "yellow")
    return made


def _trust_first(context: CliContext, errors: Sequence[PlanProblem]) -> str:
    """The hint when all errors are about untrusted skills, else empty."""
    missing = [one for one in errors if one.code in {"unknown-skill", "unknown-tool"}]
    if missing and len(missing) == len(errors):
        library = context.satchel.library
        found = (skill for one in missing for skill in library.find(str(one.values["name"])))
        notes = [
            render(hidden_skill_note(skill, locked=library.is_unpinned(skill)))
            for skill in found
            if skill.state in ("untrusted", "blocked", "unverified")
        ]
        return say("; ").join(notes) or render(library.untrusted_notice())
    return ""


def _fix(errors: Sequence[PlanProblem]) -> str:
    if all(one.code == "missing-input" for one in errors):
        name = errors[0].values["name"]
        return say("Give `--input {name}=…`, or write it under `inputs` in the file", name=name)
    return say("Correct it")


def _message(problem: PlanProblem) -> str:
    where = say("line {number}: ", number=problem.line) if problem.line else ""
    return f"  {where}{one_line(problem.message)}"


def _message_and_hint(problem: PlanProblem) -> str:
    return f"{_message(problem)}\n    → {one_line(problem.hint)}"


def _read(path: str) -> str:
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
