"""Is a skill trusted, and what would be approved? An approval is for what was looked at.

A look takes the skill as it is at that moment and gives a mark for it. Whoever approves says the
mark: when the skill is something else by then, nothing is approved.
"""

from __future__ import annotations

import os
from hmac import compare_digest
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import render, say
from satchel.errors import Changed, Conflict, LockBroken, NotFound, Refused, SatchelError
from satchel.tools.frame import printable
from satchel.ui.views.findings import MOODS, severity_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.facade import Approved, Satchel
    from satchel.library.survey import Taken
    from satchel.security import Report
    from satchel.skill.model import Skill

State = Literal["free", "waits", "changed", "off", "refused", "approved", "own", "project"]
"""`free`: it needs no trust. `waits`: nobody approved it. `changed`: not as it was approved. `off`:
nobody can be asked. `refused`: it is not what was locked. The others are trusted: as it is, because
its author is the user, or with its whole project."""
FILES = 200
"""Files that are named; more are counted."""
FINDINGS = 20
_TRIES = 3


class Seen(NamedTuple):
    """A file that would be approved."""

    path: str
    change: str
    """`new`, `changed`, `gone` against what was approved; empty when it is as it was, or nothing
    was."""
    runs: bool
    """It can be run."""


class Found(NamedTuple):
    """What a scan found in it."""

    rule: str
    severity: str
    mood: str
    words: str
    where: str
    evidence: str


class Look(NamedTuple):
    """A skill as it is now, for somebody who decides about it."""

    mark: str
    """Names this very content."""
    files: tuple[Seen, ...]
    more: int
    programs: int
    again: bool
    """Something else was approved before."""
    verdict: str
    mood: str
    found: tuple[Found, ...]
    more_found: int
    unscanned: int
    tools: tuple[str, ...]
    wants: tuple[str, ...]
    """What its tools may do."""
    origin: str
    """The server it comes from."""


class Trust(NamedTuple):
    """How a skill stands."""

    state: State
    words: str
    hint: str
    look: Look | None
    """What would be approved; None when nothing is to be decided, or it cannot be approved."""
    waiting: bool
    """Somebody may trust everything in this project."""
    since: str
    can_revoke: bool


def trust_of(satchel: Satchel, skill: Skill) -> Trust:
    """How a skill stands, and what there is to decide."""
    state, hint = _state(satchel, skill)
    row = satchel.library.trust.folders().get(os.path.realpath(skill.base_dir))
    look: Look | None = None
    if state in ("waits", "changed"):
        try:
            look = _look(satchel, skill)
        except SatchelError as exc:
            hint = f"{render(exc.message)}{say('. ')}{render(exc.hint)}"
    waiting = state in ("waits", "changed") and not skill.origin.remote
    return Trust(
        state,
        _words(state, skill),
        hint,
        look,
        waiting and skill.source != "global",
        row.since[:10] if row is not None and state in ("approved", "own") else "",
        row is not None or state == "project",
    )


def _state(satchel: Satchel, skill: Skill) -> tuple[State, str]:
    library, look = satchel.library, satchel.library.snapshot()
    if skill.state == "untrusted":
        if satchel.settings.trust == "none":
            return "off", satchel.how_to_ask()
        asks = skill.ref in look.asking or skill.ref in library.tools().asking
        return ("changed" if asks else "waits"), ""
    try:
        library.seals.check(skill, clean=False)
    except LockBroken as exc:
        return "refused", f"{render(exc.message)}{say('. ')}{render(exc.hint)}"
    except Changed:
        return "changed", ""
    except SatchelError as exc:
        return "refused", f"{render(exc.message)}{say('. ')}{render(exc.hint)}"
    location = next((one for one in library.locations if one.origin == skill.origin), None)
    if location is None or location.trusted is not None:
        return "free", ""
    real = os.path.realpath(skill.base_dir)
    row = library.trust.folders().get(real)
    if row is not None and row.kind != "project":
        return ("own" if row.kind == "own" else "approved"), ""
    return ("project" if library.trust.binding(real) is None else "free"), ""


def _words(state: State, skill: Skill) -> str:
    return {
        "free": say("It needs no trust: this place is yours, or ships with a product"),
        "waits": say("It came with this project, and nobody has trusted it yet"),
        "changed": say("It is not what you approved: look at it again"),
        "off": say("Your setting `trust` is `none`: skills of a project are never offered"),
        "refused": say("It is not what was locked, so it is refused when it is loaded"),
        "approved": say("You approved it as it is now. A change asks again"),
        "own": say("It is your own: you may edit it, and it stays trusted"),
        "project": say("It is trusted together with the whole project, now and later"),
    }[state] if not skill.origin.remote or state != "waits" else say(
        "It comes from a server, and nobody has approved it yet"
    )  # fmt: skip


# --- what would be approved ---------------------------------------------------------------


def _look(satchel: Satchel, skill: Skill) -> Look:
    """What is there now. The scan is of the very files that the mark is for.

    Raises:
        SatchelError: it cannot be bound to its content, or changes all the time.
    """
    for _ in range(_TRIES):
        taken = satchel.library.seals.take(skill)
        report = satchel.scan(skill) if not skill.origin.remote else None
        again = satchel.library.seals.take(skill) if report is not None else taken
        if again.seal.digest == taken.seal.digest:
            return _told(satchel, taken, report)
    raise Conflict(say("It changes while it is looked at"), say("Look again in a moment"))


def _told(satchel: Satchel, taken: Taken, report: Report | None) -> Look:
    skill, marks = taken.skill, taken.seal.files
    before = _approved(satchel, skill)
    programs = frozenset(report.inventory.programs if report is not None else ())
    seen = list(_files(marks, before, programs))
    # What changed comes first: that is what somebody decides about.
    seen.sort(key=lambda one: (not one.change, not one.runs, one.path))
    source = satchel.library.tools().of(skill)
    verdict = severity_words()[report.verdict] if report is not None else say("not scanned")
    findings = list(_findings(report)) if report is not None else []
    return Look(
        mark_of(taken),
        tuple(seen[:FILES]),
        max(len(seen) - FILES, 0),
        sum(one.runs for one in seen if one.change != "gone"),
        before is not None,
        verdict,
        MOODS[report.verdict] if report is not None else "info",
        tuple(findings[:FINDINGS]),
        max(len(findings) - FINDINGS, 0),
        len(report.unscanned) if report is not None else 0,
        tuple(printable(one) for one in source.tools) if source is not None else (),
        tuple(printable(one) for one in source.wants) if source is not None else (),
        printable(skill.origin.remote),
    )


def mark_of(taken: Taken) -> str:
    """Names a content and how a scan of the disk reads it."""
    from hashlib import sha256

    whole = f"{taken.seal.digest}\0{taken.head}\0{taken.skill.ref}"
    return sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _approved(satchel: Satchel, skill: Skill) -> Mapping[str, str] | None:
    """The files as they were approved last; None when they were not, or nobody knows."""
    trust = satchel.library.trust
    row = trust.folders().get(os.path.realpath(skill.base_dir))
    return trust.files_of(row.digests[0]) if row is not None and row.digests else None


def _files(
    marks: Mapping[str, str], before: Mapping[str, str] | None, programs: frozenset[str]
) -> Iterator[Seen]:
    for path, mark in marks.items():
        change = ""
        if before is not None and before.get(path) != mark:
            change = "changed" if path in before else "new"
        runs = path in programs or (mark.endswith(" x") and path.lower() != "skill.md")
        yield Seen(printable(path), change, runs)
    for path in before or ():
        if path not in marks:
            yield Seen(printable(path), "gone", runs=False)


def _findings(report: Report) -> Iterator[Found]:
    words = severity_words()
    for one in report.findings:
        yield Found(
            one.rule,
            words[one.severity],
            MOODS[one.severity],
            say(one.about.what),
            printable(f"{one.path}:{one.line}" if one.line else one.path),
            printable(" ".join(one.evidence.split())),
        )


# --- to decide ----------------------------------------------------------------------------


def approve(satchel: Satchel, skill: Skill, mark: str) -> Approved:
    """Trust a skill, if it still is what was looked at.

    Raises:
        Conflict: it is something else by now.
        Refused: the approval cannot be kept, or the setting `trust` is `none`.
    """
    taken = satchel.library.seals.take(skill)
    if not compare_digest(mark_of(taken).encode(), mark.encode("utf-8", "replace")):
        raise Conflict(
            say("`{name}` changed since you looked at it, so it is not trusted",
                name=printable(skill.name)),
            say("Load the page again, and look at what changed"),
        )  # fmt: skip
    return satchel.approve([taken])


def approve_project(satchel: Satchel) -> Approved:
    """Trust everything in the project, now and later.

    Raises:
        Refused: it cannot be kept, or the setting `trust` is `none`.
    """
    return satchel.trust(None, always=True)


def take_back(satchel: Satchel, skill: Skill | None) -> None:
    """Take trust back: from one skill, or with None from the whole project.

    Raises:
        Refused: the skill is trusted together with its project.
        NotFound: there was none.
    """
    gone = satchel.untrust(skill)
    if skill is not None and not gone and satchel.library.trust.binding(
        os.path.realpath(skill.base_dir)
    ) is None:  # fmt: skip
        raise Refused(
            say("`{name}` is trusted together with the whole project", name=printable(skill.name)),
            say("Take the trust in the project back, then trust the others one by one"),
        )
    if not gone:
        raise NotFound(say("There was no trust to take back"), say("Load the page again"))
