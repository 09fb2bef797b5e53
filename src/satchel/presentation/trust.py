"""Records of trust: a project folder to be trusted, and skills that cannot be used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import SatchelError
from satchel.i18n import render, say
from satchel.presentation.findings import TONES, show_finding
from satchel.tools.framing import printable

if TYPE_CHECKING:
    from satchel.diagnosis.folder_review import FolderReview
    from satchel.presentation.findings import FindingShown
    from satchel.presentation.jobs import BackgroundJob
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill

MAX_FINDINGS_SHOWN = 20


class FolderSkill(NamedTuple):
    """A skill of a folder that is not trusted yet."""

    name: str
    ref: str
    is_blocked: bool
    has_programs: bool
    reasons: tuple[str, ...] = ()
    """Why the scan flagged it for review."""


class FolderShown(NamedTuple):
    """The skills of a folder that is not trusted yet."""

    skills: int
    programs: int = 0
    blocked: int = 0
    flagged: int = 0
    scanned: bool = False
    running: bool = False
    rows: tuple[FolderSkill, ...] = ()
    """Blocked skills first, then those for review."""
    requests: tuple[tuple[str, str], ...] = ()
    """Names of skills, and the tools that they request without approval."""

    @property
    def summary(self) -> str:
        """What the folder contains, in one sentence."""
        if not self.skills:
            return say("No skills need review")
        contents = [
            say("This folder brings 1 skill")
            if self.skills == 1
            else say("This folder brings {count} skills", count=self.skills)
        ]
        if self.programs:
            contents.append(say("{count} with programs", count=self.programs))
        results = [say("scan: none blocked")]
        if self.blocked:
            results = [say("scan: {count} blocked", count=self.blocked)]
        if self.flagged:
            results.append(say("{count} for review", count=self.flagged))
        return say("; ").join((say(", ").join(contents), say(", ").join(results)))


class TrustShown(NamedTuple):
    """Why a skill cannot be used."""

    state: str
    """`untrusted`, `unpinned` or `blocked`."""
    reason: str = ""
    hint: str = ""
    needs_folder_trust: bool = False
    """The project's folder is not trusted yet."""
    verdict: str = ""
    tone: str = ""
    findings: tuple[FindingShown, ...] = ()
    hidden_findings_count: int = 0


def show_folder(
    satchel: Satchel, job: BackgroundJob[FolderReview], skills: int
) -> FolderShown | None:
    """Return what an untrusted project folder contains; None when there is nothing to decide.

    Args:
        satchel: The project's skills.
        job: The scan of the folder.
        skills: The number of untrusted skills.
    """
    if not skills or not _is_undecided(satchel):
        return None
    running = job.refresh().running
    if not running and job.stale:  # also after a slow scan: this one has the verdicts of the last
        running = job.start()
    review = job.result
    if review is None:
        return FolderShown(skills, running=running)
    return show_review(review, running=running)


def show_review(review: FolderReview, *, running: bool = False) -> FolderShown:
    """Return the record of a scanned folder."""
    blocked = {skill.ref for skill in review.blocked}
    programs = {skill.ref for skill in review.programs}
    flagged = {skill.ref: reasons for skill, reasons in review.flagged}
    rows = [
        FolderSkill(
            skill.name,
            skill.ref,
            skill.ref in blocked,
            skill.ref in programs,
            flagged.get(skill.ref, ()),
        )
        for skill in review.skills
    ]
    return FolderShown(
        len(review.skills),
        len(review.programs),
        len(review.blocked),
        len(flagged),
        scanned=True,
        running=running,
        rows=tuple(sorted(rows, key=lambda row: (not row.is_blocked, not row.reasons))),
        requests=tuple(
            (printable(request.skill.name), printable(" ".join(request.tools)))
            for request in review.requests
        ),
    )


def _is_undecided(satchel: Satchel) -> bool:
    settings = satchel.settings
    trusted = satchel.library.trust.trusts(settings.project, settings.project)
    return settings.asks and (not trusted or bool(satchel.untrusted_levels()))


def can_revoke(satchel: Satchel) -> bool:
    """Whether the user trusted this folder, and the trust can be revoked."""
    folders = satchel.library.trust.read().folders
    project = os.path.realpath(satchel.settings.project)
    return satchel.settings.asks and project in folders


def show_trust(satchel: Satchel, skill: Skill, state: str) -> TrustShown | None:
    """Return why a skill cannot be used, with its findings; None when it can.

    Args:
        satchel: The project's skills.
        skill: The skill.
        state: Its state in the list.
    """
    if state not in ("untrusted", "unpinned", "blocked"):
        return None
    integrity = satchel.library.integrity
    record = TrustShown(state, needs_folder_trust=state == "untrusted" and _is_undecided(satchel))
    try:
        if not record.needs_folder_trust:
            integrity.check(skill, clean=False)
    except SatchelError as exc:
        record = record._replace(reason=render(exc.message), hint=render(exc.hint))
    if state == "unpinned" or skill.origin.remote:
        return record
    try:
        report = integrity.scan(skill)
    except SatchelError as exc:
        return record._replace(reason=render(exc.message))
    findings = report.findings
    return record._replace(
        verdict=say(report.verdict),
        tone=TONES[report.verdict],
        findings=tuple(map(show_finding, findings[:MAX_FINDINGS_SHOWN])),
        hidden_findings_count=max(len(findings) - MAX_FINDINGS_SHOWN, 0),
    )


def modified_files(satchel: Satchel, skill: Skill) -> tuple[str, ...]:
    """Return the files of an installed skill that were edited."""
    try:
        return tuple(map(printable, satchel.library.integrity.modified(skill)))
    except SatchelError:  # a damaged lockfile is among the problems
        return ()
