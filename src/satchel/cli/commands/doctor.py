"""The command `doctor`: all problems, by location."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.cli.commands.show import checked, count_problems, counted, show_problems
from satchel.cli.console import SEVERITIES, one_line, write_json
from satchel.cli.context import command, with_progress
from satchel.cli.options import flag_option
from satchel.i18n import say
from satchel.library.snapshot import find_broken
from satchel.presentation.findings import unique_problems
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.library import Location
    from satchel.skill.problems import Problem

_MAX_EXAMPLES = 3
"""A more frequent problem of a location is shown by this many examples."""


class LocationProblems(NamedTuple):
    """The problems of one location."""

    title: str
    root: str
    problems: list[Problem]


@command(
    say("Show all problems, with fixes."),
    "satchel doctor",
    "satchel doctor --strict --json",
)
@flag_option("--strict", say("Warnings count as errors."))
def doctor(session: CliContext, strict: bool, as_json: bool) -> int:
    """Read every skill in full."""
    session.warns = False  # they are among the problems
    satchel = session.satchel
    tools = satchel.library.tools(refresh=True)
    snapshot = satchel.library.snapshot()
    skills = satchel.library.every()
    found = satchel.problems(deep=True, progress=with_progress(skills, say("Checking")))
    problems = list(unique_problems(found))
    groups = _by_location(satchel.library.locations, problems, satchel.settings.project)
    counts = count_problems(problems)
    wrong = (*snapshot.problems, *tools.problems)
    files = len(skills) + len(find_broken(wrong, satchel.library.locations))
    if as_json:
        rows = [
            {"location": location.title, **problem.to_dict()}
            for location in groups
            for problem in location.problems
        ]
        facts = {"project": satchel.settings.project, **counts, "files": files}
        write_json({**facts, "skills": len(skills), "problems": rows})
    else:
        for at, location in enumerate(groups):
            if at:
                session.out.line()
            _print_location(session.out, location)
        session.err.line(checked(files, counts))
        session.print_root()
    return 1 if counts["errors"] or (strict and counts["warnings"]) else 0


def _by_location(
    locations: Iterable[Location], problems: Iterable[Problem], project: str
) -> list[LocationProblems]:
    """Group problems by location, in the order of locations."""
    groups = {one: LocationProblems(one.name, one.path, []) for one in locations}
    rest = LocationProblems(say("settings and the rest"), project, [])
    # The deepest folder wins: `.agents/skills` is inside `.`.
    deepest = sorted(groups, key=lambda location: -len(location.path))
    for problem in problems:
        found = next((groups[one] for one in deepest if _holds(one, problem.path)), rest)
        found.problems.append(problem)
    return [location for location in (*groups.values(), rest) if location.problems]


def _holds(location: Location, path: str) -> bool:
    if location.single:
        folder, file = os.path.split(path)
        return folder == location.path and file.lower() == "skill.md"
    return is_inside(path, location.path)


def _print_location(out: Screen, location: LocationProblems) -> None:
    """Print one location: single problems by file, then repeated ones."""
    words = counted(**count_problems(location.problems))
    out.line(words, "dim", hang="  ", lead=[(one_line(location.title), "bold"), ("  ", "")])
    by_code: dict[str, list[Problem]] = {}
    for problem in location.problems:
        by_code.setdefault(problem.code, []).append(problem)
    many = {code: rows for code, rows in by_code.items() if len(rows) > _MAX_EXAMPLES}
    by_file: dict[str, list[Problem]] = {}
    for problem in location.problems:
        if problem.code not in many:
            by_file.setdefault(problem.path, []).append(problem)
    for path, rows in by_file.items():
        out.line(_within(location.root, path), "cyan", "  ")
        show_problems(out, rows, "    ")
    order = list(SEVERITIES)
    for code, rows in sorted(many.items(), key=lambda pair: order.index(pair[1][0].severity)):
        mark, colour = SEVERITIES[rows[0].severity]
        lead = [(f"{mark} {say(rows[0].severity)}", colour), (f" {code} ×{len(rows):,}", "bold")]
        out.line("", "", "  ", lead=lead)
        fix = rows[0].fix
        shared = "{" not in PROBLEMS[code].fix or all(problem.fix == fix for problem in rows)
        for problem in rows[:_MAX_EXAMPLES]:
            line = f":{problem.line}" if problem.line else ""
            where = _within(location.root, problem.path) + line
            out.line(one_line(problem.message), "", "    ", "      ", [(where + say(": "), "cyan")])
            if not shared:
                out.line(one_line(problem.fix), "", "      → ")
        more = say("… and {count} more", count=len(rows) - _MAX_EXAMPLES)
        out.line(f"{more} (`satchel doctor --json`)", "dim", "    ")
        if shared:
            out.line(one_line(fix), "", "    → ")


def _within(root: str, path: str) -> str:
    return one_line(os.path.relpath(path, root) if is_inside(path, root) else path)
