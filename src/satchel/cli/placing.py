"""Why is a skill chosen for a request, or not? The part of `satchel why` after `--goal`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import language, listed, say
from satchel.cli.bars import bar, bar_width, share_of
from satchel.cli.choosing import EXPLICIT, NO_REASON, decider, match_dict, told_reason
from satchel.cli.output import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.detect import Answer, Place
    from satchel.skill.model import Skill

_FIELDS = (
    "explicit", "head", "description", "when", "triggers", "body",
    "about", "name", "clauses", "vectors",
)  # fmt: skip
"""In the order they are shown; a detector may know others."""
_WORDS = 6
"""Words of the goal that are named at most."""
_GOAL = 200
_HEAD = 20
"""Columns that the name of a skill may take above its numbers."""
_LATIN, _EASTERN = 32, 6
"""Signs of what is still a word, in Latin letters and in others."""
_POINTING = frozenset("这那哪每各某這")
"""Signs that begin words which only point at something, such as 这份."""
_LITTLE = 0.005
"""Less is shown as nothing."""


class Standing(NamedTuple):
    """Where a skill stands for one request, and why."""

    goal: str
    skill: Skill
    place: Place | None
    """None when no request can choose it: it has tools and no instructions."""
    answer: Answer
    offered: bool
    chosen: bool
    copy_of: str
    """The near copy that stands for it, or nothing."""


def find_standing(session: Session, skill: Skill, goal: str) -> Standing:
    """Ask the detector about one skill and one goal. Nothing is recorded as selected."""
    satchel = session.satchel
    answer = satchel.which(goal, record=False)
    offered = skill.state == "active" and skill.for_model and not skill.is_tool
    return Standing(
        goal,
        skill,
        None if skill.is_tool else satchel.place(skill.path, goal),
        answer,
        offered,
        offered and any(match.skill.path == skill.path for match in answer.matches),
        dict(answer.collapsed).get(skill.name, "") if offered else "",
    )


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
        "advice": list(advise(standing)),
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
                "by": [field for field, _ in _more(fields, place.fields)],
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
    for line in _verdict(standing):
        out.line(line, "", "  ")
    if place is None:
        return
    if place.match is not None and place.rank and (reason := told_reason(place.match)):
        # Who is called by name has a reason that says so.
        called = place.match.detector == EXPLICIT
        judge = "" if called else f"{decider(place.match, standing.answer)}{say(': ')}"
        out.line(reason, "", "  ", "    ", [(judge, "cyan")] if judge else ())
    _show_fields(out, standing, place)
    _show_ahead(out, place)
    lacking = [] if by_name(standing.answer) else telling(place.missing)
    if lacking:
        words = listed(f"`{one_line(word)}`" for word in lacking[:_WORDS])
        out.line()
        out.line(words, "", "  ", "    ", [(say("words it has nowhere") + say(": "), "bold")])


def _verdict(standing: Standing) -> Iterable[str]:
    """Whether it would be chosen; first of all whether it could."""
    place, answer = standing.place, standing.answer
    if place is None:
        yield say("it has tools and no instructions: models call its tools, and nothing chooses it")
        return
    rank = say("ranked {rank} of {count}", rank=_ordinal(place.rank), count=place.of)
    if not standing.offered:
        yield say("it is not offered, so it cannot be chosen")
        if place.rank:
            yield say("if it were offered, it would be {rank}", rank=rank)
        else:
            yield say("nothing of it matches, either")
    elif standing.chosen:
        yield say("it would be chosen: {rank}", rank=rank)
    elif standing.copy_of:
        copy = one_line(standing.copy_of)
        yield say("it is not chosen: its near copy `{name}` stands for it", name=copy)
    elif place.rank:
        yield say("it is not chosen: {rank}", rank=rank)
    elif place.match is not None:
        reason = told_reason(place.match) or say("nothing of it matches")
        yield say("it is not chosen: {reason}", reason=reason)
    else:
        yield say("it is not chosen: nothing of it matches")
    if not answer.matches and answer.threshold and place.rank:
        yield say(
            "no skill is: {fit} % sure of the best; at least {needed} % is needed",
            fit=round(100 * answer.fit),
            needed=round(100 * answer.threshold),
        )
    elif standing.offered and not standing.chosen and answer.matches:
        names = listed(f"`{one_line(match.name)}`" for match in answer.matches)
        yield say("chosen instead: {names}", names=names)


def _label(field: str, account: Mapping[str, float]) -> str:
    """What a part of the account is called. Where words are one part, the others are meanings."""
    if field == "name" and ("about" in account or "head" in account):
        return say("meaning of the name")
    return {
        "explicit": say("called by name"),
        "head": say("name and description"),
        "name": say("name"),
        "description": say("description"),
        "when": say("when to use"),
        "triggers": say("triggers"),
        "body": say("instructions"),
        "about": say("meaning"),
        "clauses": say("meaning, by sentence"),
        "vectors": say("meaning"),
    }.get(field) or one_line(field)


def _show_fields(out: Screen, standing: Standing, place: Place) -> None:
    """What each field gave, beside what it gave to the best one ahead."""
    rival, theirs = place.ahead[0] if place.ahead else (None, {})
    known = [*_FIELDS, *(field for field in place.fields if field not in _FIELDS)]
    shown = [
        field
        for field in known
        if place.fields.get(field, 0.0) > _LITTLE or theirs.get(field, 0.0) > _LITTLE
    ]
    if not shown or not place.fields:
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
        ["", _label(field, whole), meter(place.fields, field), *([meter(theirs, field)] * compared)]
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
        more = [
            say("{field} (+{more})", field=_label(field, fields), more=f"{value:.2f}")
            for field, value in _more(fields, place.fields)
        ]
        by = listed(more) or told_reason(match) or NO_REASON
        rows.append(["", str(at), one_line(match.name), f"{match.score:.2f}", by])
    out.line()
    out.table(
        ["", "", say("ahead of it"), say("score"), say("by")],
        rows,
        [["", "dim", "bold", "dim", ""] for _ in rows],
    )


def _more(theirs: Mapping[str, float], own: Mapping[str, float]) -> list[tuple[str, float]]:
    """The fields that gave a rival more, the weightiest first."""
    found = [(field, value - own.get(field, 0.0)) for field, value in theirs.items()]
    return sorted((pair for pair in found if pair[1] > _LITTLE), key=lambda pair: -pair[1])


def by_name(answer: Answer) -> bool:
    """Whether names alone decided: some skill was called, or none is wanted."""
    return answer.detector == EXPLICIT or any(one.detector == EXPLICIT for one in answer.matches)


def telling(words: Iterable[str]) -> list[str]:
    """The words that a description could have: no grammar, no asking, no whole sentences."""
    from satchel.detect.idle import IDLE, IDLE_SIGNS, IDLE_WORDS

    found: list[str] = []
    for word in words:
        plain = "".join(char for char in word.casefold() if char.isalnum())
        latin = plain.isascii()
        if not plain or plain in IDLE or plain in IDLE_WORDS or len(word.split()) > 1:
            continue
        if len(plain) > (_LATIN if latin else _EASTERN) or all(
            char in IDLE_SIGNS for char in plain
        ):
            continue
        if not latin and (plain[0] in _POINTING or plain[:1] == plain[1:]):
            continue
        if not latin and _shares(plain, found):  # another cut of a word that is there
            continue
        found.append(word)
    return found


def _shares(word: str, found: Iterable[str]) -> bool:
    return any(char in other for other in found for char in word if not char.isascii())


def _ordinal(rank: int) -> str:
    """`1st`, `2nd`, `11th`; where the language has a word around the number, the number."""
    if language() != "en":
        return str(rank)
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{rank:,}" + ("th" if rank % 100 in (11, 12, 13) else ends.get(rank % 10, "th"))


def advise(standing: Standing) -> Iterable[str]:
    """Next steps for this request, the most useful first."""
    place, skill = standing.place, standing.skill
    if place is None or standing.chosen or (not place.rank and place.match is not None):
        return
    name = one_line(skill.name)
    if standing.copy_of:
        yield say(
            "Keep one of the two, or say in both descriptions when which of them is meant: "
            "`satchel show {name}`",
            name=one_line(standing.copy_of),
        )
        return
    if by_name(standing.answer):
        # No word of a description changes what somebody has called by its name, or ruled out.
        if standing.offered and standing.answer.matches:
            yield _call_it(name)
        return
    if not place.rank:
        yield say("This request may simply not be for it: then there is nothing to do")
    lacking = telling(place.missing)
    if lacking:
        words = listed(f"`{one_line(word)}`" for word in lacking[:_WORDS])
        yield say("Put words such as {words} into its description, where they are true",
                  words=words)  # fmt: skip
    if not standing.offered:
        return
    if place.ahead and standing.answer.matches:
        yield say(
            "Say in the description of `{name}` what it is not for, if it is not for this",
            name=one_line(place.ahead[0][0].name),
        )
    yield _call_it(name)


def _call_it(name: str) -> str:
    return say("Call it by its name: a request with `use skill {name}` always gets it", name=name)
