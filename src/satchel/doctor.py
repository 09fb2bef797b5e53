"""Diagnosis of skills, lockfiles, settings and the search index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._optional import installed
from satchel.errors import Blocked, LockBroken, SatchelError
from satchel.library.lockfile import interrupted_changes
from satchel.library.ownership import key_path
from satchel.settings import SETTINGS
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.library import Library
    from satchel.library.snapshot import ToolSnapshot
    from satchel.settings import Settings
    from satchel.skill.model import Skill

MIN_INDEXED_SKILLS = 2_000
"""Libraries from this size on should be searched with tantivy."""
_MAX_FILES_SHOWN = 3
VARIABLES = (
    "SATCHEL_EMBEDDINGS_KEY", "SATCHEL_ESCAPE_CANARY", "SATCHEL_GIT_PASSWORD", "SATCHEL_GIT_USER",
    "SATCHEL_HOME", "SATCHEL_LANG", "SATCHEL_SCRATCH", "SATCHEL_SKILL_DIR",
    "SATCHEL_WORKSPACE",
)  # fmt: skip
"""Environment variables of Satchel that are not settings."""


def diagnose(
    library: Library, settings: Settings, *, deep: bool, progress: Iterable[Any] | None
) -> list[Problem]:
    """Return all problems of the locations, the settings and the environment.

    Args:
        library: The skills.
        settings: The settings in force.
        deep: Also read every skill whole and check it.
        progress: Wraps the skills to be read, to show progress.
    """
    from satchel.tools.packaged import packaged_problems

    snapshot = library.refresh()
    tools = snapshot.tools
    found = [*snapshot.problems, *tools.problems, *packaged_problems(settings)]
    found += tool_name_conflicts(settings, tools)
    locks = [location.lock for location in library.locations]
    found += interrupted_changes(locks, key_path(settings.paths.state))
    skills = snapshot.every()
    found += [Problem("include-unmatched", values={"name": one}) for one in library.unmatched()]
    if deep:
        found += [one for one in _lock_problems(library) if one not in found]
        found += _search_problems(len(snapshot.skills), settings)
        found += _setting_problems(settings)
        found += library.strays()
        for skill in progress if progress is not None else skills:
            found += _author_problems(skill)
            # Of this machine, not of the files that were just checked.
            found += (one for one in skill.problems if one.code == "tool-not-ready")
            content = content_problem(library, skill) if skill.ref not in tools.refused else None
            found += [content] if content is not None else []
    else:
        for skill in skills:
            found += skill.problems
    found += _not_offered(skills, library, tools.refused)
    return found


def tool_name_conflicts(settings: Settings, tools: ToolSnapshot) -> Iterator[Problem]:
    """Tools of tool skills whose names an installed package has too: the package's is used."""
    if not tools.tools:
        return
    from satchel.tools.packaged import packaged_tools

    for tool in packaged_tools(settings):
        source = tools.tools.get(tool.name)
        if source is not None:
            path = os.path.join(source[0].skill.base_dir, "skill.yaml")
            winner = str(getattr(tool, "owner", ""))
            switch = f"SKILL_{winner.upper()}_ENABLED"
            values = {"name": tool.name, "winner": winner, "switch": switch}
            yield Problem("tool-name-packaged", path, source[1].line, values)


def content_problem(library: Library, skill: Skill) -> Problem | None:
    """The problem of a listed skill's content: blocked, not scannable, or modified."""
    if skill.state != "active" or skill.origin.remote:
        return None
    values = {"name": skill.reference}
    try:
        verified = library.integrity.check(skill, clean=False)  # a diagnosis deletes nothing
        files = library.integrity.modified(skill, verified)
    except LockBroken:
        return None  # reported for the lockfile itself
    except Blocked:
        return Problem("blocked", skill.path, values=values)
    except SatchelError as exc:
        return Problem("not-scannable", skill.path, values={**values, "reason": exc.why})
    if files:
        return Problem("modified", skill.path, values={**values, "files": _some(files)})
    return None


def _some(files: Sequence[str]) -> str:
    more = ", …" if len(files) > _MAX_FILES_SHOWN else ""
    return ", ".join(f"`{path}`" for path in files[:_MAX_FILES_SHOWN]) + more


def _lock_problems(library: Library) -> Iterator[Problem]:
    for lock in dict.fromkeys(place.lock for place in library.locations):
        problem = library.integrity.lock_problem(lock, deep=True) if lock else None
        if problem is not None:
            yield problem


def _search_problems(count: int, settings: Settings) -> Iterator[Problem]:
    if count > MIN_INDEXED_SKILLS and not installed("tantivy"):
        yield Problem("search-plain", settings.paths.cache, values={"count": f"{count:,}"})


def _setting_problems(settings: Settings) -> Iterator[Problem]:
    """Settings without effect: a model that cannot be opened, an unknown variable."""
    known = {setting.env for setting in SETTINGS}.union(VARIABLES)
    for name in sorted(os.environ):
        if name.startswith("SATCHEL_") and name not in known:
            yield Problem("variable-unknown", settings.paths.config, values={"name": name})
    if settings.embeddings:
        from satchel.detect.embeddings import open_embedder

        try:
            open_embedder(settings.embeddings)
        except (SatchelError, OSError, ValueError) as exc:
            reason = " ".join(str(getattr(exc, "message", exc)).split())
            values = {"name": settings.embeddings, "reason": reason}
            yield Problem("embeddings-unusable", settings.paths.config, values=values)


def _author_problems(skill: Skill) -> Iterable[Problem]:
    from satchel.skill.validate import validate_folder

    if skill.origin.remote:  # nothing is fetched for a check
        return skill.problems
    try:
        found = validate_folder(skill.path)
    except SatchelError as exc:
        return [Problem("unreadable", skill.path, values={"reason": exc.message})]
    # The folder of a skill at a project's root has any name.
    return [one for one in found if skill.head.id or one.code != "name-mismatch"]


def _not_offered(
    skills: Iterable[Skill], library: Library, reported: Mapping[str, object]
) -> Iterator[Problem]:
    """Shadowed, untrusted and blocked skills that are not in `reported`."""
    skills = list(skills)
    builtin = {skill.ref: skill for skill in skills if skill.source == "builtin"}
    for skill in skills:
        if skill.state == "shadowed":
            same = builtin.get(skill.shadowed_by)
            if skill.origin.remote and same and same.description == skill.description:
                continue  # another Satchel serves the same built-in skill
            values = {"name": skill.name, "winner": skill.shadowed_by, "server": skill.origin.label}
            code = "served-shadowed" if skill.origin.remote else "shadowed"
            yield Problem(code, skill.path, values=values)
        elif skill.state in ("untrusted", "blocked") and skill.ref not in reported:
            code = skill.problem_code(unpinned=library.is_unpinned(skill))
            yield Problem(code, skill.path, values={"name": skill.reference})
