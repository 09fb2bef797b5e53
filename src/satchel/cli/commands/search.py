"""The command `search`: the skills that fit a request, the reasons, and the runners-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel import explain_selection
from satchel.cli.console import cut, one_line, write_json
from satchel.cli.context import ProgressBar, command, read_goal
from satchel.cli.options import flag_option, limit_option
from satchel.detect.base import DetectorNote
from satchel.errors import NotFound, SkillBroken
from satchel.explain_selection import EXPLICIT
from satchel.i18n import join_names, render, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.detect import Detection, Match

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
@click.argument("words", nargs=-1, required=True)
@limit_option()
@flag_option("--explain", say("Show the reasons and the runners-up."))
@flag_option("--hub", say("Search the hubs of the settings instead."))
def search(
    context: CliContext,
    words: tuple[str, ...],
    limit: int | None,
    explain: bool,
    hub: bool,
    as_json: bool,
) -> int:
    text = read_goal(context, words, "satchel search")
    if hub:
        return _search_hubs(context, text, limit, explain=explain, as_json=as_json)
    if limit is not None:
        context.given["shortlist"] = limit
    with context.index_progress():
        answer = fitting(context.satchel.which(text, record=False))
    if as_json:
        write_json(_to_dict(answer, text))
    else:
        _show(context, answer, explain=explain)
    return 0 if answer.matches else NONE_FITS


def _search_hubs(
    context: CliContext, text: str, limit: int | None, *, explain: bool, as_json: bool
) -> int:
    from satchel.store.hub_client.hubs import Hubs

    satchel = context.satchel
    with ProgressBar(say("Building the search index")) as bar:
        answer, total, left_out = Hubs.of(satchel.settings).search(
            text,
            limit,
            patience=_HUB_INDEX_TIMEOUT_S,
            on_wait=lambda done, count: bar("", done, count),
        )
    answer = fitting(answer)
    show_notes(context.err, left_out)
    if as_json:
        write_json(_to_dict(answer, text))
    else:
        _show(context, answer, explain=explain, total=total)
        if answer.matches:
            command = f"satchel install {answer.matches[0].name}"
            context.err.line(say("Run `{command}`", command=command), "dim", "→ ")
    return 0 if answer.matches else NONE_FITS


def fitting(answer: Detection) -> Detection:
    """Move matches whose own confidence is below the threshold to the runners-up."""
    fits = [one for one in answer.matches if _fits(one, answer)]
    rest = [one for one in answer.matches if one not in fits]
    return answer._replace(matches=fits, runners_up=[*rest, *answer.runners_up]) if rest else answer


def _fits(match: Match, answer: Detection) -> bool:
    return match.detector == EXPLICIT or confidence(match, answer) >= answer.threshold


def _to_dict(answer: Detection, goal: str) -> dict[str, Any]:
    return {
        "goal": goal[:_MAX_GOAL_CHARS],
        "fits": bool(answer.matches),
        "skills": [match_dict(match, answer) for match in answer.matches],
        "runners_up": [match_dict(match, answer) for match in answer.runners_up],
        "near_copies": [{"name": copy, "of": first} for copy, first in answer.collapsed],
        "detector": answer.detector,
        "fit": round(float(answer.fit), 4),
        "threshold": round(float(answer.threshold), 4),
        "took_ms": round(float(answer.took_ms), 3),
        "notes": list(answer.notes),
        "cost": answer.cost,
    }


def match_dict(match: Match, answer: Detection) -> dict[str, Any]:
    """A match as JSON."""
    return {
        "name": match.name,
        "score": round(float(match.score), 4),
        "confidence": round(confidence(match, answer), 4),
        "reason": match.reason,
        "evidence": list(match.evidence),
        "description": match.skill.description,
        "ref": match.skill.ref,
        "detector": match.detector or answer.detector,
    }


def _show(
    context: CliContext, answer: Detection, *, explain: bool, total: int | None = None
) -> None:
    out = context.out
    if not answer.matches:
        show_notes(context.err, notes_of(context, answer.notes))
        _show_none(context, answer)
    elif explain:
        _show_reasons(out, answer)
    else:
        rows = [
            ["●", one_line(one.name), _fit(one, answer), one_line(one.skill.description)]
            for one in answer.matches
        ]
        head = ["", say("name"), say("fit"), say("description")]
        out.table(head, rows, [["green", "bold", "cyan"] for _ in rows])
    if explain and answer.runners_up:
        out.line()
        _show_runners_up(out, answer)
    err = context.err
    if answer.matches:
        if total is None:
            total = len(context.satchel.library.snapshot().skills)
        err.line(_summary(answer, total))
        show_notes(err, notes_of(context, answer.notes))


def _fit(match: Match, answer: Detection) -> str:
    """How well a skill fits; `by name` for one that the request names."""
    return (
        say("by name") if match.detector == EXPLICIT else f"{percent(confidence(match, answer))} %"
    )


def _show_reasons(out: Screen, answer: Detection) -> None:
    for at, match in enumerate(answer.matches):
        if at:
            out.line()
        lead = [("● ", "green"), (one_line(match.name), "bold"), ("  ", "")]
        out.line(_fit(match, answer), "cyan", hang="  ", lead=lead)
        about = cut(one_line(match.skill.description), out.width - 2 if out.width else 0)
        out.line(about, "dim", "  ")
        if reason := format_reason(match):
            by = one_line(explain_selection.selected_by(match, answer))
            out.line(reason, "", "  ", "    ", [(by + say(": "), "cyan")])
        copies = [copy for copy, original in answer.collapsed if original == match.name]
        if copies:
            shown = join_names(f"`{one_line(name)}`" for name in copies[:_MAX_COPIES_SHOWN])
            more = len(copies) - _MAX_COPIES_SHOWN
            text = say("{names} and {count} more", names=shown, count=more) if more > 0 else shown
            out.line(text, "dim", "  ", lead=[(say("near duplicates") + say(": "), "dim")])


def _show_runners_up(out: Screen, answer: Detection) -> None:
    rows = [
        ["○", one_line(one.name), _fit(one, answer), format_reason(one) or NO_REASON]
        for one in answer.runners_up[:_MAX_RUNNERS_UP_SHOWN]
    ]
    head = ["", say("not selected"), say("fit"), say("reason")]
    out.table(head, rows, [["dim", "dim", "dim", "dim"] for _ in rows])
    if len(answer.runners_up) > len(rows):
        out.line(say("… and {count} more", count=len(answer.runners_up) - len(rows)), "dim")


def _show_none(context: CliContext, answer: Detection) -> None:
    """Print how close the nearest skill is, without its name, and what to do."""
    text = ""
    if answer.runners_up and answer.threshold:
        text = say(
            "the closest reaches {fit} %, {needed} % is needed",
            fit=percent(answer.fit),
            needed=percent(answer.threshold),
        )
    context.err.line(text, lead=[(say("No skill fits") + (say(": ") if text else ""), "bold")])
    if answer.runners_up:
        step = say("Run `{command}`", command='satchel search "…" --explain')
        context.err.line(step, "", "→ ")
    if not context.satchel.library.untrusted_skills():
        step = say("Create a skill with `satchel new`, or install one with `satchel install`")
        context.err.line(step, "", "→ ")


def _summary(answer: Detection, total: int) -> str:
    return say("{count} of {total} skills", count=len(answer.matches), total=f"{total:,}")


def notes_of(context: CliContext, notes: Iterable[str]) -> list[str]:
    """The notes; of a named skill that is broken, the problem instead of `There is no skill`."""
    found: list[str] = []
    for note in notes:
        if isinstance(note, DetectorNote) and note.code.startswith("unknown-skill"):
            error = context.not_found(str(note.values.get("name", "")))
            found.append(error.message if isinstance(error, SkillBroken) else note)
        else:
            found.append(note)
    return found


def show_notes(err: Screen, notes: Iterable[str]) -> None:
    """Print notes about the search."""
    for note in notes:
        err.line(one_line(render(note)), "dim")


def format_reason(match: Match) -> str:
    """The reason of a match on one line; empty when its detector gave none."""
    return one_line(explain_selection.reason_text(match))


def confidence(match: Match, answer: Detection) -> float:
    """The confidence from 0 to 1: of the first match, in proportion for the others.

    Only scores of the same detector are compared. Without a threshold there is no confidence, and
    the best match has a full bar.
    """
    every = (*answer.matches, *answer.runners_up)
    most = max(one.score for one in every if one.detector == match.detector)
    sure = answer.fit if answer.threshold else 1.0
    return min(max(match.score, 0.0) / most, 1.0) * sure if most > 0 else 0.0


def percent(value: float) -> int:
    """A share in percent, rounded down: 100 means certain, and 50 at least a half."""
    return int(100 * value + 1e-6)
