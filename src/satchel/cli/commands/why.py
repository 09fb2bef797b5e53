"""The command `why`: the status of one skill, and its rank for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.search import NO_REASON, match_dict, show_notes
from satchel.cli.console import clean, cut, one_line, write_json
from satchel.cli.context import command, read_goal, skill_argument
from satchel.diagnosis.selection import next_steps, score_differences
from satchel.i18n import join_names, say
from satchel.presentation.skill_page import show_selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.diagnosis.selection import SelectionExplanation
    from satchel.diagnosis.skill_report import SkillReport
    from satchel.presentation.skill_page import SelectionShown

_MAX_GOAL_CHARS = 200
_SECTION_MARKS = {
    "good": ("●", "green"),
    "bad": ("▲", "yellow"),
    "plain": ("·", "dim"),
    "broken": ("✗", "red"),
}
"""Mood of a section of the report -> its mark and colour."""


def _selection_to_dict(explanation: SelectionExplanation) -> dict[str, Any]:
    """Return the form for `--json`."""
    ranking, detection = explanation.ranking, explanation.detection
    facts: dict[str, Any] = {
        "text": explanation.goal[:_MAX_GOAL_CHARS],
        "offered": explanation.is_offered,
        "chosen": explanation.is_selected,
        "near_copy_of": explanation.near_copy_of or None,
        "fit": round(float(detection.fit), 4),
        "threshold": round(float(detection.threshold), 4),
        "detector": detection.detector,
        "instead": [match.name for match in detection.matches]
        if not explanation.is_selected
        else [],
        "advice": [one_line(step) for step in next_steps(explanation)],
        "notes": list(detection.notes),
    }
    if ranking is None:
        return {**facts, "rank": None, "of": None}
    return {
        **facts,
        "rank": ranking.rank or None,
        "of": ranking.of,
        "match": match_dict(ranking.match, detection) if ranking.match is not None else None,
        "fields": _round_scores(ranking.fields),
        "missing": list(ranking.missing),
        "ahead": [
            {
                **match_dict(match, detection),
                "fields": _round_scores(fields),
                "by": [field for field, _ in score_differences(fields, ranking.fields)],
            }
            for match, fields in ranking.ahead
        ],
    }


def _round_scores(scores: Mapping[str, float]) -> dict[str, float]:
    return {field: round(float(score), 4) for field, score in scores.items()}


# --- output -------------------------------------------------------------------------------


def print_selection(out: Screen, selection: SelectionShown) -> None:
    """Print the selection for a request."""
    mark, colour = ("●", "green") if selection.selected else ("▲", "yellow")
    out.write(f"\n{out.paint(mark, colour)} {out.paint(say('For this request'), 'bold')}\n")
    out.line(f"“{cut(one_line(selection.goal), _MAX_GOAL_CHARS)}”", "dim", indent="  ")
    for line in selection.lines:
        out.line(one_line(line), indent="  ")
    if selection.reason:
        lead = [(f"{one_line(selection.judge)}{say(': ')}", "cyan")] if selection.judge else ()
        out.line(one_line(selection.reason), indent="  ", hang="    ", lead=lead)
    _print_rivals(out, selection)
    if selection.lacks:
        missing_words = join_names(f"`{one_line(word)}`" for word in selection.lacks)
        out.line()
        out.line(
            missing_words,
            indent="  ",
            hang="    ",
            lead=[(say("missing words") + say(": "), "bold")],
        )


def _print_rivals(out: Screen, selection: SelectionShown) -> None:
    if not selection.ahead:
        return
    rows = [
        ["", str(rank), one_line(rival.name), rival.score, one_line(rival.by) or NO_REASON]
        for rank, rival in enumerate(selection.ahead, 1)
    ]
    out.line()
    out.table(
        ["", "", say("ahead of it"), say("score"), say("by")],
        rows,
        [["", "dim", "bold", "dim", ""] for _ in rows],
    )


# --- why ----------------------------------------------------------------------------------


@command(
    say("Explain a skill's status, and what to do next."),
    "satchel why hello-skill",
    'satchel why hello-skill --goal "welcome our new colleague"',
)
@skill_argument()
@click.option("--goal", metavar="TEXT", help=say("A request, or `-` for stdin."))
def why(context: CliContext, name: str, goal: str | None, as_json: bool) -> int:
    """Print the report on a skill, and its selection for a request."""
    report = context.satchel.why(name)
    explanation = _explain_selection(context, report, name, goal)
    if as_json:
        facts = {"goal": _selection_to_dict(explanation)} if explanation is not None else {}
        write_json({**report.to_dict(), **facts})
    else:
        print_report(context, report, explanation)
    if report.facts["found"]:
        return 0
    return 5 if report.facts.get("problems") else 3


def _explain_selection(
    context: CliContext, report: SkillReport, name: str, goal: str | None
) -> SelectionExplanation | None:
    """Explain the selection for a request; None without a request or without the skill."""
    if goal is None:
        return None
    text = read_goal(context, [goal], f"satchel why {one_line(name)} --goal")
    if not report.facts["found"]:
        return None
    return context.satchel.explain_selection(context.find(name)[0], text)


def print_report(
    context: CliContext, report: SkillReport, explanation: SelectionExplanation | None = None
) -> None:
    """Print the report, after the selection for a request."""
    out = context.out
    out.line(one_line(report.verdict), lead=[(one_line(report.name) + say(": "), "bold")])
    selection = show_selection(explanation) if explanation is not None else None
    if selection is not None:  # the answer to the request comes first
        print_selection(out, selection)
    for section in report.chapters:
        mark, colour = _SECTION_MARKS[section.mood]
        out.write(f"\n{out.paint(mark, colour)} {out.paint(section.title, 'bold')}\n")
        for line in section.lines:
            text = clean(line, keep="")
            content = text.lstrip(" ")
            out.line(content, indent=" " * (2 + len(text) - len(content)))
    if selection is None:
        _print_advice(out, report.advice)
        return
    # For a skill without problems, the only advice would be to ask about a request.
    advice = () if report.sound else report.advice
    _print_advice(out, (*advice, *selection.steps))
    show_notes(context.err, selection.notes)


def _print_advice(out: Screen, steps: Sequence[str]) -> None:
    if steps:
        out.title(say("What to do next"))
    for step in steps:
        out.line(clean(step, keep=""), indent="  → ")
