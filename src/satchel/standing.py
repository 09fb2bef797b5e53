"""Why is a skill chosen for a request, or not? For terminals and pages alike.

The detector says where a skill stands (`Place`) and who is chosen (`Answer`); this module makes
words of it: whether it would be chosen, what each field gave, what beat it, and what would help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import language, listed, render, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from satchel.detect import Answer, Match, Place
    from satchel.skill.model import Skill

EXPLICIT = "explicit"
"""Who hears a skill called by its name."""
FIELDS = (
    "explicit", "head", "description", "when", "triggers", "body",
    "about", "name", "clauses", "vectors",
)  # fmt: skip
"""In the order they are shown; a detector may know others."""
WORDS = 6
"""Words of the goal that are named at most."""
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


def standing_of(skill: Skill, goal: str, place: Place | None, answer: Answer) -> Standing:
    """What the detector said about one skill and one goal, put together."""
    offered = skill.state == "active" and skill.for_model and not skill.is_tool
    return Standing(
        goal,
        skill,
        place,
        answer,
        offered,
        offered and any(match.skill.path == skill.path for match in answer.matches),
        dict(answer.collapsed).get(skill.name, "") if offered else "",
    )


# --- in words -----------------------------------------------------------------------------


def verdict(standing: Standing) -> Iterator[str]:
    """Whether it would be chosen; first of all whether it could."""
    place, answer = standing.place, standing.answer
    if place is None:
        yield say("it has tools and no instructions: models call its tools, and nothing chooses it")
        return
    rank = say("ranked {rank} of {count}", rank=ordinal(place.rank), count=place.of)
    if not standing.offered:
        yield say("it is not offered, so it cannot be chosen")
        if place.rank:
            yield say("if it were offered, it would be {rank}", rank=rank)
        else:
            yield say("nothing of it matches, either")
    elif standing.chosen:
        yield say("it would be chosen: {rank}", rank=rank)
    elif standing.copy_of:
        yield say("it is not chosen: its near copy `{name}` stands for it", name=standing.copy_of)
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
        names = listed(f"`{match.name}`" for match in answer.matches)
        yield say("chosen instead: {names}", names=names)


def reason_of(standing: Standing) -> tuple[str, str]:
    """Who judged it, and why it fits; empty where there is nothing to say."""
    place = standing.place
    if place is None or place.match is None or not place.rank:
        return "", ""
    # Who is called by name has a reason that says so.
    called = place.match.detector == EXPLICIT
    reason = told_reason(place.match)
    return ("" if called or not reason else decider(place.match, standing.answer)), reason


def label(field: str, account: Mapping[str, float]) -> str:
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
    }.get(field) or field


def fields_shown(place: Place) -> list[str]:
    """The fields that gave something to the skill, or to the best one ahead of it."""
    theirs = place.ahead[0][1] if place.ahead else {}
    known = [*FIELDS, *(field for field in place.fields if field not in FIELDS)]
    shown = [
        field
        for field in known
        if place.fields.get(field, 0.0) > _LITTLE or theirs.get(field, 0.0) > _LITTLE
    ]
    return shown if place.fields else []


def more(theirs: Mapping[str, float], own: Mapping[str, float]) -> list[tuple[str, float]]:
    """The fields that gave a rival more, the weightiest first."""
    found = [(field, value - own.get(field, 0.0)) for field, value in theirs.items()]
    return sorted((pair for pair in found if pair[1] > _LITTLE), key=lambda pair: -pair[1])


def told_more(match: Match, theirs: Mapping[str, float], own: Mapping[str, float]) -> str:
    """By what a rival is ahead."""
    found = [
        say("{field} (+{more})", field=label(field, theirs), more=f"{value:.2f}")
        for field, value in more(theirs, own)
    ]
    return listed(found) or told_reason(match)


def told_reason(match: Match) -> str:
    """Why a skill fits, for a person; nothing when its detector gave no reason."""
    return " ".join(render(match.reason).split()) if match.reason.strip() else ""


def decider(match: Match, answer: Answer) -> str:
    """Who chose it, in a word or two."""
    name = match.detector or answer.detector
    if name == EXPLICIT:
        return say("called by name")
    if name in ("hybrid", "lexical", "minimal", "words"):
        by_vectors = any(item.startswith(("meaning: ", "vectors: ")) for item in match.evidence)
        return say("words and vectors") if by_vectors else say("words")
    return say("a model") if name == "model" else name


def ordinal(rank: int) -> str:
    """`1st`, `2nd`, `11th`; where the language has a word around the number, the number."""
    if language() != "en":
        return str(rank)
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{rank:,}" + ("th" if rank % 100 in (11, 12, 13) else ends.get(rank % 10, "th"))


# --- what would help ----------------------------------------------------------------------


def by_name(answer: Answer) -> bool:
    """Whether names alone decided: some skill was called, or none is wanted."""
    return answer.detector == EXPLICIT or any(one.detector == EXPLICIT for one in answer.matches)


def lacking(standing: Standing) -> list[str]:
    """The telling words of the request that the skill has nowhere; none where names decided."""
    place = standing.place
    return [] if place is None or by_name(standing.answer) else telling(place.missing)


def telling(words: Iterable[str]) -> list[str]:
    """The words that a description could have: no grammar, no asking, no whole sentences."""
    from satchel.detect.terms import IDLE, IDLE_SIGNS, IDLE_WORDS

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


def advise(standing: Standing) -> Iterator[str]:
    """Next steps for this request, the most useful first."""
    place, skill = standing.place, standing.skill
    if place is None or standing.chosen or (not place.rank and place.match is not None):
        return
    if standing.copy_of:
        yield say(
            "Keep one of the two, or say in both descriptions when which of them is meant: "
            "`satchel show {name}`",
            name=standing.copy_of,
        )
        return
    if by_name(standing.answer):
        # No word of a description changes what somebody has called by its name, or ruled out.
        if standing.offered and standing.answer.matches:
            yield _call_it(skill.name)
        return
    if not place.rank:
        yield say("This request may simply not be for it: then there is nothing to do")
    if not standing.offered:
        return
    if place.ahead and standing.answer.matches:
        yield say(
            "Say in the description of `{name}` what it is not for, if it is not for this",
            name=place.ahead[0][0].name,
        )
    yield _call_it(skill.name)


def _call_it(name: str) -> str:
    return say("Call it by its name: a request with `use skill {name}` always gets it", name=name)
