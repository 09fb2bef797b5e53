"""Is a skill written as it should be? `satchel validate`, for authors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from satchel._language import say
from satchel.cli.counting import checked, count_problems
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command, short_path
from satchel.cli.showing import show_problems
from satchel.cli.values import AnyPath

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.session import Session
    from satchel.skill.problems import Problem


@command(
    say("Check skill files before you publish them.")
    + "\n\n"
    + say(
        "Shows every problem and how to fix it. PATH is a skill's folder, its SKILL.md or "
        "skill.yaml, or a folder with skills; without it, every skill of the project is checked. "
        "Exits with 1 when there are errors; with `--strict` when anything breaks the published "
        "specification."
    ),
    "satchel validate",
    "satchel validate .agents/skills/hello-skill --strict",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=AnyPath())
@click.option(
    "--strict",
    is_flag=True,
    help=say("Check against the published specification, and nothing else."),
)
def validate(session: Session, paths: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """One block per file."""
    from satchel.errors import SatchelError
    from satchel.skill.problems import Problem
    from satchel.skill.validate import validate_folder

    given = [session.satchel.settings.project] if not paths else list(paths)
    files = [file for path in given for file in _skill_files(session, path, named=bool(paths))]
    results: dict[str, list[Problem]] = {}
    for file in dict.fromkeys(files):
        try:
            results[file] = validate_folder(file, strict=strict)
        except SatchelError as exc:
            results[file] = [Problem("unreadable", file, values={"reason": exc.message})]
    bad = {file for file, rows in results.items() if _fails(rows, strict=strict)}
    if as_json:
        write_json([
            {"path": file, "ok": file not in bad, "problems": [row.to_dict() for row in rows]}
            for file, rows in results.items()
        ])  # fmt: skip
        return 1 if bad else 0
    out = session.out
    wrong = say("breaks the specification") if strict else say("wrong")
    for file, rows in results.items():
        mark, colour, word = ("✗", "red", wrong) if file in bad else ("✓", "green", say("ok"))
        lead = [(f"{mark} {word}", colour), ("  ", "")]
        out.line(one_line(short_path(file)), "bold" if rows else "", lead=lead)
        show_problems(out, rows, "  ", as_errors=strict)
    counts = count_problems(row for rows in results.values() for row in rows)
    if strict:
        counts = {"errors": sum(counts.values()), "warnings": 0, "notes": 0}
    session.err.line(checked(len(results), counts))
    return 1 if bad else 0


def _fails(problems: Iterable[Problem], *, strict: bool) -> bool:
    return any(strict or problem.severity == "error" for problem in problems)


def _skill_files(session: Session, path: str, *, named: bool) -> list[str]:
    """The SKILL.md and skill.yaml files that `path` means.

    Raises:
        NotFound: there is none.
    """
    from satchel.errors import NotFound
    from satchel.library import Library, Location

    given = short_path(path)
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise NotFound(say("There is no `{path}`", path=given), say("Give the folder of a skill"))
    names = sorted(os.listdir(path))
    own = [name for name in names if name.lower() == "skill.md"][:1]
    own += [name for name in names if name == "skill.yaml"]
    if own:
        return [os.path.join(path, name) for name in own]
    if named:
        library = Library([Location(path, trusted=True)])
    else:
        ours = [
            item
            for item in session.satchel.library.locations
            if item.source not in ("builtin", "global", "server")
        ]
        library = Library([item._replace(trusted=True) for item in ours])
    snapshot, tools = library.snapshot(), library.tools()
    found = [skill.path for skill in (*snapshot.skills, *snapshot.hidden)]
    found += [
        os.path.join(one.skill.base_dir, "skill.yaml") for one in (*tools.skills, *tools.hidden)
    ]
    problems = (*snapshot.problems, *tools.problems)
    broken = [problem.path for problem in problems if problem.severity == "error"]
    ours = {"skill.md", "skill.yaml"}
    found += [file for file in broken if os.path.basename(file).lower() in ours]
    if not found:
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=given),
            say("Give the folder of a skill, or write one with `satchel init`"),
        )
    return sorted(set(found))
