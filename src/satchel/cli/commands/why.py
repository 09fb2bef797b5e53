"""`satchel why` and `satchel doctor`: the status of one skill, and all problems."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel._fs import is_inside
from satchel.cli.commands.show import checked, count_problems, counted, show_problems
from satchel.cli.commands.which import NO_REASON, bar, bar_width, match_dict, show_notes
from satchel.cli.console import SEVERITIES, clean, cut, one_line, write_json
from satchel.cli.context import command, complete_names
from satchel.cli.options import WholeNumber
from satchel.cli.progress import with_progress
from satchel.explain_selection import next_steps, score_differences
from satchel.i18n import listed, say
from satchel.library.snapshot import find_broken
from satchel.presentation.findings import unique_problems
from satchel.presentation.skill_page import show_selection
from satchel.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.explain import SkillReport
    from satchel.explain_selection import SelectionExplanation
    from satchel.library import Location
    from satchel.presentation.skill_page import SelectionShown
    from satchel.skill.problems import Problem

_MAX_GOAL_CHARS = 200
_MAX_NAME_COLUMNS = 20
"""Columns of a skill's name above its scores."""


def selection_dict(standing: SelectionExplanation) -> dict[str, Any]:
    """Return the form for `--json`."""
    place, answer = standing.place, standing.answer
    facts: dict[str, Any] = {
        "text": standing.goal[:_MAX_GOAL_CHARS],
        "offered": standing.offered,
        "chosen": standing.chosen,
        "near_copy_of": standing.copy_of or None,
        "fit": round(float(answer.fit), 4),
        "threshold": round(float(answer.threshold), 4),
        "detector": answer.detector,
        "instead": [match.name for match in answer.matches] if not standing.chosen else [],
        "advice": [one_line(step) for step in next_steps(standing)],
        "notes": list(answer.notes),
    }
    if place is None:
        return {**facts, "rank": None, "of": None}
    return {
        **facts,
        "rank": place.rank or None,
        "of": place.of,
        "match": match_dict(place.match, answer) if place.match is not None else None,
        "fields": {field: round(float(value), 4) for field, value in place.fields.items()},
        "missing": list(place.missing),
        "ahead": [
            {
                **match_dict(match, answer),
                "fields": {field: round(float(value), 4) for field, value in fields.items()},
                "by": [field for field, _ in score_differences(fields, place.fields)],
            }
            for match, fields in place.ahead
        ],
    }


# --- output -------------------------------------------------------------------------------


def print_selection(out: Screen, shown: SelectionShown) -> None:
    """Print the selection for a request."""
    mark, colour = ("●", "green") if shown.chosen else ("▲", "yellow")
    out.write(f"\n{out.paint(mark, colour)} {out.paint(say('For this request'), 'bold')}\n")
    out.line(f"“{cut(one_line(shown.goal), _MAX_GOAL_CHARS)}”", "dim", "  ")
    for line in shown.lines:
        out.line(one_line(line), "", "  ")
    if shown.reason:
        lead = [(f"{one_line(shown.judge)}{say(': ')}", "cyan")] if shown.judge else ()
        out.line(one_line(shown.reason), "", "  ", "    ", lead)
    _show_fields(out, shown)
    _show_ahead(out, shown)
    if shown.lacks:
        words = listed(f"`{one_line(word)}`" for word in shown.lacks)
        out.line()
        out.line(words, "", "  ", "    ", [(say("words it has nowhere") + say(": "), "bold")])


def _show_fields(out: Screen, shown: SelectionShown) -> None:
    """The score of each field, beside that of the best skill ahead."""
    if not shown.bars:
        return
    wide = bar_width(out.width)

    def meter(value: float, share: float) -> str:
        filled = f"{bar(share, wide)}  " if wide else ""
        return f"{filled}{value:.2f}"

    names = [shown.name, shown.rival] if shown.rival else [shown.name]
    head = ["", say("field"), *(cut(one_line(name), _MAX_NAME_COLUMNS) for name in names)]
    rows = [
        [
            "",
            one_line(one.label),
            meter(one.own, one.own_share),
            *([meter(one.theirs, one.their_share)] if shown.rival else []),
        ]
        for one in shown.bars
    ]
    out.line()
    out.table(head, rows, [["", "bold", "", "dim"] for _ in rows])


def _show_ahead(out: Screen, shown: SelectionShown) -> None:
    if not shown.ahead:
        return
    rows = [
        ["", str(at), one_line(one.name), one.score, one_line(one.by) or NO_REASON]
        for at, one in enumerate(shown.ahead, 1)
    ]
    out.line()
    out.table(
        ["", "", say("ahead of it"), say("score"), say("by")],
        rows,
        [["", "dim", "bold", "dim", ""] for _ in rows],
    )


MAX_EXAMPLES = 3
"""A more frequent problem of a location is shown by this many examples."""
_MOODS = {
    "good": ("●", "green"),
    "bad": ("▲", "yellow"),
    "plain": ("·", "dim"),
    "broken": ("✗", "red"),
}


# --- why ----------------------------------------------------------------------------------


@command(
    say("Tell the whole story of one skill, and what to do next.")
    + "\n\n"
    + say(
        "Where it was found, what hides it, what was repaired, how the catalogue lists it, and "
        "when it was last offered and loaded."
    ),
    "satchel why hello-skill",
    "satchel why hello-skill --budget 2000",
    'satchel why hello-skill --goal "welcome our new colleague"',
    more=say(
        "With `--goal` also: its rank for that request, what each of its fields gave, the words it "
        "lacks, what beat it, and whether it would be chosen."
    ),
)
@click.argument("name", shell_complete=complete_names)
@click.option(
    "--budget",
    type=WholeNumber(),
    metavar="N",
    help=say(
        "Characters that the catalogue may take; by default {value}, the setting `budget`.",
        value=Settings._field_defaults["budget"],
    ),
)
@click.option("--goal", metavar="TEXT", help=say("A request, or `-` for stdin."))
def why(session: CliContext, name: str, budget: int | None, goal: str | None, as_json: bool) -> int:
    """Print the report."""
    story = session.satchel.why(name, budget)
    standing = _selection(session, story, name, goal)
    if as_json:
        facts = {"goal": selection_dict(standing)} if standing is not None else {}
        write_json({**story.to_dict(), **facts})
    else:
        print_report(session, story, standing)
    if story.facts["found"]:
        return 0
    return 5 if story.facts.get("problems") else 3


def _selection(
    session: CliContext, story: SkillReport, name: str, goal: str | None
) -> SelectionExplanation | None:
    """The selection for a request; None without a request or without the skill."""
    if goal is None:
        return None
    from satchel.cli.goal_text import read_goal

    text = read_goal(session, [goal], None, f"satchel why {one_line(name)} --goal")
    if not story.facts["found"]:
        return None
    return session.satchel.explain_selection(session.find(name)[0], text)


def print_report(
    session: CliContext, story: SkillReport, standing: SelectionExplanation | None = None
) -> None:
    """Print the report, after the selection for a request."""
    out = session.out
    out.line(one_line(story.verdict), lead=[(one_line(story.name) + say(": "), "bold")])
    shown = show_selection(standing) if standing is not None else None
    if shown is not None:  # the answer to the request comes first
        print_selection(out, shown)
    for chapter in story.chapters:
        mark, colour = _MOODS[chapter.mood]
        out.write(f"\n{out.paint(mark, colour)} {out.paint(chapter.title, 'bold')}\n")
        for line in chapter.lines:
            text = clean(line, keep="")
            deeper = len(text) - len(text.lstrip(" "))
            out.line(text.lstrip(" "), "", "  " + " " * deeper)
    if shown is None:
        _print_advice(out, story.advice)
        return
    # For a skill without problems, the only advice would be to ask about a request.
    steps = (*(() if story.sound else story.advice), *(step.text for step in shown.steps))
    if shown.chosen and not steps:
        steps = (say("Nothing to fix: this request gets it"),)
    _print_advice(out, steps)
    show_notes(session.err, shown.notes)


def _print_advice(out: Screen, steps: Sequence[str]) -> None:
    if steps:
        out.title(say("What to do next"))
    for line in steps:
        out.line(clean(line, keep=""), "", "  → ")


# --- doctor -------------------------------------------------------------------------------


class LocationProblems(NamedTuple):
    """The problems of one location."""

    title: str
    root: str
    problems: list[Problem]


@command(
    say("Show every problem of every location, grouped, with fixes.")
    + "\n\n"
    + say("Exits with 1 when there are errors; with `--strict` also when there are warnings."),
    "satchel doctor",
    "satchel doctor --all",
    "satchel doctor --strict --json",
)
@click.option(
    "--all", "everything", is_flag=True, help=say("Every problem one by one, however many repeat.")
)
@click.option("--strict", is_flag=True, help=say("Warnings count as errors."))
def doctor(session: CliContext, everything: bool, strict: bool, as_json: bool) -> int:
    """Read every skill in full."""
    session.warns = False  # they are among the problems
    satchel = session.satchel
    tools = satchel.library.tools(refresh=True)
    snapshot = satchel.library.snapshot()
    skills = satchel.library.every()
    problems = satchel.problems(deep=True, progress=with_progress(skills, say("Reading skills")))
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
            _print_location(session.out, location, everything=everything)
        session.err.line(checked(files, counts))
        session.print_root()
    return 1 if counts["errors"] or (strict and counts["warnings"]) else 0


def _by_location(
    locations: Iterable[Location], problems: Iterable[Problem], project: str
) -> list[LocationProblems]:
    """Group problems by location, in the order of locations."""
    groups = [LocationProblems(location.name, location.path, []) for location in locations]
    singles = {location.name for location in locations if location.single}
    rest = LocationProblems(say("settings and the rest"), project, [])
    # The deepest folder wins: `.agents/skills` is inside `.`.
    deepest = sorted(groups, key=lambda location: -len(location.root))
    for problem in unique_problems(problems):
        path = problem.path
        for location in deepest:
            inside = is_inside(path, location.root)
            if inside and (location.title not in singles or os.path.dirname(path) == location.root):
                if location.title in singles and os.path.basename(path).lower() != "skill.md":
                    continue
                location.problems.append(problem)
                break
        else:
            rest.problems.append(problem)
    return [location for location in (*groups, rest) if location.problems]


def _print_location(out: Screen, location: LocationProblems, *, everything: bool) -> None:
    """Print one location: single problems by file, then repeated ones."""
    words = counted(**count_problems(location.problems))
    out.line(words, "dim", hang="  ", lead=[(one_line(location.title), "bold"), ("  ", "")])
    by_code: dict[str, list[Problem]] = {}
    for problem in location.problems:
        by_code.setdefault(problem.code, []).append(problem)
    many = (
        {}
        if everything
        else {code: rows for code, rows in by_code.items() if len(rows) > MAX_EXAMPLES}
    )
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
        lead = [(f"{mark} {say(rows[0].severity)}", colour), (f" {code} ×{len(rows)}", "bold")]
        out.line("", "", "  ", lead=lead)
        fix = rows[0].fix
        shared = all(problem.fix == fix for problem in rows)
        for problem in rows[:MAX_EXAMPLES]:
            line = f":{problem.line}" if problem.line else ""
            where = _within(location.root, problem.path) + line
            out.line(one_line(problem.message), "", "    ", "      ", [(where + say(": "), "cyan")])
            if not shared:
                out.line(one_line(problem.fix), "", "      → ")
        out.line(
            say("… and {count} more: `satchel doctor --all`", count=len(rows) - MAX_EXAMPLES),
            "dim",
            "    ",
        )
        if shared:
            out.line(one_line(fix), "", "    → ")


def _within(root: str, path: str) -> str:
    return one_line(os.path.relpath(path, root) if is_inside(path, root) else path)
