"""The command `why`: the status of one skill, and its rank for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.search import NO_REASON, match_dict, show_notes
from satchel.cli.console import clean, cut, one_line, write_json
from satchel.cli.context import command, read_goal, skill_argument
from satchel.explain_selection import next_steps, score_differences
from satchel.i18n import join_names, say
from satchel.presentation.skill_page import show_selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.explain_selection import SelectionExplanation
    from satchel.presentation.skill_page import SelectionShown
    from satchel.skill_report import SkillReport

_MAX_GOAL_CHARS = 200


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
    _show_ahead(out, shown)
    if shown.lacks:
        words = join_names(f"`{one_line(word)}`" for word in shown.lacks)
        out.line()
        out.line(words, "", "  ", "    ", [(say("missing words") + say(": "), "bold")])


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


_MOODS = {
    "good": ("●", "green"),
    "bad": ("▲", "yellow"),
    "plain": ("·", "dim"),
    "broken": ("✗", "red"),
}


# --- why ----------------------------------------------------------------------------------


@command(
    say("Explain a skill's status, and what to do next."),
    "satchel why hello-skill",
    'satchel why hello-skill --goal "welcome our new colleague"',
)
@skill_argument()
@click.option("--goal", metavar="TEXT", help=say("A request, or `-` for stdin."))
def why(session: CliContext, name: str, goal: str | None, as_json: bool) -> int:
    """Print the report."""
    story = session.satchel.why(name)
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

    text = read_goal(session, [goal], f"satchel why {one_line(name)} --goal")
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
    steps = (*(() if story.sound else story.advice), *shown.steps)
    _print_advice(out, steps)
    show_notes(session.err, shown.notes)


def _print_advice(out: Screen, steps: Sequence[str]) -> None:
    if steps:
        out.title(say("What to do next"))
    for line in steps:
        out.line(clean(line, keep=""), "", "  → ")
