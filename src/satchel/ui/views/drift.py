"""Is what is installed still what was locked? Both scopes, skill by skill."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.errors import SatchelError
from satchel.retelling import retell
from satchel.ui.views.findings import MARKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.facade import Satchel
    from satchel.skill.model import Skill
    from satchel.store.verify import Standing as Locked
    from satchel.ui.views.jobs import Tell

SHOWN = 100
"""Skills of one scope that are shown; those that drifted come first."""
_FILES = 8
_MOODS = {
    "edited": "warn", "missing": "bad", "unreadable": "bad", "unlocked": "none", "intact": "good",
}  # fmt: skip


class Checked(NamedTuple):
    """What a look at one scope found."""

    scope: Literal["project", "global"]
    folder: str = ""
    found: tuple[Locked, ...] = ()
    trouble: str = ""
    """Why nothing could be compared."""


class Row(NamedTuple):
    """One skill beside its lock."""

    id: str
    ref: str
    state: str
    """As people read it."""
    mood: str
    source: str
    signed: str
    changes: list[tuple[str, str]]
    """(what happened, file)."""
    more: int
    """Files that are not shown."""
    reason: str
    steps: list[tuple[str, str]]
    """(when, the command to run)."""
    mendable: bool = False
    """A page can keep the change, or bring back what was locked."""

    @property
    def mark(self) -> str:
        """A sign for those who see no colours."""
        return MARKS[self.mood]


class Scope(NamedTuple):
    """One scope, for people."""

    name: str
    title: str
    intact: int
    drifted: int
    unlocked: int
    rows: list[Row]
    more: int
    trouble: str


class Drift(NamedTuple):
    """Both scopes."""

    mood: str
    verdict: str
    drifted: int
    intact: int
    unlocked: int
    scopes: list[Scope]


def compare_with_lock(satchel: Satchel, tell: Tell) -> list[Checked]:
    """Compare every installed skill with its lock."""
    found: list[Checked] = []
    scopes: tuple[Literal["project", "global"], ...] = ("project", "global")
    for scope in scopes:
        try:
            store = satchel.store(scope)
            found.append(Checked(scope, store.scope.folder, tuple(store.verify(progress=tell))))
        except SatchelError as exc:  # a damaged lockfile, or a folder that leads elsewhere
            found.append(Checked(scope, trouble=exc.message))
    return found


def drift(satchel: Satchel, found: Sequence[Checked]) -> Drift:
    """The same for people, in the reader's language."""
    scopes = [_scope(satchel, one) for one in found]
    drifted = sum(scope.drifted for scope in scopes)
    intact = sum(scope.intact for scope in scopes)
    loose = sum(scope.unlocked for scope in scopes)
    trouble = any(scope.trouble for scope in scopes)
    mood = "bad" if trouble else "warn" if drifted else "good"
    if trouble:
        verdict = say("Not everything could be compared")
    elif drifted == 1:
        verdict = say("One skill is not what was locked")
    elif drifted:
        verdict = say("{count} skills are not what was locked", count=f"{drifted:,}")
    elif intact == 1:
        verdict = say("1 skill is as it was locked")
    elif intact:
        verdict = say("{count} skills are as they were locked", count=f"{intact:,}")
    elif loose:
        verdict = say("Nothing was imported, so nothing can drift")
    else:
        verdict = say("Nothing is installed here")
    return Drift(mood, verdict, drifted, intact, loose, scopes)


def _scope(satchel: Satchel, found: Checked) -> Scope:
    titles = {"project": say("This project"), "global": say("All your projects")}
    drifted = [one for one in found.found if one.drifted]
    loose = [one for one in found.found if one.state == "unlocked" and not one.drifted]
    intact = [one for one in found.found if one.state == "intact" and not one.drifted]
    shown = [*drifted, *intact, *loose][:SHOWN]
    return Scope(
        found.scope,
        titles[found.scope],
        len(intact),
        len(drifted),
        len(loose),
        [_row(satchel, one, found) for one in shown],
        len(found.found) - len(shown),
        retell(found.trouble),
    )


def _row(satchel: Satchel, one: Locked, found: Checked) -> Row:
    words = {
        "intact": say("intact"),
        "edited": say("edited"),
        "missing": say("missing"),
        "unreadable": say("unreadable"),
        "unlocked": say("not locked"),
    }
    here = os.path.join(found.folder, one.id)
    skills = [skill for skill in satchel.library.find(here) if skill.base_dir == here]
    changes = [
        *((say("changed"), path) for path in one.changed),
        *((say("added"), path) for path in one.added),
        *((say("removed"), path) for path in one.removed),
    ]
    mood = "bad" if one.signature == "invalid" else _MOODS[one.state]
    return Row(
        one.id,
        skills[0].ref if skills else "",
        words[one.state],
        mood,
        _source(one),
        _signed(one),
        changes[:_FILES],
        max(len(changes) - _FILES, 0),
        retell(one.reason),
        _steps(one, skills[0].typed if skills else "", everywhere=found.scope == "global"),
        bool(skills) and one.state == "edited",
    )


def edited_since(satchel: Satchel, skill: Skill) -> bool:
    """Whether somebody changed this skill since it was imported."""
    try:
        store = satchel.store_of(skill)
        if skill.head.id not in store.lock():
            return False
        return store.verify([skill.head.id])[0].state == "edited"
    except SatchelError:  # not ours to change, or a damaged lockfile: Health tells
        return False


def _source(one: Locked) -> str:
    if one.entry is None:
        return say("written here")
    place = one.entry.place
    at = place.commit[:12] or place.ref
    path = f":{place.path}" if place.path else ""
    return f"{place.url}{'@' + at if at else ''}{path}"


def _signed(one: Locked) -> str:
    if one.signature == "unsigned":
        return ""
    words = {"invalid": say("wrong signature"), "unknown-signer": say("somebody unknown")}
    return words.get(one.signature) or one.signer


def _steps(one: Locked, typed: str, *, everywhere: bool) -> list[tuple[str, str]]:
    """What to do next, as commands for a terminal."""
    import shlex

    more = " --global" if everywhere else ""
    name = typed or shlex.quote(one.id)
    if one.state == "edited":
        return [
            (say("Yours? Record it"), f"satchel lock {name}{more}"),
            (say("Not yours? Bring back what was locked"), f"satchel install --frozen{more}"),
        ]
    if one.state == "missing":
        return [
            (say("Bring it back"), f"satchel install{more}"),
            (say("Or let it go"), f"satchel remove {name}{more}"),
        ]
    if one.drifted:
        return [(say("Bring back what was locked"), f"satchel install --frozen{more}")]
    return []
