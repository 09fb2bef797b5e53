"""How does a goal become a plan, and a file a plan? goal plan."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from satchel._language import listed, render, say
from satchel._optional import require
from satchel.cli.choosing import show_notes
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.values import AnyPath, WholeNumber
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.tools.selecting import note_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.session import Session
    from satchel.goals.decomposition import Decomposed
    from satchel.goals.model import Plan
    from satchel.goals.problems import Problem

ENDINGS = (".yaml", ".yml", ".json")
MOST = 4 << 20
"""Bytes of a plan's file that are read."""


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
@click.option("--model", metavar="PROVIDER:NAME", help=say("Who plans."))
@click.option("--skill", "use", multiple=True, help=say("A skill to name to the model anyway."))
@click.option("--never", multiple=True, help=say("A skill not to name to it."))
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE",
              help=say("A value that the plan may use."))  # fmt: skip
@click.option(
    "--repairs",
    type=WholeNumber(),
    default=3,
    show_default=True,
    help=say("Times that the model may put its plan right."),
)
def plan(
    session: Session,
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
    """The plan on stdout, or its path; how it came about on stderr."""
    from satchel.cli.asking import read_goal
    from satchel.goals.plan_file import write_plan

    goal = read_goal(session, text, file, "satchel goal plan")
    made = decompose_goal(session, goal, model, use=use, never=never, pairs=inputs, repairs=repairs)
    written = write_plan(made.plan)
    if output is not None:
        write_file(output, written)
    if as_json:
        from satchel.cli.goal_words import usage_dict
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
    session.out.data(output if output is not None else written)
    tell_planned(session, made)
    if output is not None:
        session.err.line(say("Read and edit it, then run it: `satchel goal run {path}`",
                             path=output), "dim")  # fmt: skip
    return 0


def decompose_goal(
    session: Session,
    goal: str,
    model: str | None,
    *,
    use: Sequence[str] = (),
    never: Sequence[str] = (),
    pairs: Sequence[str] = (),
    repairs: int = 3,
    yes: bool = False,
) -> Decomposed:
    """Ask a model for a plan; a terminal shows that it is at work.

    Raises:
        MissingExtra: the extra `agent` is not installed.
        ModelFailed: the model cannot be reached, or gave no sound plan.
    """
    for package in ("rich", "pydantic_ai"):
        require(package, "agent")
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    from satchel.agent.planner import AgentPlanner
    from satchel.cli.chat.models import choose_model, quietly
    from satchel.cli.chat.telling import Board
    from satchel.cli.goal_engines import make_limiter, read_inputs
    from satchel.goals.decomposition import decompose
    from satchel.goals.model import Plan

    satchel = session.satchel
    name = choose_model(session, model)
    for skill in (*use, *never):
        session.find(skill)
    given = read_inputs(pairs, Plan(goal, ()))
    board = Board(session.err)
    with quietly():
        board.open()
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
            board.close()


def tell_planned(session: Session, made: Decomposed) -> None:
    """How a plan came about."""
    from satchel.goals.drawing.words import usage_words

    err = session.err
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
    told = session.satchel.library.waiting_line()  # before the model was asked
    show_notes(err, [note for note in made.answer.notes if note != told])


def is_plan(word: str) -> bool:
    """Whether a word of the command line means a plan's file."""
    return word.endswith(ENDINGS)


def read_plan_file(
    session: Session, path: str, *, known: bool = False, inputs: Sequence[str] = ()
) -> Plan:
    """The plan in a file; what is odd about it is told, what is wrong with it is raised.

    Args:
        session: The terminal.
        path: The file; `-` is stdin.
        known: Also look whether its skills and tools are there.
        inputs: What `--input` says.

    Raises:
        NotFound: there is no such file.
        InvalidInput: the plan has errors; all of them are named.
    """
    from satchel.goals.graph import errors_in
    from satchel.goals.plan_file import read_plan

    reach = session.satchel.session(approve=True).within_reach() if known else None
    made, problems = read_plan(
        _read(path) + "\n",  # so that it is never taken for a path
        skills=None if reach is None else reach.skills,
        tools=None if reach is None else reach.tools,
    )
    if inputs:
        from satchel.cli.goal_engines import read_inputs

        made = made._replace(inputs={**made.inputs, **read_inputs(inputs, made)})
        problems = [
            one
            for one in problems
            if one.code != "missing-input" or one.values["name"] not in made.inputs
        ]
    errors = errors_in(problems)
    if errors:
        trust = _trust_first(session, errors)
        told = map(_told if trust else _whole, errors)
        raise InvalidInput(
            "\n".join([say("`{path}` cannot be run", path=one_line(path)), *told]),
            trust or _fix(errors),
        )
    for problem in problems:
        session.err.line(_told(problem), "yellow")
    return made


def _trust_first(session: Session, errors: Sequence[Problem]) -> str:
    """What to do when trust would help: no other advice counts before that. Else empty."""
    missing = [one for one in errors if one.code in {"unknown-skill", "unknown-tool"}]
    if missing and len(missing) == len(errors):
        library = session.satchel.library
        found = (skill for one in missing for skill in library.find(str(one.values["name"])))
        notes = [
            render(note_of(skill, locked=library.is_unpinned(skill)))
            for skill in found
            if skill.state in ("untrusted", "blocked")
        ]
        return say("; ").join(notes) or render(library.waiting_line())
    return ""


def _fix(errors: Sequence[Problem]) -> str:
    """What to do about the errors of a plan; each has its own words too."""
    if all(one.code == "missing-input" for one in errors):
        name = errors[0].values["name"]
        return say("Give `--input {name}=…`, or write it under `inputs` in the file", name=name)
    return say("Correct the file")


def must_be_no_plan(word: str) -> None:
    """Make sure that one word is not the name of a plan beside it: planning it would be billed.

    Raises:
        InvalidInput: with an ending it is one.
    """
    if not word.strip() or word.split() != [word]:
        return
    near = next((word + end for end in ENDINGS if os.path.isfile(os.path.expanduser(word + end))),
                "")  # fmt: skip
    if near:
        raise InvalidInput(
            say("`{word}` is no plan: those end in `.yaml`, `.yml` or `.json`",
                word=one_line(word)),
            say("Did you mean {names}?", names=f"`{one_line(near)}`"),
        )  # fmt: skip


def _told(problem: Problem) -> str:
    where = say("line {number}: ", number=problem.line) if problem.line else ""
    return f"  {where}{one_line(problem.message)}"


def _whole(problem: Problem) -> str:
    """What is wrong, and below it what to do."""
    return f"{_told(problem)}\n    → {one_line(problem.hint)}"


def _read(path: str) -> str:
    import sys

    try:
        if path == "-":
            data = sys.stdin.buffer.read(MOST + 1)
        else:
            with open(os.path.expanduser(path), "rb") as stream:
                data = stream.read(MOST + 1)
    except FileNotFoundError as exc:
        near = _near(path)
        raise NotFound(
            say("There is no `{path}`", path=one_line(path)),
            say("Did you mean {names}?", names=f"`{one_line(near)}`")
            if near
            else say('Make a plan with `satchel goal plan "…" -o {path}`', path=one_line(path)),
        ) from exc
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=one_line(path), reason=exc.strerror),
            say("Check its permissions"),
        ) from exc
    if len(data) > MOST:
        raise InvalidInput(
            say("`{path}` has more than {count} bytes", path=one_line(path), count=MOST),
            say("Give large inputs by a tool step that reads them"),
        )
    return data.decode("utf-8-sig", "replace")


def _near(path: str) -> str:
    """A plan beside where one was looked for, with almost the same name; empty when none is."""
    import difflib

    folder, name = os.path.split(os.path.expanduser(path))
    try:
        names = [one for one in os.listdir(folder or ".") if is_plan(one)]
    except OSError:
        return ""
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return os.path.join(folder, found[0]) if found else ""


def write_file(path: str, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        Refused: it cannot be written.
    """
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
