"""The command `goal plan`, and reading and writing plan files."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from satchel._optional import require
from satchel.cli.commands.which import show_notes
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.goal_text import read_bytes, read_goal
from satchel.cli.options import AnyPath, WholeNumber, input_option, model_option
from satchel.errors import InvalidInput, Refused
from satchel.i18n import listed, render, say
from satchel.tools.selection import hidden_skill_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.goals.decomposition import Decomposed
    from satchel.goals.model import Plan
    from satchel.goals.plan_checks import PlanProblem

_EXTENSIONS = (".yaml", ".yml", ".json")
_MAX_PLAN_BYTES = 4 << 20


@command(
    say("Let a model make a plan of a goal, for you to read, edit and run.")
    + "\n\n"
    + say(
        "The skills that fit the goal are named to the model; the plan goes to stdout or into a "
        "file. Nothing of it is run."
    ),
    'satchel goal plan "report what happened this week"',
    'satchel goal plan "report what happened this week" -o week.yaml',
    'satchel goal plan "review the release" --skill code-review --json',
    more=say(
        "`-` reads the goal from stdin. Exit codes: 1 the model gave no sound plan, 2 no model is "
        "chosen, 6 an extra is missing."
    ),
)
@click.argument("text", nargs=-1)
@click.option("--file", metavar="FILE", help=say("Read the goal from a file; `-` is stdin."))
@click.option("-o", "--output", metavar="FILE", type=AnyPath(dir_okay=False),
              help=say("Write the plan there instead of to stdout."))  # fmt: skip
@model_option(say("Who plans."))
@click.option("--skill", "use", multiple=True, help=say("A skill to name to the model anyway."))
@click.option("--never", multiple=True, help=say("A skill not to name to it."))
@input_option(say("A value that the plan may use."))
@click.option(
    "--repairs",
    type=WholeNumber(),
    default=3,
    show_default=True,
    help=say("Times that the model may put its plan right."),
)
def plan(
    context: CliContext,
    text: tuple[str, ...],
    file: str | None,
    output: str | None,
    model: str | None,
    use: tuple[str, ...],
    never: tuple[str, ...],
    inputs: tuple[str, ...],
    repairs: int,
    as_json: bool,
) -> int:
    from satchel.goals.plan_file import write_plan

    goal = read_goal(context, text, file, "satchel goal plan")
    made = decompose_goal(context, goal, model, use=use, never=never, pairs=inputs, repairs=repairs)
    written = write_plan(made.plan)
    if output is not None:
        write_file(output, written)
    if as_json:
        from satchel.cli.goal_format import usage_dict
        from satchel.goals.reports import pack

        write_json(
            {
                "plan": pack(made.plan),
                "path": output,
                "skills": list(made.skills),
                "notes": list(made.answer.notes),
                "attempts": len(made.attempts),
                "usage": usage_dict(made.usage),
            }
        )
        return 0
    context.out.data(output if output is not None else written)
    print_planning(context, made)
    if output is not None:
        context.err.line(say("Read and edit it, then run it: `satchel goal run {path}`",
                             path=output), "dim")  # fmt: skip
    return 0


def decompose_goal(
    context: CliContext,
    goal: str,
    model: str | None,
    *,
    use: Sequence[str] = (),
    never: Sequence[str] = (),
    pairs: Sequence[str] = (),
    repairs: int = 3,
    yes: bool = False,
) -> Decomposed:
    """Let a model make a plan, with a spinner on a terminal."""
    for package in ("rich", "pydantic_ai"):
        require(package, "agent")
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    from satchel.agent.planner import AgentPlanner
    from satchel.cli.goal_engine import make_limiter, read_inputs
    from satchel.cli.models import choose_model, quietly
    from satchel.cli.turn_view import TurnScreen
    from satchel.goals.decomposition import decompose
    from satchel.goals.model import Plan

    satchel = context.satchel
    name = choose_model(context, model)
    for skill in (*use, *never):
        context.find(skill)
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
                    repairs=repairs,
                    use=use,
                    never=never,
                )
            )
        finally:
            screen.close()


def print_planning(context: CliContext, made: Decomposed) -> None:
    """Print the attempts, usage, skills and notes of making a plan."""
    from satchel.goals.drawing.labels import usage_words

    err = context.err
    words = [
        say("1 step")
        if len(made.plan.steps) == 1
        else say("{count} steps", count=len(made.plan.steps)),
        say("{count} tries", count=len(made.attempts)) if len(made.attempts) > 1 else "",
        listed(usage_words(made.usage)),
    ]
    err.line(" · ".join(word for word in words if word), "dim")
    if made.skills:
        names = listed(one_line(name) for name in made.skills)
        err.line(say("Skills named to the model: {names}", names=names), "dim")
    printed = context.satchel.library.untrusted_notice()
    show_notes(err, [note for note in made.answer.notes if note != printed])


def is_plan(word: str) -> bool:
    """Whether an argument is the path of a plan file."""
    return word.endswith(_EXTENSIONS)


def read_plan_file(
    context: CliContext, path: str, *, known: bool = False, inputs: Sequence[str] = ()
) -> Plan:
    """Read a plan file, or stdin for `-`, and print its warnings.

    `known` also checks that its skills and tools exist; `inputs` are the values of `--input`.
    """
    from satchel.goals.plan_checks import errors_in
    from satchel.goals.plan_file import read_plan

    reach = context.satchel.session(approve=True).within_reach() if known else None
    made, problems = read_plan(
        _read(path) + "\n",  # a text without a line break would be taken for a path
        skills=None if reach is None else reach.skills,
        tools=None if reach is None else reach.tools,
    )
    if inputs:
        from satchel.cli.goal_engine import read_inputs

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
            if skill.state in ("untrusted", "blocked")
        ]
        return say("; ").join(notes) or render(library.untrusted_notice())
    return ""


def _fix(errors: Sequence[PlanProblem]) -> str:
    if all(one.code == "missing-input" for one in errors):
        name = errors[0].values["name"]
        return say("Give `--input {name}=…`, or write it under `inputs` in the file", name=name)
    return say("Correct the file")


def refuse_plan_name(word: str) -> None:
    """Refuse a goal of one word that is the name of a plan file: planning it would be billed."""
    if not word.strip() or word.split() != [word]:
        return
    names = [word + end for end in _EXTENSIONS]
    near = next((name for name in names if os.path.isfile(os.path.expanduser(name))), "")
    if near:
        raise InvalidInput(
            say("`{word}` is no plan: those end in `.yaml`, `.yml` or `.json`",
                word=one_line(word)),
            say("Did you mean {names}?", names=f"`{one_line(near)}`"),
        )  # fmt: skip


def _message(problem: PlanProblem) -> str:
    where = say("line {number}: ", number=problem.line) if problem.line else ""
    return f"  {where}{one_line(problem.message)}"


def _message_and_hint(problem: PlanProblem) -> str:
    return f"{_message(problem)}\n    → {one_line(problem.hint)}"


def _read(path: str) -> str:
    hint = say('Make a plan with `satchel goal plan "…" -o {path}`', path=one_line(path))
    if near := _near(path):
        hint = say("Did you mean {names}?", names=f"`{one_line(near)}`")
    data = read_bytes(path, _MAX_PLAN_BYTES, hint)
    if len(data) > _MAX_PLAN_BYTES:
        raise InvalidInput(
            say("`{path}` has more than {count} bytes", path=one_line(path), count=_MAX_PLAN_BYTES),
            say("Give large inputs by a tool step that reads them"),
        )
    return data.decode("utf-8-sig", "replace")


def _near(path: str) -> str:
    """The plan file with the most similar name in the same folder; empty when there is none."""
    import difflib

    folder, name = os.path.split(os.path.expanduser(path))
    try:
        names = [one for one in os.listdir(folder or ".") if is_plan(one)]
    except OSError:
        return ""
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return os.path.join(folder, found[0]) if found else ""


def write_file(path: str, text: str) -> None:
    """Write a file atomically."""
    from satchel._fs import write_atomic

    target = os.path.abspath(os.path.expanduser(path))
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        write_atomic(target, text.encode())
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=one_line(path), reason=exc.strerror),
            say("Check its permissions"),
        ) from exc
