"""Why is a skill chosen for a request, or not? The part of `satchel why` after `--goal`.

What is said comes from `satchel.standing`; here it is put on a screen, and into `--json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._language import listed, say
from satchel.cli.bars import bar, bar_width, share_of
from satchel.cli.choosing import NO_REASON, match_dict
from satchel.cli.output import cut, one_line
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
    from collections.abc import Mapping

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.detect import Place
    from satchel.skill.model import Skill
    from satchel.standing import Standing

_GOAL = 200
_HEAD = 20
"""Columns that the name of a skill may take above its numbers."""


def find_standing(session: Session, skill: Skill, goal: str) -> Standing:
    """Ask the detector about one skill and one goal. Nothing is recorded as selected."""
    return session.satchel.stand(skill, goal)


def to_dict(standing: Standing) -> dict[str, Any]:
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
