"""Trust as pages show it: a folder that is not trusted yet, and skills that may not be used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import render, say
from satchel.errors import SatchelError
from satchel.tools.frame import printable
from satchel.ui.views.findings import MOODS, show_finding

if TYPE_CHECKING:
    from satchel.facade import FolderReview, Satchel
    from satchel.skill.model import Skill
    from satchel.ui.views.findings import FindingShown
    from satchel.ui.views.jobs import Job

FINDINGS = 20
"""Findings of one skill that are shown."""


class FolderShown(NamedTuple):
    """What a folder brings that is not trusted yet."""

    skills: int
    programs: int = 0
    blocked: int = 0
    scanned: bool = False
    running: bool = False
    """The scan is not done yet."""


class TrustShown(NamedTuple):
    """Why a skill may not be used as it is."""

    state: str
    """`untrusted`, `unpinned` or `blocked`."""
    reason: str = ""
    hint: str = ""
    folder: bool = False
    """The project's folder is not trusted yet, which is to be decided."""
    verdict: str = ""
    """Of the scan, in words."""
    mood: str = ""
    findings: tuple[FindingShown, ...] = ()
    more_findings: int = 0


def show_folder(satchel: Satchel, job: Job[FolderReview], skills: int) -> FolderShown | None:
    """What the project's folder brings; None when there is nothing to decide about it.

    Args:
        satchel: Whose skills.
        job: Scans them.
        skills: How many of them are not trusted.
    """
    if not skills or not _is_undecided(satchel):
        return None
    running = job.look().running
    review = job.result
    if review is None:
        return FolderShown(skills, running=running)
    return FolderShown(
        len(review.skills), len(review.programs), len(review.blocked), scanned=True, running=running
    )


def _is_undecided(satchel: Satchel) -> bool:
    settings = satchel.settings
    trusted = satchel.library.trust.trusts(settings.project, settings.project)
    return settings.asks and not trusted


def can_revoke(satchel: Satchel) -> bool:
    """Whether the user trusted this very folder, and that decides what is offered."""
    folders = satchel.library.trust.read().folders
    project = os.path.realpath(satchel.settings.project)
    return satchel.settings.asks and project in folders


def show_trust(satchel: Satchel, skill: Skill, state: str) -> TrustShown | None:
    """Why a skill may not be used, with what the scan finds in it; None when it may be used.

    Args:
        satchel: Whose skills.
        skill: Which one.
        state: Its state as a list names it.
    """
    if state not in ("untrusted", "unpinned", "blocked"):
        return None
    seals = satchel.library.seals
    shown = TrustShown(state, folder=state == "untrusted" and _is_undecided(satchel))
    try:
        if not shown.folder:
            seals.check(skill, clean=False)
    except SatchelError as exc:
        shown = shown._replace(reason=render(exc.message), hint=render(exc.hint))
    if state == "unpinned" or skill.origin.remote:
        return shown
    try:
        report = seals.scan(skill)
    except SatchelError as exc:
        return shown._replace(reason=render(exc.message))
    findings = report.findings
    return shown._replace(
        verdict=say(report.verdict),
        mood=MOODS[report.verdict],
        findings=tuple(map(show_finding, findings[:FINDINGS])),
        more_findings=max(len(findings) - FINDINGS, 0),
    )


def modified_files(satchel: Satchel, skill: Skill) -> tuple[str, ...]:
    """The files of an installed skill that were edited."""
    try:
        return tuple(map(printable, satchel.library.seals.modified(skill)))
    except SatchelError:  # a damaged lockfile is among the problems
        return ()
