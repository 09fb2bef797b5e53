"""Which scope may change a skill? One answer for all who have a skill in hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Refused
from satchel.library.locations import global_folder, user_folder

if TYPE_CHECKING:
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.scope import Name


def whose(settings: Settings, skill: Skill) -> Name:
    """The scope in which this very skill lies. No scope is opened for that.

    Raises:
        Refused: it ships with a product, or lies where Satchel does not write.
    """
    if skill.is_system:
        raise Refused(
            say("`{name}` ships with a product and cannot be changed", name=skill.name),
            say("Exclude it: add its name to the setting `exclude`"),
        )
    name = _scope_at(settings, skill)
    if name is None or skill.origin.remote or not skill.origin.writable:
        raise Refused(
            say("`{name}` is in `{place}`, which Satchel does not write to",
                name=skill.name, place=skill.origin.label),
            say("Change it where it comes from"),
        )  # fmt: skip
    if "/" in skill.head.id or not skill.head.id:
        raise Refused(
            say("`{name}` lies within another folder, `{path}`",
                name=skill.name, path=skill.head.id),
            say("Change that folder by hand"),
        )  # fmt: skip
    return name


def _scope_at(settings: Settings, skill: Skill) -> Name | None:
    """The scope whose folder a skill was found in."""
    folders: tuple[tuple[Name, str], ...] = (
        ("project", user_folder(settings)),
        ("global", global_folder()),
    )
    real = os.path.realpath(skill.origin.root)
    for name, folder in folders:
        if folder and os.path.realpath(folder) == real:
            return name
    return None
