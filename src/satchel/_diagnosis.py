"""What is wrong or odd here: in the skills, in what is set, and in the search?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._approval import where_trust_is_set
from satchel.errors import Changed, LockBroken, SatchelError
from satchel.library.lockfile import interrupted
from satchel.library.marks import key_path
from satchel.settings import SETTINGS
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Library
    from satchel.library.tool_snapshot import ToolSnapshot
    from satchel.settings import Settings
    from satchel.skill.model import Skill

LARGE = 2_000
"""Skills from which on a search is worth an index and an engine made for it."""
NEARLY = 0.95
"""The share of them that an index holds when it is as good as complete."""
NEAR = 0.8
"""How alike two names are, one of which may be a slip for the other."""
_SHOWN = 3
"""Files of one skill that are named."""
VARIABLES = (
    "SATCHEL_ESCAPE_CANARY", "SATCHEL_GIT_PASSWORD", "SATCHEL_GIT_USER",
    "SATCHEL_HOME", "SATCHEL_LANG", "SATCHEL_SCRATCH", "SATCHEL_SKILL_DIR", "SATCHEL_VECTORS_KEY",
    "SATCHEL_WORKSPACE",
)  # fmt: skip
"""Variables of ours that are no settings."""


def diagnose(
    library: Library,
    settings: Settings,
    detector: Callable[[], SelectionPipeline],
    *,
    deep: bool,
    progress: Iterable[Any] | None,
) -> list[Problem]:
    """Everything that is wrong or odd in any location.

    Args:
        library: Which skills there are.
        settings: What was set.
        detector: Makes the one that chooses; only a deep look needs it.
        deep: Also read every skill whole and check it as an author would want.
        progress: Wraps the skills to be read, to show how far it is.
    """
    from satchel.tools.packaged import packaged_problems

    tools = library.tools(refresh=True)
    snapshot = library.snapshot()
    found = [*snapshot.problems, *tools.problems, *packaged_problems(settings)]
    found += names_taken(settings, tools)
    locks = [location.lock for location in library.locations]
    found += interrupted(locks, key_path(settings.paths.state))
    asking = {**snapshot.asking, **tools.asking}
    if settings.trust == "none":  # nobody can be asked, whatever was approved
        found = [one for one in found if one not in asking.values()]
    skills = library.every()
    if deep:
        found += [one for one in _lock_problems(library) if one not in found]
        found += _search_problems(len(snapshot.skills), settings, detector)
        found += _setting_problems(settings)
        found += _author_problems(progress if progress is not None else skills)
        said = {*asking, *tools.refused}
        changed = [content_problem(library, one) for one in skills if one.ref not in said]
        found += [one for one in changed if one is not None]
    else:
        for skill in skills:
            found += skill.problems
    found += _not_offered(skills, settings, {*asking, *tools.refused})
    return found


def names_taken(settings: Settings, tools: ToolSnapshot) -> Iterator[Problem]:
    """Tools of tool skills that an installed package has too: the package's is used."""
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
    """Why a skill that is listed cannot be loaded: it is not what was locked or approved.

    Also, as a note, what lies in it that was not approved and goes before it is loaded.

    A look at the library reads the head of a file; only a check of the whole folder sees that the
    text below it, or a file beside it, is another.
    """
    if skill.state != "active":
        return None
    values = {"name": skill.typed}
    try:
        sealed = library.seals.check(skill, clean=False)  # a look deletes nothing
    except LockBroken:
        return None  # said of the lockfile itself
    except Changed as exc:
        values["files"] = _some(exc.files)
        if exc.kind == "lock":
            return Problem("content-unlocked", skill.path, values=values)
        if exc.kind == "approval":
            values["files"] = f" ({values['files']})" if exc.files else ""  # an old approval
            return Problem("content-unapproved", skill.path, values=values)
        values["reason"] = exc.reason or exc.message
        return Problem("content-unchecked", skill.path, values=values)
    except SatchelError as exc:
        return Problem("content-unchecked", skill.path, values={**values, "reason": exc.message})
    if sealed is not None and sealed.left:
        values["files"] = _some(sealed.left)
        return Problem("content-leftovers", skill.path, values=values)
    return None


def _some(files: Sequence[str]) -> str:
    """The first of some files, and whether there are more."""
    more = ", …" if len(files) > _SHOWN else ""
    return ", ".join(f"`{path}`" for path in files[:_SHOWN]) + more


def _lock_problems(library: Library) -> Iterator[Problem]:
    """What is wrong with the lockfiles."""
    for lock in dict.fromkeys(place.lock for place in library.locations):
        problem = library.seals.lock_problem(lock, deep=True) if lock else None
        if problem is not None:
            yield problem


def _search_problems(
    count: int, settings: Settings, detector: Callable[[], SelectionPipeline]
) -> Iterator[Problem]:
    """What makes the search of a large library slower than it need be."""
    if count <= LARGE:
        return
    from importlib.util import find_spec

    values = {"count": f"{count:,}"}
    if find_spec("tantivy") is None:
        yield Problem("search-plain", settings.paths.cache, values=values)
        return
    held = detector().indexed()
    if held is not None and held < count * NEARLY:
        values["held"] = f"{held:,}"
        yield Problem("search-unindexed", settings.paths.cache, values=values)


def _setting_problems(settings: Settings) -> Iterator[Problem]:
    """What is set and does nothing: a model that cannot be opened, a variable with a slip."""
    from difflib import get_close_matches

    if settings.vectors:
        from satchel.detect.vectors.open import open_embedder

        try:
            open_embedder(settings.vectors)
        except (SatchelError, OSError, ValueError) as exc:
            reason = " ".join(str(getattr(exc, "message", exc)).split())
            values = {"name": settings.vectors, "reason": reason}
            yield Problem("vectors-unusable", settings.paths.config, values=values)
    known = {setting.env for setting in SETTINGS}.union(VARIABLES)
    for name in sorted(os.environ):
        if not name.startswith("SATCHEL_") or name in known:
            continue
        near = get_close_matches(name, sorted(known), n=1, cutoff=NEAR)
        values = {"name": name, "near": near[0]} if near else {"name": name}
        code = "variable-near" if near else "variable-unknown"
        yield Problem(code, settings.paths.config, values=values)


def _author_problems(skills: Iterable[Skill]) -> Iterator[Problem]:
    """What an author would want to know of each skill, read whole."""
    from satchel.skill.validate import check_skill

    for skill in skills:
        if skill.origin.remote:  # somebody else's, and nothing of it is fetched to be looked at
            yield from skill.problems
            continue
        try:
            yield from check_skill(skill)
        except SatchelError as exc:
            yield Problem("unreadable", skill.path, values={"reason": exc.message})


def _not_offered(skills: Iterable[Skill], settings: Settings, said: set[str]) -> Iterator[Problem]:
    """Shadowed and untrusted skills; of the latter only those that nothing was said of yet."""
    off = settings.trust == "none"
    skills = list(skills)
    ours = {skill.ref: skill for skill in skills if skill.source == "builtin"}
    for skill in skills:
        if skill.state == "shadowed":
            same = ours.get(skill.winner)
            if skill.origin.remote and same and same.description == skill.description:
                continue  # another Satchel serves what comes with this one: nobody misses it
            values = {"name": skill.name, "winner": skill.winner, "server": skill.origin.label}
            code = "served-shadowed" if skill.origin.remote else "shadowed"
            yield Problem(code, skill.path, values=values)
        elif skill.state == "untrusted" and (off or skill.ref not in said):
            values = {"name": skill.typed, **(where_trust_is_set(settings) if off else {})}
            code = "served-untrusted" if skill.origin.remote else "untrusted"
            values["server"] = skill.origin.label
            yield Problem("trust-off" if off else code, skill.path, 0, values)
