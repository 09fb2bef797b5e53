"""The command `doctor`: all problems, by location."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.cli.commands.show import (
    count_problems,
    problem_counts,
    problem_summary,
    show_fix,
    show_problems,
)
from satchel.cli.console import SEVERITIES, one_line, write_json
from satchel.cli.context import command, with_progress
from satchel.cli.options import flag_option
from satchel.diagnosis.file_problems import unique_problems
from satchel.i18n import say
from satchel.library.snapshot import find_broken
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
def doctor(context: CliContext, strict: bool, as_json: bool) -> int:
    """Read every skill in full."""
    context.reports_settings = False  # they are among the problems
    satchel = context.satchel
    tools = satchel.library.tools(refresh=True)
    snapshot = satchel.library.snapshot()
    skills = satchel.library.every()
    all_problems = satchel.problems(deep=True, progress=with_progress(skills, say("Checking")))
    problems = list(unique_problems(all_problems))
    groups = _group_by_location(satchel.library.locations, problems, satchel.settings.project)
    counts = count_problems(problems)
    broken = find_broken((*snapshot.problems, *tools.problems), satchel.library.locations)
    file_count = len(skills) + len(broken)
    if as_json:
        rows = [
            {"location": location.title, **problem.to_dict()}
            for location in groups
            for problem in location.problems
        ]
        facts = {"project": satchel.settings.project, **counts, "files": file_count}
        write_json({**facts, "skills": len(skills), "problems": rows})
    else:
        for index, location in enumerate(groups):
            if index:
                context.out.line()
            _print_location(context.out, location)
        context.err.line(problem_summary(file_count, counts))
        context.print_root()
    return 1 if counts["errors"] or (strict and counts["warnings"]) else 0


def _group_by_location(
    locations: Iterable[Location], problems: Iterable[Problem], project: str
) -> list[LocationProblems]:
    """Group problems by location, in the order of locations."""
    groups = {
        location: LocationProblems(location.name, location.path, []) for location in locations
    }
    others = LocationProblems(say("settings and the rest"), project, [])
    # The deepest folder wins: `.agents/skills` is inside `.`.
    deepest_first = sorted(groups, key=lambda location: -len(location.path))
    for problem in problems:
        containing = (
            groups[location] for location in deepest_first if _contains(location, problem.path)
        )
        next(containing, others).problems.append(problem)
    return [group for group in (*groups.values(), others) if group.problems]


def _contains(location: Location, path: str) -> bool:
    if location.single:
        folder, file = os.path.split(path)
        return folder == location.path and file.lower() == "skill.md"
    return is_inside(path, location.path)


def _print_location(out: Screen, location: LocationProblems) -> None:
    """Print one location: single problems by file, then repeated ones."""
    counts = problem_counts(**count_problems(location.problems))
    out.line(counts, "dim", hang="  ", lead=[(one_line(location.title), "bold"), ("  ", "")])
    by_code: dict[str, list[Problem]] = {}
    for problem in location.problems:
        by_code.setdefault(problem.code, []).append(problem)
    by_file: dict[str, list[Problem]] = {}
    for problem in location.problems:
        if len(by_code[problem.code]) <= _MAX_EXAMPLES:
            by_file.setdefault(problem.path, []).append(problem)
    for path, problems in by_file.items():
        out.line(_relative_path(location.root, path), "cyan", indent="  ")
        show_problems(out, problems, "    ")
    order = list(SEVERITIES)
    for problems in sorted(by_code.values(), key=lambda group: order.index(group[0].severity)):
        if len(problems) > _MAX_EXAMPLES:
            _print_repeated(out, location, problems)


def _print_repeated(out: Screen, location: LocationProblems, problems: list[Problem]) -> None:
    """Print some examples of a problem that a location has many times."""
    code, severity, fix = problems[0].code, problems[0].severity, problems[0].fix
    mark, colour = SEVERITIES[severity]
    lead = [(f"{mark} {say(severity)}", colour), (f" {code} ×{len(problems):,}", "bold")]
    out.line(indent="  ", lead=lead)
    is_same_fix = "{" not in PROBLEMS[code].fix or all(problem.fix == fix for problem in problems)
    for problem in problems[:_MAX_EXAMPLES]:
        line = f":{problem.line}" if problem.line else ""
        position = _relative_path(location.root, problem.path) + line
        lead = [(position + say(": "), "cyan")]
        out.line(one_line(problem.message), indent="    ", hang="      ", lead=lead)
        if not is_same_fix:
            show_fix(out, problem.fix, "      ")
    message = say("… and {count} more", count=len(problems) - _MAX_EXAMPLES)
    out.line(f"{message} (`satchel doctor --json`)", "dim", indent="    ")
    if is_same_fix:
        show_fix(out, fix, "    ")


def _relative_path(root: str, path: str) -> str:
    return one_line(os.path.relpath(path, root) if is_inside(path, root) else path)
