"""Why is a skill as it is, and what is wrong here? why, doctor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel._fs import is_inside
from satchel._language import listed, say
from satchel.cli.choosing import NO_REASON, bar, bar_width, match_dict, share_of
from satchel.cli.output import SEVERITIES, clean, cut, one_line, write_json
from satchel.cli.progress import with_progress
from satchel.cli.session import command, complete_names
from satchel.cli.showing import checked, count_problems, counted, show_problems
from satchel.cli.values import WholeNumber
from satchel.library.snapshot import find_broken
from satchel.settings import Settings
from satchel.standing import (
    WORDS,
    advise,
    fields_shown,
    label,
    lacking,
    more,
    reason_of,
    told_more,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.detect import Place
    from satchel.library import Location
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.standing import Standing
    from satchel.why import Story

_GOAL = 200
_HEAD = 20
"""Columns that the name of a skill may take above its numbers."""


def find_standing(session: Session, skill: Skill, goal: str) -> Standing:
    """Ask the detector about one skill and one goal. Nothing is recorded as selected."""
    return session.satchel.stand(skill, goal)


def standing_dict(standing: Standing) -> dict[str, Any]:
    """The form for `--json`."""
    place, answer = standing.place, standing.answer
    told: dict[str, Any] = {
        "text": standing.goal[:_GOAL],
        "offered": standing.offered,
        "chosen": standing.chosen,
        "near_copy_of": standing.copy_of or None,
        "fit": round(float(answer.fit), 4),
        "threshold": round(float(answer.threshold), 4),
        "detector": answer.detector,
        "instead": [match.name for match in answer.matches] if not standing.chosen else [],
        "advice": [one_line(step) for step in advise(standing)],
        "notes": list(answer.notes),
    }
    if place is None:
        return {**told, "rank": None, "of": None}
    return {
        **told,
        "rank": place.rank or None,
        "of": place.of,
        "match": match_dict(place.match, answer) if place.match is not None else None,
        "fields": {field: round(float(value), 4) for field, value in place.fields.items()},
        "missing": list(place.missing),
        "ahead": [
            {
                **match_dict(match, answer),
                "fields": {field: round(float(value), 4) for field, value in fields.items()},
                "by": [field for field, _ in more(fields, place.fields)],
            }
            for match, fields in place.ahead
        ],
    }


# --- for people ---------------------------------------------------------------------------


def show_standing(out: Screen, standing: Standing) -> None:
    """Print the chapter."""
    place = standing.place
    mark, colour = ("●", "green") if standing.chosen else ("▲", "yellow")
    out.write(f"\n{out.paint(mark, colour)} {out.paint(say('For this request'), 'bold')}\n")
    out.line(f"“{cut(one_line(standing.goal), _GOAL)}”", "dim", "  ")
    for line in verdict(standing):
        out.line(one_line(line), "", "  ")
    if place is None:
        return
    judge, reason = reason_of(standing)
    if reason:
        lead = [(f"{one_line(judge)}{say(': ')}", "cyan")] if judge else ()
        out.line(one_line(reason), "", "  ", "    ", lead)
    _show_fields(out, standing, place)
    _show_ahead(out, place)
    missing = lacking(standing)
    if missing:
        words = listed(f"`{one_line(word)}`" for word in missing[:WORDS])
        out.line()
        out.line(words, "", "  ", "    ", [(say("words it has nowhere") + say(": "), "bold")])


def _show_fields(out: Screen, standing: Standing, place: Place) -> None:
    """What each field gave, beside what it gave to the best one ahead."""
    rival, theirs = place.ahead[0] if place.ahead else (None, {})
    shown = fields_shown(place)
    if not shown:
        return
    most = max((*place.fields.values(), *theirs.values()))
    whole = {**theirs, **place.fields}
    wide = bar_width(out.width)
    compared = rival is not None and bool(theirs)
    head = ["", say("field"), cut(one_line(standing.skill.name), _HEAD)]
    if compared and rival is not None:
        head.append(cut(one_line(rival.name), _HEAD))

    def meter(account: Mapping[str, float], field: str) -> str:
        value = account.get(field, 0.0)
        filled = f"{bar(share_of(value, most), wide)}  " if wide else ""
        return f"{filled}{value:.2f}"

    rows = [
        [
            "",
            one_line(label(field, whole)),
            meter(place.fields, field),
            *([meter(theirs, field)] * compared),
        ]
        for field in shown
    ]
    out.line()
    out.table(head, rows, [["", "bold", "", "dim"] for _ in rows])


def _show_ahead(out: Screen, place: Place) -> None:
    """What beat it, and by which field."""
    if not place.ahead:
        return
    rows: list[list[str]] = []
    for at, (match, fields) in enumerate(place.ahead, 1):
        by = one_line(told_more(match, fields, place.fields)) or NO_REASON
        rows.append(["", str(at), one_line(match.name), f"{match.score:.2f}", by])
    out.line()
    out.table(
        ["", "", say("ahead of it"), say("score"), say("by")],
        rows,
        [["", "dim", "bold", "dim", ""] for _ in rows],
    )


MANY = 3
"""A problem that a location has more often is shown by this many examples."""
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
def why(session: Session, name: str, budget: int | None, goal: str | None, as_json: bool) -> int:
    """The story, coloured by how it went."""
    story = session.satchel.why(name, budget)
    standing = _standing(session, story, name, goal)
    if as_json:
        told = {"goal": standing_dict(standing)} if standing is not None else {}
        write_json({**story.to_dict(), **told})
    else:
        tell_story(session, story, standing)
    if story.facts["found"]:
        return 0
    return 5 if story.facts.get("problems") else 3


def _standing(session: Session, story: Story, name: str, goal: str | None) -> Standing | None:
    """How the skill does for a request; None when nobody asked, or there is no skill."""
    if goal is None:
        return None
    from satchel.cli.asking import read_goal

    text = read_goal(session, [goal], None, f"satchel why {one_line(name)} --goal")
    if not story.facts["found"]:
        return None

    return find_standing(session, session.find(name)[0], text)


def tell_story(session: Session, story: Story, standing: Standing | None = None) -> None:
    """Print the story, after how the skill does for a request."""
    out = session.out
    out.line(one_line(story.verdict), lead=[(one_line(story.name) + say(": "), "bold")])
    if standing is not None:  # who asks about a request wants that first
        show_standing(out, standing)
    for chapter in story.chapters:
        mark, colour = _MOODS[chapter.mood]
        out.write(f"\n{out.paint(mark, colour)} {out.paint(chapter.title, 'bold')}\n")
        for line in chapter.lines:
            text = clean(line, keep="")
            deeper = len(text) - len(text.lstrip(" "))
            out.line(text.lstrip(" "), "", "  " + " " * deeper)
    if standing is None:
        _advise(out, story.advice)
        return
    from satchel.cli.choosing import show_notes
    from satchel.standing import advise

    # Where nothing is to mend, the story only says: ask about a request.
    steps = (*(() if story.sound else story.advice), *advise(standing))
    if standing.chosen and not steps:
        steps = (say("Nothing to fix: this request gets it"),)
    _advise(out, steps)
    show_notes(session.err, standing.answer.notes)


def _advise(out: Screen, steps: Sequence[str]) -> None:
    if steps:
        out.title(say("What to do next"))
    for line in steps:
        out.line(clean(line, keep=""), "", "  → ")


# --- doctor -------------------------------------------------------------------------------


class Ward(NamedTuple):
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
def doctor(session: Session, everything: bool, strict: bool, as_json: bool) -> int:
    """Reads every skill whole."""
    session.warns = False  # they are among the problems
    satchel = session.satchel
    tools = satchel.library.tools(refresh=True)
    snapshot = satchel.library.snapshot()
    skills = satchel.library.every()
    problems = satchel.problems(deep=True, progress=with_progress(skills, say("Reading skills")))
    wards = _admit(satchel.library.locations, problems, satchel.settings.project)
    counts = count_problems(problems)
    wrong = (*snapshot.problems, *tools.problems)
    files = len(skills) + len(find_broken(wrong, satchel.library.locations))
    if as_json:
        rows = [
            {"location": ward.title, **problem.to_dict()}
            for ward in wards
            for problem in ward.problems
        ]
        told = {"project": satchel.settings.project, **counts, "files": files}
        write_json({**told, "skills": len(skills), "problems": rows})
    else:
        for at, ward in enumerate(wards):
            if at:
                session.out.line()
            _visit(session.out, ward, everything=everything)
        session.err.line(checked(files, counts))
        session.tell_root()
    return 1 if counts["errors"] or (strict and counts["warnings"]) else 0


def _admit(locations: Iterable[Location], problems: Iterable[Problem], project: str) -> list[Ward]:
    """Sort problems by the location they belong to, in the order of locations."""
    wards = [Ward(location.name, location.path, []) for location in locations]
    singles = {location.name for location in locations if location.single}
    rest = Ward(say("settings and the rest"), project, [])
    # The deepest folder wins: `.agents/skills` lies inside `.`.
    deepest = sorted(wards, key=lambda ward: -len(ward.root))
    for problem in dict.fromkeys(map(_Key, problems)):
        path = problem.problem.path
        for ward in deepest:
            inside = is_inside(path, ward.root)
            if inside and (ward.title not in singles or os.path.dirname(path) == ward.root):
                if ward.title in singles and os.path.basename(path).lower() != "skill.md":
                    continue
                ward.problems.append(problem.problem)
                break
        else:
            rest.problems.append(problem.problem)
    return [ward for ward in (*wards, rest) if ward.problems]


class _Key:
    """A problem as a key: the same one may be found by the scan and by the deep look."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._key = (*problem[:3], tuple(sorted(problem.values.items())))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._key == other._key


def _visit(out: Screen, ward: Ward, *, everything: bool) -> None:
    """Print one location: first what is there once, file by file, then what repeats."""
    words = counted(**count_problems(ward.problems))
    out.line(words, "dim", hang="  ", lead=[(one_line(ward.title), "bold"), ("  ", "")])
    by_code: dict[str, list[Problem]] = {}
    for problem in ward.problems:
        by_code.setdefault(problem.code, []).append(problem)
    many = {} if everything else {code: rows for code, rows in by_code.items() if len(rows) > MANY}
    by_file: dict[str, list[Problem]] = {}
    for problem in ward.problems:
        if problem.code not in many:
            by_file.setdefault(problem.path, []).append(problem)
    for path, rows in by_file.items():
        out.line(_within(ward.root, path), "cyan", "  ")
        show_problems(out, rows, "    ")
    order = list(SEVERITIES)
    for code, rows in sorted(many.items(), key=lambda pair: order.index(pair[1][0].severity)):
        mark, colour = SEVERITIES[rows[0].severity]
        lead = [(f"{mark} {say(rows[0].severity)}", colour), (f" {code} ×{len(rows)}", "bold")]
        out.line("", "", "  ", lead=lead)
        fix = rows[0].fix
        shared = all(problem.fix == fix for problem in rows)
        for problem in rows[:MANY]:
            where = _within(ward.root, problem.path) + (f":{problem.line}" if problem.line else "")
            out.line(one_line(problem.message), "", "    ", "      ", [(where + say(": "), "cyan")])
            if not shared:
                out.line(one_line(problem.fix), "", "      → ")
        out.line(
            say("… and {count} more: `satchel doctor --all`", count=len(rows) - MANY), "dim", "    "
        )
        if shared:
            out.line(one_line(fix), "", "    → ")


def _within(root: str, path: str) -> str:
    return one_line(os.path.relpath(path, root) if is_inside(path, root) else path)
