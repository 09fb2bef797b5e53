"""The problems of every location, grouped by kind, with one sentence over all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.skill.problems import PROBLEMS
from satchel.ui.views.findings import (
    MOODS,
    SHOWN,
    Group,
    Place,
    in_general,
    severity_words,
    shown_path,
    skill_at,
)
from satchel.ui.views.shelf import waiting_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.facade import Satchel
    from satchel.skill.problems import Problem
    from satchel.ui.views.jobs import Tell

_ORDER = ("error", "warning", "note")


class Unseen(NamedTuple):
    """Skills that are sound, and that a model does not see as their authors wrote them."""

    words: str
    link: str
    door: str
    """What the link says."""


class Doctor(NamedTuple):
    """What the doctor says."""

    mood: str
    verdict: str
    """One sentence."""
    errors: int
    warnings: int
    notes: int
    skills: int
    """How many there are."""
    groups: list[Group]
    """Worst first."""
    unseen: tuple[Unseen, ...] = ()


def look_deep(satchel: Satchel, tell: Tell) -> list[Problem]:
    """Find all problems, as `satchel doctor` does: every skill is read whole."""
    skills = satchel.library.every()

    def told() -> Iterator[object]:
        for at, skill in enumerate(skills):
            tell(at, len(skills))
            yield skill
        tell(len(skills), len(skills))

    return satchel.problems(deep=True, progress=told())


def diagnosis(satchel: Satchel, problems: Sequence[Problem]) -> Doctor:
    """Group problems for the page; one that was found twice counts once."""
    by_code: dict[str, list[Problem]] = {}
    for problem in _once(problems):
        by_code.setdefault(problem.code, []).append(problem)
    counts = dict.fromkeys(_ORDER, 0)
    for code, rows in by_code.items():
        counts[PROBLEMS[code].severity] += len(rows)
    order = sorted(
        by_code, key=lambda code: (_ORDER.index(PROBLEMS[code].severity), -len(by_code[code]), code)
    )
    errors, warnings, notes = (counts[severity] for severity in _ORDER)
    skills = len(satchel.library.every())
    unseen = tuple(_unseen(satchel))
    mood = "bad" if errors else "warn" if warnings or unseen else "good"
    groups = [_group(satchel, code, by_code[code]) for code in order]
    verdict = _verdict(errors, warnings, notes, skills, unseen=bool(unseen))
    return Doctor(mood, verdict, errors, warnings, notes, skills, groups, unseen)


def _unseen(satchel: Satchel) -> Iterator[Unseen]:
    """What no file is to blame for: the budget, and trust that nobody gave yet."""
    look = satchel.library.snapshot()
    account = satchel.preview(look=look).account
    named, unlisted = len(account.named), account.unlisted
    if named:
        words = say(
            "{count} skills are offered by name only: the budget has no room for more",
            count=f"{named:,}",
        )
        one = say("1 skill is offered by name only: the budget has no room for more")
        yield Unseen(one if named == 1 else words, "/catalogue", say("Try budgets"))
    if unlisted:
        words = say(
            "{count} skills are not listed: a model finds them only by a search",
            count=f"{unlisted:,}",
        )
        one = say("1 skill is not listed: a model finds it only by a search")
        yield Unseen(one if unlisted == 1 else words, "/catalogue", say("Try budgets"))
    waiting = waiting_in(satchel, look)
    if waiting:
        words = say(
            "{count} skills are not trusted: no model is told of them", count=f"{waiting:,}"
        )
        one = say("1 skill is not trusted: no model is told of it")
        yield Unseen(one if waiting == 1 else words, "/skills?state=untrusted", say("Look at them"))


def _once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Each one once: a scan and a deep look may both have found it."""
    seen: set[tuple[object, ...]] = set()
    for problem in problems:
        key = (*problem[:3], tuple(sorted(problem.values.items())))
        if key not in seen:
            seen.add(key)
            yield problem


def _group(satchel: Satchel, code: str, rows: list[Problem]) -> Group:
    rule = PROBLEMS[code]
    project = satchel.settings.project
    words, fix = rows[0].message, rows[0].fix
    first = rows[:SHOWN]
    same_words = all(one.message == words for one in first)
    same_fix = all(one.fix == fix for one in first)
    places: list[Place] = []
    for one in first:
        skill = skill_at(satchel, one.path)
        places.append(
            Place(
                shown_path(one.path, project, one.line),
                skill.ref if skill is not None else "",
                skill.name if skill is not None else "",
                "" if same_words else one.message,
                "" if same_fix else one.fix,
            )
        )
    return Group(
        code,
        severity_words()[rule.severity],
        MOODS[rule.severity],
        len(rows),
        words if same_words else in_general(rule.message),
        fix if same_fix else in_general(rule.fix),
        places,
    )


def _verdict(errors: int, warnings: int, notes: int, skills: int, *, unseen: bool) -> str:
    if not skills and not errors and not warnings:
        return say("There is no skill here yet, and nothing is wrong")
    if errors:
        return say("Something needs you: {words}", words=counted(errors, warnings, notes))
    if warnings:
        return say("It works, but look at this: {words}", words=counted(errors, warnings, notes))
    if unseen:
        return say("Nothing is broken, but a model does not see all of your skills as they are")
    if skills == 1:
        return say("All is well with your skill")
    return say("All is well with your {count} skills", count=f"{skills:,}")


def counted(errors: int, warnings: int, notes: int) -> str:
    """`1 error, 2 warnings`, or nothing."""
    parts: list[str] = []
    if errors:
        parts.append(say("1 error") if errors == 1 else say("{count} errors", count=f"{errors:,}"))
    if warnings:
        many = say("{count} warnings", count=f"{warnings:,}")
        parts.append(say("1 warning") if warnings == 1 else many)
    if notes:
        parts.append(say("1 note") if notes == 1 else say("{count} notes", count=f"{notes:,}"))
    return say(", ").join(parts)
