"""Trusting a project's folder, and accepting the risk of a skill that the scan blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import Message
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.library import Library
    from satchel.settings import Settings
    from satchel.skill.model import Skill


class FolderReview(NamedTuple):
    """What a project's folder brings, for the person who decides about it."""

    folder: str
    skills: tuple[Skill, ...]
    """Those that are not trusted yet."""
    programs: tuple[Skill, ...] = ()
    """Those of them that bring programs."""
    blocked: tuple[Skill, ...] = ()
    """Those that the scan blocks: they are not offered, whatever is decided about the folder."""
    problems: tuple[Problem, ...] = ()
    """Skills that cannot be scanned, and so are not used."""


def find_skill(library: Library, skill: Skill | str) -> Skill:
    """The skill itself; a text is looked up by name, id or path.

    Raises:
        NotFound: there is no such skill.
    """
    if isinstance(skill, str):
        library.tools(refresh=True)
        found = library.find(skill)
        if not found:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill),
                Message("Run `satchel list --all` to see what there is"),
            )
        skill = found[0]
    return skill


def review_folder(
    library: Library, settings: Settings, progress: Callable[[int, int], None] | None = None
) -> FolderReview:
    """Scan the skills of a project that are not trusted yet.

    Args:
        library: Which skills there are.
        settings: Which project.
        progress: Called with how many were scanned, and how many there are.
    """
    library.tools(refresh=True)
    waiting = [skill for skill in library.waiting() if not skill.origin.remote]
    programs: list[Skill] = []
    blocked: list[Skill] = []
    problems: list[Problem] = []
    for at, skill in enumerate(waiting):
        if progress is not None:
            progress(at, len(waiting))
        try:
            report = library.seals.scan(skill)
        except SatchelError as exc:
            values = {"name": skill.typed, "reason": exc.why}
            problems.append(Problem("not-scannable", skill.path, values=values))
            continue
        if report.inventory.programs or library.tools().of(skill) is not None:
            programs.append(skill)
        if report.verdict == "blocked" and not library.seals.is_accepted(skill):
            blocked.append(skill)
    if progress is not None:
        progress(len(waiting), len(waiting))
    return FolderReview(
        settings.project, tuple(waiting), tuple(programs), tuple(blocked), tuple(problems)
    )


def trust_folder(library: Library, settings: Settings) -> str:
    """Trust the project's folder, with all that it holds now and later.

    Raises:
        Refused: the decision cannot be kept, or only locked skills may be used here.
    """
    refuse_locked(settings)
    library.trust.trust(settings.project)
    library.refresh()
    return settings.project


def refuse_locked(settings: Settings) -> None:
    """Refuse to trust a folder where only locked skills are used.

    Raises:
        Refused: the setting `trust` is `locked`.
    """
    if settings.trust == "locked" and not settings.asks:
        raise Refused(
            Message("The setting `trust` is `locked`: only what a lockfile pins is offered"),
            Message("Import a skill from its source, which locks it, or change the setting"),
        )


def accept_risk(library: Library, skill: Skill | str, reason: str) -> Skill:
    """Use a skill that the scan blocks, as it is now.

    Raises:
        NotFound: there is no such skill.
        InvalidInput: the scan does not block it, or there is no reason.
        Refused: the decision cannot be kept.
    """
    if not reason.strip():
        raise InvalidInput(Message("A risk is accepted with a reason"), Message("Say why"))
    one = find_skill(library, skill)
    if not one.origin.remote and library.seals.scan(one).verdict != "blocked":
        raise InvalidInput(
            Message("The scan does not block the skill `{name}`", name=one.name),
            Message("There is nothing to accept"),
        )
    library.trust.accept(library.seals.digest(one), " ".join(reason.split()))
    library.refresh()
    return one


def untrust_folder(library: Library, settings: Settings) -> bool:
    """Trust the project's folder no more; True when it was trusted."""
    revoked = library.trust.revoke(settings.project)
    library.refresh()
    return revoked
