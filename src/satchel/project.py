"""Builds the library of a project, logs its notices, and adds the first skill.

Skills that are not offered are logged to `satchel`: one warning per kind, when the library is
first read and again when the names change. The commands print the same themselves.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from satchel.errors import NotFound
from satchel.i18n import Message, join_names, render, say, similar_names
from satchel.library import Filter, Library, ScanCache, TrustStore, default_locations
from satchel.library.locations import user_folder
from satchel.library.package_locations import PackageLocations
from satchel.library.plugin_locations import PluginLocations
from satchel.library.snapshot import find_broken
from satchel.library.verdict_cache import VerdictCache
from satchel.settings import similar_setting
from satchel.skill.problems import Problem
from satchel.skill.requirements import SANDBOX_PATH
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.library import Snapshot
    from satchel.library.locations import Location
    from satchel.library.skill_source import SkillSource
    from satchel.session.options import SessionOptions
    from satchel.session.session import Session
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.store import Store
    from satchel.tools.secrets import Secrets


MAX_SKILLS_COMPARED = 500
"""Larger libraries are not compared with their lockfiles at start-up."""
EXAMPLE_SKILL = "hello-skill"
"""Default name of the skill that `init` adds."""
_EXAMPLE_DESCRIPTION = (
    "Greets somebody by name. Use when the user asks for a greeting or a welcome."
)
_EXAMPLE_BODY = (
    "Write one friendly sentence that greets: $ARGUMENTS\n\nIf no name was given, ask for one."
)
_MAX_NAMES_LOGGED = 5


def library_for(settings: Settings, sources: Sequence[SkillSource] = ()) -> Library:
    """Create the library of a project; ignored settings are among its problems.

    Args:
        settings: The settings of the project.
        sources: Skills from code.

    Raises:
        NotFound: the project's folder does not exist.
    """
    if not os.path.isdir(settings.project):
        raise NotFound(say("There is no `{path}`", path=settings.project))
    state, cache = settings.paths.state, settings.paths.cache
    trace_folder = state or None if settings.trace == "file" else None
    trace = Trace(trace_folder, settings.project, enabled=settings.trace != "off")
    served, server_problems = _server_locations(settings)

    def open_secrets() -> Secrets:
        from satchel.tools.secrets import Secrets

        return Secrets(settings)

    library = Library(
        [*default_locations(settings), *served, *_source_locations(settings, sources)],
        wanted=Filter(settings.include, settings.exclude, settings.tags),
        trust=TrustStore(
            os.path.join(state, "trust.json") if state else None,
            locked=settings.trust == "locked",
            grants=settings.grants,
        ),
        scans=VerdictCache(cache),
        index=ScanCache(cache) if cache else None,
        trace=trace,
        problems=[*setting_problems(settings), *server_problems],
        strict=settings.strict,
        secrets=open_secrets,
        script_path=SANDBOX_PATH if sys.platform == "linux" and settings.sandbox != "off" else "",
        finders=[
            *([PluginLocations(settings).find] if settings.ecosystem else ()),
            *([PackageLocations(settings).find] if settings.packaged else ()),
        ],
    )
    if settings.create_missing:
        os.makedirs(user_folder(settings), exist_ok=True)
    return library


def _source_locations(settings: Settings, sources: Sequence[SkillSource]) -> list[Location]:
    """The given sources; without any, `satchel.library.skill_source` is not imported."""
    if not sources:
        return []
    from satchel.library.skill_source import source_locations

    return source_locations(sources, settings)


def _server_locations(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """The configured servers; without any, `satchel.library.remote` is not imported."""
    if not settings.servers:
        return [], []
    from satchel.library.remote import served_locations

    return served_locations(settings)


def setting_problems(settings: Settings) -> list[Problem]:
    """Settings of files that were ignored or refused."""
    problems: list[Problem] = []
    for code, file, value in settings.remarks:
        near = similar_setting(value) if code == "setting-unknown" else ""
        values = {"name": value, "reason": value, "near": near}
        problems.append(Problem("setting-near" if near else code, file, values=values))
    return problems


class Notices:
    """Logs skills of one library that are not offered; each set of names once."""

    def __init__(self, library: Library, folder: str) -> None:
        self._library = library
        self._folder = folder
        self._logged: dict[str, tuple[str, ...]] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        """Log what changed since the last snapshot."""
        notices: dict[str, list[str]] = {}
        for skill in snapshot.hidden:  # each state has a sentence in `_make_sentence`
            winner = f" (by {skill.shadowed_by})" if skill.state == "shadowed" else ""
            name = skill.name + winner
            unpinned = skill.state == "untrusted" and self._library.is_unpinned(skill)
            notices.setdefault("unpinned" if unpinned else skill.state, []).append(name)
        if line := self._library.untrusted_notice():
            notices["untrusted"] = [render(line)]
        if len(snapshot.skills) <= MAX_SKILLS_COMPARED:
            notices["modified"] = [skill.name for skill in self._library.modified(snapshot.skills)]
        broken = find_broken(snapshot.problems, self._library.locations)
        notices["broken"] = [skill_file.problem.path for skill_file in broken]
        notices["settings"] = [
            f"{problem.path}: {problem.message}"
            for problem in snapshot.problems
            if problem.code.startswith("setting-")
        ]
        notices["unmatched"] = self._library.unmatched()
        notices["none"] = [] if snapshot.every() else [f"`{self._folder}`"]
        for kind, names in notices.items():
            if self._logged.get(kind, ()) != tuple(names):
                self._logged[kind] = tuple(names)
                _warn(kind, names)


def warn_about_limits(library: Library, session: Session, options: SessionOptions) -> None:
    """Log limits of a session that look like a mistake, and that there are no skills at all.

    Patterns of `tools` may name tools of the host, so only near misses are logged.
    """
    if include := options.get("include"):
        _warn("unmatched", library.unmatched((include,) if isinstance(include, str) else include))
    if tools := options.get("tools"):
        offered = session.tool_names
        patterns = (tools,) if isinstance(tools, str) else tools
        names = [pattern.partition("(")[0] for pattern in patterns]
        near = {
            name: similar_names(name, offered, ratio=0.8) for name in names if name not in offered
        }
        words = [
            say("`{name}` (did you mean `{near}`?)", name=name, near=match[0])
            for name, match in near.items()
            if match and not any(sign in name for sign in "*?[")
        ]
        _warn("unmatched-tools", words)


def _warn(kind: str, names: Sequence[str]) -> None:
    sentence = _make_sentence(kind, _join_first(names)) if names else ""
    if sentence:
        import logging

        logging.getLogger("satchel").warning("%s", sentence)


def _make_sentence(kind: str, names: str) -> str:
    """The warning of a kind; empty for kinds that were requested, such as `excluded`."""
    if kind in ("unpinned", "blocked", "unverified", "modified", "shadowed", "broken"):
        state = say("not pinned") if kind == "unpinned" else say(kind)
        return say("Skills {state}: {names}", state=state, names=names)
    return {
        "untrusted": names,
        "needs setup": say("Skills that need setup: {names}", names=names),
        "settings": say("Settings ignored: {names}", names=names),
        "unmatched": say("No skill matches these patterns of `include`: {names}", names=names),
        "unmatched-tools": say("No tool matches these patterns of `tools`: {names}", names=names),
        "none": say("There are no skills in {names}", names=names),
    }.get(kind, "")


def _join_first(names: Sequence[str]) -> str:
    if len(names) <= _MAX_NAMES_LOGGED:
        return join_names(names)
    joined = join_names(names[:_MAX_NAMES_LOGGED])
    return say("{names} and {count} more", names=joined, count=len(names) - _MAX_NAMES_LOGGED)


def add_first_skill(store: Store, name: str) -> str:
    """Add a skill of that name; returns the path of its SKILL.md.

    Raises:
        InvalidInput: the name cannot be a skill's name, or the skill exists.
    """
    texts = (_EXAMPLE_DESCRIPTION, _EXAMPLE_BODY) if name == EXAMPLE_SKILL else ()
    with store.plan_add(name, *texts, skill_id=name) as plan:
        store.require_complete(plan)
        store.apply(plan)
    return os.path.join(store.scope.target(name), "SKILL.md")


def find_skill(library: Library, skill: Skill | str) -> Skill:
    """Return a skill by name, id or path; a `Skill` is returned as it is.

    Raises:
        NotFound: there is no such skill.
    """
    if isinstance(skill, str):
        matches = library.refresh().find(skill)
        if not matches:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill),
                Message("Run `{command}`", command="satchel list --all"),
            )
        skill = matches[0]
    return skill
