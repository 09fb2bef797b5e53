"""Finds one skill by its reference, name or path, and the scope in which it can be changed.

A reference in the address of a page may be that of a broken file, of which only the path is known,
and of a skill that was installed a moment ago, so a small library is refreshed once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_inside
from satchel.errors import Blocked, NotFound, SatchelError
from satchel.i18n import say
from satchel.presentation.skill_index import index_of, refresh_if_small
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill
from satchel.tools.framing import encodable

if TYPE_CHECKING:
    from satchel.library.snapshot import BrokenSkill
    from satchel.satchel import Satchel
    from satchel.store.store import Store
    from satchel.store.workdir import Name

SCOPES: tuple[Name, ...] = ("project", "global")


class ScopeView(NamedTuple):
    """One scope."""

    name: Name
    title: str
    folder: str
    """The folder of its skills; empty when it cannot be opened."""
    store: Store | None
    """None when it cannot be opened."""
    trouble: str = ""
    """Why it cannot be opened."""
    hint: str = ""


def show_scopes(satchel: Satchel) -> tuple[ScopeView, ...]:
    """Return both scopes, also those that cannot be opened."""
    return tuple(_show_scope(satchel, name) for name in SCOPES)


def _show_scope(satchel: Satchel, name: Name) -> ScopeView:
    try:
        store = satchel.store(name)
    except SatchelError as exc:
        return ScopeView(name, scope_words(name), "", None, exc.message, exc.hint)
    return ScopeView(name, scope_words(name), scope_folder(store), store)


def scope_words(name: str) -> str:
    """Return the label of a scope."""
    return say("All projects") if name == "global" else say("This project")


def scope_folder(store: Store) -> str:
    """Return the folder of a scope, shortened."""
    folder, home = store.scope.folder, os.path.expanduser("~")
    if store.scope.boundary:
        return os.path.relpath(folder, store.scope.boundary).replace(os.sep, "/")
    return folder.replace(home, "~", 1) if folder.startswith(home + os.sep) else folder


def find_skill(satchel: Satchel, ref: str) -> Skill:
    """Return the skill with a `ref`, else with that name, id or path.

    Raises:
        NotFound: there is no such skill.
    """
    skills = skills_called(satchel, ref) if ref else []
    if not skills and ref and refresh_if_small(satchel):  # it may be new
        skills = skills_called(satchel, ref)
    if skills:
        return skills[0]
    raise NotFound(
        say("There is no skill `{name}`", name=encodable(ref) or "?"),
        say("Search for it in the list"),
    )


def find_checked(satchel: Satchel, ref: str) -> Skill:
    """Return a skill after a check of its folder, so that a blocked one has that state.

    Raises:
        NotFound: there is no such skill.
    """
    skill = find_skill(satchel, ref)
    if skill.state == "active" and not skill.origin.remote:
        try:
            satchel.library.integrity.check(skill, clean=False)
        except Blocked:
            return skill._replace(state="blocked")
        except SatchelError:
            pass  # shown by the page
    return skill


def skills_called(satchel: Satchel, reference: str) -> list[Skill]:
    """Return the skills with a ref, name, id or path, in this order; offered ones first.

    Unlike `Library.find`, it needs no table of all ids and paths, which takes a second to build in
    a large library.
    """
    library = satchel.library
    same_ref = library.by_ref(reference)
    skills = [same_ref] if same_ref is not None else library.named(reference)
    is_file = reference.endswith(("/SKILL.md", "/skill.yaml"))
    folder = os.path.dirname(reference) if is_file else reference
    for location in () if skills else library.locations:
        path = folder
        if is_inside(folder, location.path):
            path = os.path.relpath(folder, location.path)
        skill_id = "" if path == "." else path.replace(os.sep, "/")
        skill = library.by_ref(f"{location.origin.label}/{skill_id}")
        skills += [skill] if skill is not None else []
    return sorted(skills, key=lambda skill: skill.state != "active")


def editable_scope(satchel: Satchel, skill: Skill) -> Literal["project", "global", ""]:
    """Return the scope in which a skill can be changed; empty when it cannot."""
    try:
        return satchel.store_of(skill).scope.name
    except SatchelError:  # raised when a change is tried
        return ""


def broken_at(satchel: Satchel, path: str) -> BrokenSkill | None:
    """Return the broken file at a path; None for all others."""
    return index_of(satchel).broken.get(path)


def find_editable_skill(satchel: Satchel, ref: str) -> Skill:
    """Return a skill to edit or to remove; also a broken file.

    Of a broken file only the path is known, which is enough to change it.

    Raises:
        NotFound: there is no such skill.
    """
    item = broken_at(satchel, ref) if os.path.isabs(ref) else None
    placeholder = _as_skill(satchel, item) if item is not None else None
    return placeholder or find_skill(satchel, ref)


def _as_skill(satchel: Satchel, item: BrokenSkill) -> Skill | None:
    """A placeholder for a broken file, so that it can be edited; None for other files."""
    folder, file = os.path.split(item.problem.path)
    if file.lower() not in ("skill.md", "skill.yaml", "skill.yml"):
        return None
    locations = [
        location
        for location in satchel.library.locations
        if location.supplier is None and is_inside(folder, location.path)
    ]
    if not locations:
        return None
    location = max(locations, key=lambda location: len(location.path))
    skill_id = os.path.relpath(folder, location.path).replace(os.sep, "/")
    header = SkillHeader(
        name=item.name,
        description="",
        id="" if skill_id == "." else skill_id,
        file=file,
        mtime_ns=0,
        ctime_ns=0,
        size=0,
    )
    return Skill(header, location.origin, "excluded")
