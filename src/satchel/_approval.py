"""Which skills of a project may be offered, and how is that said and taken back?

An approval holds for what a skill was when somebody looked at it; a change asks again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import NotFound, Refused, SatchelError
from satchel.settings import SETTINGS
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.library import Library
    from satchel.library.seal import Taken
    from satchel.settings import Settings
    from satchel.skill.model import Skill


class Approved(NamedTuple):
    """What is trusted now."""

    folder: str
    """The skill's folder, or the project's when there were several."""
    skills: tuple[Skill, ...]
    refused: tuple[Problem, ...] = ()
    """Skills that cannot be approved as they are, and why."""


def meant(library: Library, skill: Skill | str) -> Skill:
    """The skill itself; a text is looked up by name, id or path.

    Raises:
        NotFound: there is no such skill.
    """
    if isinstance(skill, str):
        library.tools(refresh=True)
        found = library.find(skill)
        if not found:
            raise NotFound(
                say("There is no skill `{name}`", name=skill),
                say("Run `satchel list --all` to see what there is"),
            )
        skill = found[0]
    return skill


def trust(
    library: Library, settings: Settings, skill: Skill | str | None, *, always: bool
) -> Approved:
    """Approve one skill, or every one that waits; `always` approves the folder instead."""
    _may_trust(settings)
    if skill is not None and not always:
        return approve(library, settings, [library.seals.take(meant(library, skill))])
    library.tools(refresh=True)
    waiting = library.waiting()
    if always:
        one = meant(library, skill) if skill is not None else None
        if one is not None and one.origin.remote:
            from satchel.library.supplier import refuse_always

            refuse_always(one)
        folder = one.base_dir if one is not None else settings.project
        library.trust.approve(folder, "own" if one is not None else "project")
        library.refresh()
        return Approved(folder, tuple(waiting) if one is None else (one,))
    taken, refused = take(library, waiting)
    approved = approve(library, settings, taken)
    return approved._replace(folder=settings.project, refused=tuple(refused))


def take(library: Library, skills: Iterable[Skill]) -> tuple[list[Taken], list[Problem]]:
    """What skills are at this moment; also those that cannot be approved so."""
    taken: list[Taken] = []
    refused: list[Problem] = []
    for skill in skills:
        try:
            taken.append(library.seals.take(skill))
        except SatchelError as exc:
            values = {"name": skill.typed, "reason": exc.why}
            refused.append(Problem("not-approvable", skill.path, values=values))
    return taken, refused


def approve(library: Library, settings: Settings, taken: Sequence[Taken]) -> Approved:
    """Trust skills as they were when they were taken."""
    _may_trust(settings)
    library.trust.approve_all((one.skill.base_dir, "skill", one.seal, one.head) for one in taken)
    library.refresh()
    folder = taken[0].skill.base_dir if len(taken) == 1 else settings.project
    return Approved(folder, tuple(one.skill for one in taken))


def untrust(library: Library, settings: Settings, skill: Skill | str | None) -> bool:
    """Take trust back; True when there was any."""
    folder = meant(library, skill).base_dir if skill is not None else settings.project
    revoked = library.trust.revoke(folder)
    library.refresh()
    return revoked


def how_to_ask(settings: Settings) -> str:
    """How to be asked about skills of a project, where the setting `trust` is `none`."""
    return Problem("trust-off", values={"name": "", **where_trust_is_set(settings)}).fix


def where_trust_is_set(settings: Settings) -> dict[str, str]:
    """What to change, and where, for the setting `trust` to be another."""
    setting = next(item for item in SETTINGS if item.name == "trust")
    if os.environ.get(setting.env):
        return {"key": setting.env, "where": "the environment"}
    return {"key": setting.name, "where": f"`{settings.paths.config}`"}


def _may_trust(settings: Settings) -> None:
    if settings.trust == "none":
        raise Refused(
            say("The setting `trust` is `none`: skills of a project are never offered"),
            how_to_ask(settings),
        )
