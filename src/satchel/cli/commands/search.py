"""The command `search`: the skills that fit a request, the reasons, and the runners-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.list_skills import hub_name
from satchel.cli.console import count_skills, cut, one_line, write_json
from satchel.cli.context import ProgressBar, command, read_goal, short_path
from satchel.cli.options import flag_option, limit_option
from satchel.detect.base import DetectorNote
from satchel.diagnosis import selection
from satchel.diagnosis.selection import (
    confidence,
    fit_text,
    move_weak_matches,
    threshold_text,
)
from satchel.errors import NotFound, SkillBroken
from satchel.i18n import join_names, render, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.detect import Detection, Match
    from satchel.detect.base import IndexReport

NONE_FITS = NotFound.exit_code
"""Exit code when no skill fits."""
NO_REASON = "–"
"""The cell of a table for a match without a reason."""
_MAX_GOAL_CHARS = 200
_HUB_INDEX_TIMEOUT_S = 60.0
_MAX_RUNNERS_UP_SHOWN = 5
_MAX_COPIES_SHOWN = 4


@command(
    say("Find the skills that fit a request, best first."),
    "satchel search review a pull request",
    'satchel search "write a skill" --explain',
    "satchel search --hub fill in a form",
)
@click.argument("words", nargs=-1)
@limit_option()
@flag_option("--explain", say("Show the reasons and the runners-up."))
@flag_option("--hub", say("Search the hubs of the settings instead."))
@flag_option("--build-index", say("Only build the search index, with all embeddings."), "index")
def search(
    context: CliContext,
    words: tuple[str, ...],
    limit: int | None,
    explain: bool,
    hub: bool,
    index: bool,
    as_json: bool,
) -> int:
    if index:
        return _build_index(context, as_json=as_json)
    text = read_goal(context, words, "satchel search")
    if hub:
        return _search_hubs(context, text, limit, explain=explain, as_json=as_json)
    if limit is not None:
        context.overrides["shortlist"] = limit
    with context.index_progress():
        detection = move_weak_matches(context.satchel.which(text, record=False))
    if as_json:
        write_json(_to_dict(detection, text))
    else:
        _print_detection(context, detection, explain=explain)
    return 0 if detection.matches else NONE_FITS


def _search_hubs(
    context: CliContext, text: str, limit: int | None, *, explain: bool, as_json: bool
) -> int:
    from satchel.store.hub_client.hubs import Hubs

    satchel = context.satchel
    with ProgressBar(say("Building the search index")) as bar:
        detection, total, remarks = Hubs.of(satchel.settings).search(
            text,
            limit,
            patience=_HUB_INDEX_TIMEOUT_S,
            on_wait=lambda completed, count: bar("", completed, count),
        )
    detection = move_weak_matches(detection)
    show_notes(context.err, remarks)
    if as_json:
        write_json(_to_dict(detection, text))
    else:
        _print_detection(context, detection, explain=explain, total=total)
        if detection.matches:
            name = detection.matches[0].name
            skills = satchel.library.snapshot().find(name.rpartition("/")[2])
            if any(hub_name(satchel, skill).partition("@")[0] == name for skill in skills):
                text = say("`{name}` is installed", name=one_line(name))
            else:
                text = say("Run `{command}`", command=f"satchel install {name}")
            context.err.line(text, "dim", indent="→ ")
    return 0 if detection.matches else NONE_FITS


def _build_index(context: CliContext, *, as_json: bool) -> int:
    satchel = context.satchel
    total = len(satchel.library.snapshot().skills)
    with ProgressBar(say("Building the search index")) as bar:
        report = satchel.prepare(lambda completed: bar("", min(completed, total), total))
    if as_json:
        write_json(report and {**report._asdict(), "seconds": round(report.seconds, 3)})
    elif report is None:
        context.err.line(say("This detector has no index"))
    else:
        _print_index(context, report, satchel.settings.embeddings)
    return 0


def _print_index(context: CliContext, report: IndexReport, embeddings: str) -> None:
    out = context.out
    values = {"changed": f"{report.changed:,}", "seconds": f"{report.seconds:.1f}"}
    text = say("{changed} re-indexed in {seconds} s", **values)
    out.line(text, lead=[(count_skills(report.skills) + say(", "), "bold")])
    out.line(one_line(report.engine), indent="  ", lead=[(say("engine") + say(": "), "dim")])
    if report.vectors:
        model = one_line(embeddings or report.vectors)
        text = f"{count_skills(report.embedded)} ({model})"
        out.line(text, indent="  ", lead=[(say("embeddings") + say(": "), "dim")])
    if report.folder:
        folder = one_line(short_path(report.folder))
        out.line(folder, indent="  ", lead=[(say("folder") + say(": "), "dim")])


def _to_dict(detection: Detection, goal: str) -> dict[str, Any]:
    return {
        "goal": goal[:_MAX_GOAL_CHARS],
        "fits": bool(detection.matches),
        "skills": [match_dict(match, detection) for match in detection.matches],
        "runners_up": [match_dict(match, detection) for match in detection.runners_up],
        "near_copies": [{"name": copy, "of": first} for copy, first in detection.collapsed],
        "detector": detection.detector,
        "fit": round(float(detection.fit), 4),
        "threshold": round(float(detection.threshold), 4),
        "took_ms": round(float(detection.took_ms), 3),
        "notes": list(detection.notes),
        "cost": detection.cost,
    }


def match_dict(match: Match, detection: Detection) -> dict[str, Any]:
    """Return a match as JSON."""
    return {
        "name": match.name,
        "score": round(float(match.score), 4),
        "confidence": round(confidence(match, detection), 4),
        "reason": match.reason,
        "evidence": list(match.evidence),
        "description": match.skill.description,
        "ref": match.skill.ref,
        "detector": match.detector or detection.detector,
    }


def _print_detection(
    context: CliContext, detection: Detection, *, explain: bool, total: int | None = None
) -> None:
    out = context.out
    if not detection.matches:
        show_notes(context.err, explain_notes(context, detection.notes))
        _print_none(context, detection)
    elif explain:
        _print_reasons(out, detection)
    else:
        rows = [
            [
                "●",
                one_line(match.name),
                fit_text(match, detection),
                one_line(match.skill.description),
            ]
            for match in detection.matches
        ]
        titles = ["", say("name"), say("fit"), say("description")]
        out.table(titles, rows, [["green", "bold", "cyan"] for _ in rows])
    if explain and detection.runners_up:
        out.line()
        _print_runners_up(out, detection)
    err = context.err
    if detection.matches:
        if total is None:
            total = len(context.satchel.library.snapshot().skills)
        err.line(_summary(detection, total))
        show_notes(err, explain_notes(context, detection.notes))


def _print_reasons(out: Screen, detection: Detection) -> None:
    for index, match in enumerate(detection.matches):
        if index:
            out.line()
        lead = [("● ", "green"), (one_line(match.name), "bold"), ("  ", "")]
        out.line(fit_text(match, detection), "cyan", hang="  ", lead=lead)
        description = cut(one_line(match.skill.description), out.width - 2 if out.width else 0)
        out.line(description, "dim", indent="  ")
        if reason := format_reason(match):
            label = one_line(selection.detector_label(match, detection))
            out.line(reason, indent="  ", hang="    ", lead=[(label + say(": "), "cyan")])
        copies = [copy for copy, original in detection.collapsed if original == match.name]
        if copies:
            text = join_names(f"`{one_line(name)}`" for name in copies[:_MAX_COPIES_SHOWN])
            hidden_count = len(copies) - _MAX_COPIES_SHOWN
            if hidden_count > 0:
                text = say("{names} and {count} more", names=text, count=hidden_count)
            out.line(text, "dim", indent="  ", lead=[(say("near duplicates") + say(": "), "dim")])


def _print_runners_up(out: Screen, detection: Detection) -> None:
    rows = [
        ["○", one_line(match.name), fit_text(match, detection), format_reason(match) or NO_REASON]
        for match in detection.runners_up[:_MAX_RUNNERS_UP_SHOWN]
    ]
    titles = ["", say("not selected"), say("fit"), say("reason")]
    out.table(titles, rows, [["dim", "dim", "dim", "dim"] for _ in rows])
    if len(detection.runners_up) > len(rows):
        out.line(say("… and {count} more", count=len(detection.runners_up) - len(rows)), "dim")


def _print_none(context: CliContext, detection: Detection) -> None:
    """Print how close the nearest skill is, without its name, and what to do."""
    text = threshold_text(detection) if detection.runners_up and detection.threshold else ""
    context.err.line(text, lead=[(say("No skill fits") + (say(": ") if text else ""), "bold")])
    if detection.runners_up:
        step = say("Run `{command}`", command='satchel search "…" --explain')
        context.err.line(step, indent="→ ")
    if not context.satchel.library.untrusted_skills():
        step = say("Create a skill with `satchel new`, or install one with `satchel install`")
        context.err.line(step, indent="→ ")


def _summary(detection: Detection, total: int) -> str:
    return say("{count} of {total} skills", count=len(detection.matches), total=f"{total:,}")


def explain_notes(context: CliContext, notes: Iterable[str]) -> list[str]:
    """Return the notes; of a named skill that is broken, its problem instead."""
    messages: list[str] = []
    for note in notes:
        if isinstance(note, DetectorNote) and note.code.startswith("unknown-skill"):
            error = context.not_found(str(note.values.get("name", "")))
            messages.append(error.message if isinstance(error, SkillBroken) else note)
        else:
            messages.append(note)
    return messages


def show_notes(err: Screen, notes: Iterable[str]) -> None:
    """Print notes about the search."""
    for note in notes:
        err.line(one_line(render(note)), "dim")


def format_reason(match: Match) -> str:
    """Return the reason of a match on one line; empty when its detector gave none."""
    return one_line(selection.reason_text(match))
