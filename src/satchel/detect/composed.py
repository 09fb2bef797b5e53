"""What do all detectors share that are made of others?

They pass on what they do not decide, and they stand when a member falls: its error becomes a note,
and the others' answer stands. Where nothing stands, `look` gives an empty answer with the note, and
`detect`, `rank` and `place`, which have no room for a note, raise the error.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, cast

from satchel.detect.answer import look, only_matches
from satchel.detect.base import Answer
from satchel.detect.explicit import NOTHING, Heard
from satchel.detect.merging import EXPLICIT, add_costs, denied, each_once, interleave, without
from satchel.detect.notes import FAILED, RULED_OUT, why_failed
from satchel.detect.placing import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.detect.base import Detector, Match, Place
    from satchel.skill import Skill

    Ranks = Callable[[Detector, str, Sequence[Skill], int], list[Match]]


class Composed:
    """What all compositions share; what is not said otherwise is passed on to the members."""

    name = "composed"

    def __init__(self, *members: Detector) -> None:
        if not members:
            raise ValueError("a composition needs at least one detector")
        self.members = members
        self._last_fewer: tuple[Sequence[Skill], frozenset[str], Sequence[Skill]] | None = None

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The whole answer; it does not raise because a member does."""
        return self._timed(goal_text, skills)[0]

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """The chosen ones, best first."""
        answer, error = self._timed(goal_text, skills)
        if error is not None:
            raise error
        return answer.matches

    def rank(self, goal_text: str, skills: Sequence[Skill], limit: int = 50) -> list[Match]:
        """The best `limit` skills, whether they fit or not; what is ruled out comes last."""
        return self._ranked(rank, goal_text, skills, limit)

    def order(self, goal_text: str, skills: Sequence[Skill], limit: int = 50) -> list[Match]:
        """The same without reasons, for who shows none."""
        return self._ranked(order, goal_text, skills, limit)

    def _ranked(
        self, ask: Ranks, goal_text: str, skills: Sequence[Skill], limit: int
    ) -> list[Match]:
        """What `rank` and `order` have in common: `ask` is how a member is asked."""
        lists: list[list[Match]] = []
        errors: list[Exception] = []
        for member in self.members:
            try:
                lists.append(ask(member, goal_text, skills, limit))
            except Exception as exc:  # noqa: BLE001 - a member may be anybody's
                errors.append(exc)
        if not lists:
            raise errors[0]
        return put_last(interleave(lists), self._listen(goal_text, skills)[0].ruled_out)[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """Where one skill stands for the first member that ranks it."""
        places: list[Place] = []
        errors: list[Exception] = []
        for member in self.members:
            try:
                places.append(place(member, goal_text, skills, skill))
            except Exception as exc:  # noqa: BLE001 - a member may be anybody's
                errors.append(exc)
        if not places:
            raise errors[0]
        found = next((one for one in places if one.rank), places[0])
        reason = notes_for(self._listen(goal_text, skills)[0]).get(skill.name)
        return denied(found, skill, reason) if reason else found

    def heard(self, goal_text: str, skills: Sequence[Skill]) -> Heard:
        """What the members hear the goal say about skills by name."""
        return _together(heard_by(member, goal_text, skills) for member in self.members)

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - as the protocol has it
    ) -> Any:
        """Build the index of each member that keeps one; None when none does."""
        made: Any = None
        for member in self.members:
            make = getattr(member, "prepare", None)
            if make is not None:
                one = make(skills, progress=progress, rebuild=rebuild)
                made = one if made is None else made
        return made

    def close(self) -> None:
        """Let go of files."""
        for member in self.members:
            close = getattr(member, "close", None)
            if close is not None:
                close()

    def _answer(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Answer, Exception | None]:
        """The answer, and the error if nothing but errors came."""
        raise NotImplementedError

    def _timed(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Answer, Exception | None]:
        began = time.perf_counter()
        answer, error = self._answer(goal_text, skills)
        return answer._replace(took_ms=(time.perf_counter() - began) * 1e3), error

    def _listen(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Heard, tuple[str, ...]]:
        """What is said about skills by name, and what a person should know about it."""
        try:
            heard = self.heard(goal_text, skills)
        except Exception as exc:  # noqa: BLE001 - a slip there must not stop the others
            return NOTHING, (FAILED.format(name=EXPLICIT, reason=why_failed(exc)),)
        return heard, heard.notes

    def _ask(
        self,
        member: Detector,
        goal_text: str,
        skills: Sequence[Skill],
        ruled_out: Mapping[str, str],
        sentence: str,
    ) -> tuple[Answer, Exception | None]:
        """A member's answer without some skills.

        If one of them was chosen, the member is asked again as if they were not there: how well
        the next one fits, and who comes after it, it has not said yet.
        """
        answer, error = ask(member, goal_text, skills, sentence)
        stood = {match.name for match in answer.matches} | {kept for _, kept in answer.collapsed}
        called = any(match.detector == EXPLICIT for match in answer.matches)
        if error is not None or called or ruled_out.keys().isdisjoint(stood):
            return without(answer, ruled_out), error
        again, error = ask(member, goal_text, self._fewer(skills, ruled_out), sentence)
        if error is not None:
            return without(answer, ruled_out), None
        notes = (*again.notes, *without(answer, ruled_out).notes)
        cost = add_costs((answer.cost, again.cost))
        return again._replace(notes=each_once(notes), cost=cost), None

    def _fewer(self, skills: Sequence[Skill], ruled_out: Iterable[str]) -> Sequence[Skill]:
        """The skills without some: the same tuple for the same ones, as detectors keep indexes."""
        out = frozenset(ruled_out)
        last = self._last_fewer
        if last is not None and last[0] is skills and last[1] == out:
            return last[2]
        fewer = tuple(skill for skill in skills if skill.name not in out)
        if isinstance(skills, tuple):
            self._last_fewer = (skills, out, fewer)
        return fewer


def name_of(detector: object) -> str:
    """What a detector calls itself."""
    return str(getattr(detector, "name", type(detector).__name__))


def rank(detector: Detector, goal_text: str, skills: Sequence[Skill], limit: int) -> list[Match]:
    """The best skills of any detector, whether they fit or not, as far as it can tell."""
    ranks = getattr(detector, "rank", None)
    if ranks is not None:
        return only_matches(detector, ranks(goal_text, skills, limit))
    return only_matches(detector, detector.detect(goal_text, skills))[:limit]


def order(detector: Detector, goal_text: str, skills: Sequence[Skill], limit: int) -> list[Match]:
    """The same without reasons, where a detector can spare itself the look for them."""
    if not _orders_as_it_ranks(type(detector)):
        return rank(detector, goal_text, skills, limit)
    orders: Any = detector
    return only_matches(detector, orders.order(goal_text, skills, limit))


def _orders_as_it_ranks(kind: type) -> bool:
    """Whether a class has an `order` that belongs to its `rank`.

    One that was made of ours may have a `rank` of its own above our `order`: its word counts.
    """
    for one in kind.__mro__:
        if "order" in one.__dict__:
            return callable(one.__dict__["order"]) and hasattr(kind, "rank")
        if "rank" in one.__dict__:
            return False
    return False


def put_last(found: list[Match], names: Iterable[str]) -> list[Match]:
    """The same list with some skills behind all others, and with no better scores than theirs."""
    out = frozenset(names)
    if not out:
        return found
    first = [match for match in found if match.name not in out]
    most = first[-1].score if first else math.inf
    last = [match for match in found if match.name in out]
    return first + [match._replace(score=min(match.score, most)) for match in last]


def ask(
    member: Detector, goal_text: str, skills: Sequence[Skill], sentence: str
) -> tuple[Answer, Exception | None]:
    """A member's answer; or an empty one with a note, and the error."""
    try:
        answer = look(member, goal_text, skills)
        return answer._replace(matches=list(answer.matches)), None
    except Exception as exc:  # noqa: BLE001 - a member may be anybody's
        name = name_of(member)
        note = sentence.format(name=name, reason=why_failed(exc))
        return nothing(name)._replace(notes=(note,)), exc


def nothing(name: str) -> Answer:
    """The answer of a detector that found nothing."""
    return Answer([], [], 0.0, 0.0, name, 0.0)


def heard_by(detector: object, goal_text: str, skills: Sequence[Skill]) -> Heard:
    """What a detector hears the goal say about skills by name; nothing if it does not listen."""
    hears = getattr(detector, "heard", None)
    return cast("Heard", hears(goal_text, skills)) if hears is not None else NOTHING


def goal_for(member: object, goal_text: str, heard: Heard) -> str:
    """What a member searches with: who listens gets it all, others what it is about."""
    if heard.rest is None or hasattr(member, "heard"):
        return goal_text
    return heard.rest


def _together(all_heard: Iterable[Heard]) -> Heard:
    """What several heard; who is ruled out by one is ruled out."""
    several = [heard for heard in all_heard if heard != NOTHING]
    if not several:
        return NOTHING
    unwanted = {one.skill.name: one for heard in several for one in heard.unwanted}
    wanted = {one.skill.name: one for heard in several for one in heard.wanted}
    return Heard(
        tuple(one for name, one in wanted.items() if name not in unwanted),
        tuple(unwanted.values()),
        tuple(dict.fromkeys(one for heard in several for one in heard.unknown)),
        each_once(note for heard in several for note in heard.notes),
        tuple({one.skill.name: one for heard in several for one in heard.meant}.values()),
        any(heard.none for heard in several) and not wanted,
        min((heard.rest for heard in several if heard.rest is not None), key=len, default=None),
    )


def notes_for(heard: Heard) -> dict[str, str]:
    """Who is ruled out, with the note for each."""
    return {name: RULED_OUT.format(name=name) for name in sorted(heard.ruled_out)}
