"""Diagnosis of skills, lockfiles, settings, sandbox and search index.

`satchel doctor`, the Health page and `Satchel.problems` show it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel._optional import installed
from satchel.diagnosis.file_problems import ProblemCache, find_problems, setup_problems
from satchel.errors import Blocked, LockBroken, SatchelError
from satchel.library.lockfile import interrupted_changes
from satchel.library.ownership import key_path
from satchel.runners.tiers import TIERS, missing_requirement
from satchel.settings import SETTINGS
from satchel.skill.model import DEPENDENCIES
from satchel.skill.problems import Problem
from satchel.tools.lookup import ended_grant
from satchel.tools.packaged import packaged_problems, packaged_tools
from satchel.tools.script_tool import has_scripts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.library import Library
    from satchel.library.snapshot import Snapshot, ToolSnapshot
    from satchel.settings import Settings
    from satchel.skill.model import Skill, SkillDocument

MIN_INDEXED_SKILLS = 2_000
"""Libraries from this size on should be searched with tantivy."""
_MAX_FILES_SHOWN = 3
OTHER_VARIABLES = (
    "SATCHEL_EMBEDDINGS_KEY", "SATCHEL_ESCAPE_CANARY", "SATCHEL_GIT_PASSWORD", "SATCHEL_GIT_USER",
    "SATCHEL_HOME", "SATCHEL_HUB_CREDENTIALS", "SATCHEL_LANG", "SATCHEL_SCRATCH",
    "SATCHEL_SKILL_DIR", "SATCHEL_WORKSPACE",
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
    snapshot = library.refresh()
    tools = snapshot.tools
    problems = [*snapshot.problems, *tools.problems, *packaged_problems(settings)]
    problems += tool_name_conflicts(settings, tools)
    locks = [location.lock for location in library.locations]
    problems += interrupted_changes(locks, key_path(settings.paths.state))
    skills = snapshot.every()
    problems += [
        Problem("include-unmatched", values={"name": name}) for name in library.unmatched()
    ]
    if deep:
        problems += [problem for problem in _lock_problems(library) if problem not in problems]
        problems += _search_problems(len(snapshot.skills), settings)
        problems += _setting_problems(settings)
        problems += _sandbox_problems(settings, snapshot)
        problems += library.strays()
        cache = ProblemCache(library.integrity)
        for skill in progress if progress is not None else skills:
            is_refused = skill.ref in tools.refused
            problems += _skill_problems(library, skill, cache, is_refused=is_refused)
    else:
        for skill in skills:
            problems += skill.problems
    problems += _hidden_skill_problems(skills, library, tools.refused)
    return problems


def _skill_problems(
    library: Library, skill: Skill, cache: ProblemCache, *, is_refused: bool
) -> Iterator[Problem]:
    """Check one skill in full: its files, its content, and what it needs of this machine."""
    # The author of an installed package's skill is not here.
    if skill.source in DEPENDENCIES:
        yield from setup_problems(skill)
    else:
        yield from find_problems(skill, cache=cache)
    content = None if is_refused else content_problem(library, skill)
    if content is not None:
        yield content
    with suppress(SatchelError):  # reported for its content
        ended = ended_grant(library, skill)
        if ended is not None:
            yield ended


def tool_name_conflicts(settings: Settings, tools: ToolSnapshot) -> Iterator[Problem]:
    """Tools of tool skills whose names an installed package has too: the package's is used."""
    if not tools.tools:
        return
    for tool in packaged_tools(settings):
        entry = tools.tools.get(tool.name)
        if entry is not None:
            tool_skill, declaration = entry
            path = os.path.join(tool_skill.skill.base_dir, "skill.yaml")
            winner = str(getattr(tool, "owner", ""))
            switch = f"SKILL_{winner.upper()}_ENABLED"
            values = {"name": tool.name, "winner": winner, "switch": switch}
            yield Problem("tool-name-packaged", path, declaration.line, values)


def document_problems(
    library: Library, skill: Skill, document: SkillDocument | None
) -> list[Problem]:
    """Return the problems of a skill's files, and of its content if that was changed."""
    content = content_problem(library, skill)
    problems = find_problems(skill, document)
    return problems if content is None else [content, *problems]


def content_problem(library: Library, skill: Skill) -> Problem | None:
    """The problem of a skill's content: blocked, not scannable, or modified."""
    if skill.state not in ("active", "blocked") or skill.origin.remote:
        return None
    values = {"name": skill.reference}
    try:
        verified = library.integrity.check(skill, clean=False)  # a diagnosis deletes nothing
        files = library.integrity.modified(skill, verified)
    except LockBroken:
        return None  # reported for the lockfile itself
    except Blocked:
        is_listed = skill.state == "active"  # else its state is the problem
        return _blocked_problem(library, skill) if is_listed else None
    except SatchelError as exc:
        return Problem("not-scannable", skill.path, values={**values, "reason": exc.why})
    if files:
        return Problem("modified", skill.path, values={**values, "files": _list_files(files)})
    return None


def _blocked_problem(library: Library, skill: Skill) -> Problem:
    """The problem of a skill that the scan blocks, or that its hub revoked."""
    reason = library.integrity.revocation(skill)
    values = {"name": skill.reference, "reason": reason}
    return Problem("revoked" if reason else "blocked", skill.path, values=values)


def _list_files(files: Sequence[str]) -> str:
    ellipsis = ", …" if len(files) > _MAX_FILES_SHOWN else ""
    return ", ".join(f"`{path}`" for path in files[:_MAX_FILES_SHOWN]) + ellipsis


def _lock_problems(library: Library) -> Iterator[Problem]:
    for lock in dict.fromkeys(location.lock for location in library.locations):
        problem = library.integrity.lock_problem(lock, deep=True) if lock else None
        if problem is not None:
            yield problem


def _search_problems(count: int, settings: Settings) -> Iterator[Problem]:
    if count > MIN_INDEXED_SKILLS and not installed("tantivy"):
        yield Problem("search-plain", settings.paths.cache, values={"count": f"{count:,}"})


def _setting_problems(settings: Settings) -> Iterator[Problem]:
    """Settings without effect: a model that cannot be opened, an unknown variable."""
    names = {setting.env for setting in SETTINGS}.union(OTHER_VARIABLES)
    for name in sorted(os.environ):
        if name.startswith("SATCHEL_") and name not in names:
            yield Problem("variable-unknown", settings.paths.config, values={"name": name})
    if settings.embeddings:
        from satchel.detect.embeddings.endpoint import Endpoint

        try:
            Endpoint(settings.embeddings)
        except (SatchelError, OSError, ValueError) as exc:
            reason = " ".join(str(getattr(exc, "message", exc)).split())
            values = {"name": settings.embeddings, "reason": reason}
            yield Problem("embeddings-unusable", settings.paths.config, values=values)


def _sandbox_problems(settings: Settings, snapshot: Snapshot) -> Iterator[Problem]:
    if settings.sandbox == "off" and sys.platform != "win32":
        yield Problem("sandbox-off", settings.paths.config)
    elif settings.sandbox == "own" and sys.platform != "win32":
        return
    elif all(map(missing_requirement, TIERS)) and (snapshot.tools.tools or has_scripts(snapshot)):
        yield Problem("sandbox-missing", settings.paths.config)


def _hidden_skill_problems(
    skills: Iterable[Skill], library: Library, reported: Mapping[str, object]
) -> Iterator[Problem]:
    """Shadowed, untrusted and blocked skills that are not in `reported`."""
    skills = list(skills)
    builtin = {skill.ref: skill for skill in skills if skill.source == "builtin"}
    for skill in skills:
        if skill.state == "shadowed":
            winner = builtin.get(skill.shadowed_by)
            if skill.origin.remote and winner and winner.description == skill.description:
                continue  # another Satchel serves the same built-in skill
            values = {"name": skill.name, "winner": skill.shadowed_by, "server": skill.origin.label}
            code = "served-shadowed" if skill.origin.remote else "shadowed"
            yield Problem(code, skill.path, values=values)
        elif skill.state in ("untrusted", "blocked") and skill.ref not in reported:
            if skill.state == "blocked":
                yield _blocked_problem(library, skill)
                continue
            code = skill.problem_code(unpinned=library.is_unpinned(skill))
            yield Problem(code, skill.path, values={"name": skill.reference})
