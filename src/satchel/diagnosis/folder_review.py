"""Reviews an untrusted folder: its skills, what the scan finds, and what they request.

`ScanProcess` scans skills in a process of its own, so that a large file delays no request.
"""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_really_inside
from satchel.errors import Refused, SatchelError
from satchel.i18n import Message, say
from satchel.library.integrity import scan_verified
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.connection import Connection
    from typing import Self

    from satchel.library import Library
    from satchel.library.fingerprint import VerifiedFolder
    from satchel.security import ScanReport
    from satchel.settings import Settings
    from satchel.skill.model import Skill


class ToolRequest(NamedTuple):
    """The tools that a skill asks to call without approval."""

    skill: Skill
    """The skill that asks."""
    tools: tuple[str, ...]
    """Patterns of `allowed-tools` that the user has not granted."""
    digest: str
    """Of the content that asks: a grant is bound to it."""


def tool_requests(library: Library, skills: Iterable[Skill]) -> Iterator[ToolRequest]:
    """Find the skills with requests that are not granted; unreadable ones are left out."""
    from satchel.session.permissions import tool_grants

    integrity = library.integrity
    for skill in skills:
        if skill.origin.remote or skill.is_tool:
            continue
        try:
            fields = integrity.inspect(skill).fields
            if not fields.get("allowed-tools"):
                continue
            digest = integrity.digest(skill)
            is_unchanged = integrity.inspect(skill).fields == fields
        except SatchelError:  # the scan reports it
            continue
        if is_unchanged and (tools := tool_grants(library, skill, fields, digest).refused):
            yield ToolRequest(skill, tools, digest)


class FolderReview(NamedTuple):
    """The untrusted skills of a project, for the decision to trust its folder.

    Example:
        from satchel import Satchel

        satchel = Satchel.for_project(".", trust="ask")
        review = satchel.review()
        if not review.blocked:
            satchel.trust()
        assert len(satchel.list_skills()) == 3
    """

    folder: str
    """The project's folder."""
    skills: tuple[Skill, ...]
    """All untrusted skills."""
    programs: tuple[Skill, ...] = ()
    """Skills with programs."""
    blocked: tuple[Skill, ...] = ()
    """Skills that the scan blocks: not offered even when the folder is trusted."""
    flagged: tuple[tuple[Skill, tuple[str, ...]], ...] = ()
    """Skills for review, with rules or files that are not scanned: offered when it is trusted."""
    problems: tuple[Problem, ...] = ()
    """Skills that cannot be scanned, and so are not used."""
    requests: tuple[ToolRequest, ...] = ()
    """What the project's skills request, also those that are trusted already."""


def review_folder(
    library: Library, settings: Settings, progress: Callable[[int, int], None] | None = None
) -> FolderReview:
    """Scan the skills of a project that are not trusted yet.

    Args:
        library: The skills.
        settings: The project's settings.
        progress: Called with the number of scanned skills and the total.
    """
    integrity, tools = library.integrity, library.refresh().tools
    untrusted = [skill for skill in library.untrusted_skills() if not skill.origin.remote]
    programs: list[Skill] = []
    blocked: list[Skill] = []
    flagged: list[tuple[Skill, tuple[str, ...]]] = []
    problems: list[Problem] = []
    verdicts: dict[str, str] = {}
    folders_without_requests: set[str] = set()
    for count, skill in enumerate(untrusted):
        if progress is not None:
            progress(count, len(untrusted))
        try:
            report = integrity.scan(skill, verdicts=verdicts)
            if report.verdict == "blocked" and not integrity.is_accepted(skill):
                blocked.append(skill)
            elif report.verdict in {"review", "incomplete"}:
                flagged.append((skill, report.reasons))
        except SatchelError as exc:
            values = {"name": skill.reference, "reason": exc.why}
            problems.append(Problem("not-scannable", skill.path, values=values))
            continue
        if report.inventory.programs or tools.of(skill) is not None:
            programs.append(skill)
        if not report.inventory.requests:
            folders_without_requests.add(skill.base_dir)
    integrity.record_verdicts(verdicts)
    if progress is not None:
        progress(len(untrusted), len(untrusted))
    skills = (*untrusted, *_skills_inside(library, settings.project))
    candidates = [skill for skill in skills if skill.base_dir not in folders_without_requests]
    return FolderReview(
        folder=settings.project,
        skills=tuple(untrusted),
        programs=tuple(programs),
        blocked=tuple(blocked),
        flagged=tuple(flagged),
        problems=tuple(problems),
        requests=tuple(tool_requests(library, candidates)),
    )


def _skills_inside(library: Library, folder: str) -> list[Skill]:
    skills = library.snapshot().skills
    return [skill for skill in skills if is_really_inside(skill.base_dir, folder)]


def refuse_locked(settings: Settings) -> None:
    """Refuse to trust a folder when only locked skills are used.

    Raises:
        Refused: the setting `trust` is `locked`.
    """
    if settings.trust == "locked" and not settings.asks:
        raise Refused(
            Message("The setting `trust` is `locked`: only what a lockfile pins is offered"),
            Message("Import a skill from its source, which locks it, or change the setting"),
        )


class ScanProcess:
    """Scans folders in another process: parsing a large file in a thread delays all requests."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_scan_folders, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __call__(self, verified: VerifiedFolder) -> ScanReport | None:
        """Do the work of `scan_verified`.

        Raises:
            OSError: the process ended.
        """
        self._pipe.send(verified)
        try:
            return self._pipe.recv()
        except EOFError as exc:
            raise OSError(say("The process ended")) from exc


def _scan_folders(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends this
    with suppress(EOFError, OSError):  # the server ended
        while True:
            verified = pipe.recv()
            try:
                report = scan_verified(verified)
            except (SatchelError, OSError):
                report = None
            pipe.send(report)
