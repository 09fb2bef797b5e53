"""Builds the library of a project, logs its notices, adds the first skill and reviews the folder.

Skills that are not offered are logged to `satchel`: one warning per kind, when the library is
first read and again when the names change. The commands print the same themselves.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_really_inside
from satchel.errors import NotFound, Refused, SatchelError
from satchel.i18n import Message, join_names, render, say
from satchel.library import Filter, Library, ScanCache, TrustStore, default_locations
from satchel.library.fingerprint import VerdictCache
from satchel.library.locations import user_folder
from satchel.library.snapshot import find_broken
from satchel.settings import similar_setting
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.library import Snapshot
    from satchel.library.locations import Location
    from satchel.session.options import SessionOptions
    from satchel.session.session import Session
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.store import Store


def library_for(settings: Settings) -> Library:
    """Create the library of a project; ignored settings are among its problems.

    Raises:
        NotFound: the project's folder does not exist.
    """
    if not os.path.isdir(settings.project):
        raise NotFound(say("There is no `{path}`", path=settings.project))
    state, cache = settings.paths.state, settings.paths.cache
    where = state or None if settings.trace == "file" else None
    trace = Trace(where, settings.project, enabled=settings.trace != "off")
    served, wrong = _server_locations(settings)
    library = Library(
        [*default_locations(settings), *served],
        wanted=Filter(settings.include, settings.exclude, settings.tags),
        trust=TrustStore(
            os.path.join(state, "trust.json") if state else None,
            locked=settings.trust == "locked",
            grants=settings.grants,
        ),
        scans=VerdictCache(cache),
        index=ScanCache(cache) if cache else None,
        trace=trace,
        problems=[*setting_problems(settings), *wrong],
        strict=settings.strict,
    )
    if settings.create_missing:
        os.makedirs(user_folder(settings), exist_ok=True)
    return library


def _server_locations(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """The configured servers; without any, `satchel.library.remote` is not imported."""
    if not settings.servers:
        return [], []
    from satchel.library.remote import served_locations

    return served_locations(settings)


def setting_problems(settings: Settings) -> list[Problem]:
    """Settings of files that were ignored or refused."""
    found: list[Problem] = []
    for code, file, value in settings.remarks:
        near = similar_setting(value) if code == "setting-unknown" else ""
        values = {"name": value, "reason": value, "near": near}
        found.append(Problem("setting-near" if near else code, file, values=values))
    return found


MAX_SKILLS_COMPARED = 500
"""Larger libraries are not compared with their lockfiles at start-up."""
_MAX_NAMES_LOGGED = 5


class Notices:
    """Logs skills of one library that are not offered; each set of names once."""

    def __init__(self, library: Library, folder: str) -> None:
        self._library = library
        self._folder = folder
        self._logged: dict[str, tuple[str, ...]] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        """Log what changed since the last snapshot."""
        found: dict[str, list[str]] = {}
        for skill in snapshot.hidden:  # by state: another state needs a sentence in `_sentence`
            winner = f" (by {skill.shadowed_by})" if skill.state == "shadowed" else ""
            name = skill.name + winner
            unpinned = skill.state == "untrusted" and self._library.is_unpinned(skill)
            found.setdefault("unpinned" if unpinned else skill.state, []).append(name)
        if line := self._library.untrusted_notice():
            found["untrusted"] = [render(line)]
        if len(snapshot.skills) <= MAX_SKILLS_COMPARED:
            found["modified"] = [skill.name for skill in self._library.modified(snapshot.skills)]
        broken = find_broken(snapshot.problems, self._library.locations)
        found["broken"] = [one.problem.path for one in broken]
        found["settings"] = [
            f"{one.path}: {one.message}"
            for one in snapshot.problems
            if one.code.startswith("setting-")
        ]
        found["unmatched"] = self._library.unmatched()
        found["none"] = [] if snapshot.every() else [f"`{self._folder}`"]
        for kind, names in found.items():
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
        from difflib import get_close_matches

        known = session.tool_names
        patterns = (tools,) if isinstance(tools, str) else tools
        names = [pattern.partition("(")[0] for pattern in patterns]
        near = {name: get_close_matches(name, known, 1, 0.8) for name in names if name not in known}
        words = [
            say("`{name}` (did you mean `{near}`?)", name=name, near=match[0])
            for name, match in near.items()
            if match and not any(sign in name for sign in "*?[")
        ]
        _warn("unmatched-tools", words)


def _warn(kind: str, names: Sequence[str]) -> None:
    sentence = _sentence(kind, _some(names)) if names else ""
    if sentence:
        import logging

        logging.getLogger("satchel").warning("%s", sentence)


def _sentence(kind: str, names: str) -> str:
    """The warning of a kind; empty for kinds that were requested, such as `excluded`."""
    if kind in ("unpinned", "blocked", "unverified", "modified", "shadowed", "broken"):
        state = say("not pinned") if kind == "unpinned" else say(kind)
        return say("Skills {state}: {names}", state=state, names=names)
    return {
        "untrusted": names,
        "settings": say("Settings ignored: {names}", names=names),
        "unmatched": say("No skill matches these patterns of `include`: {names}", names=names),
        "unmatched-tools": say("No tool matches these patterns of `tools`: {names}", names=names),
        "none": say("There are no skills in {names}", names=names),
    }.get(kind, "")


def _some(names: Iterable[str]) -> str:
    every = list(names)
    if len(every) <= _MAX_NAMES_LOGGED:
        return join_names(every)
    shown = join_names(every[:_MAX_NAMES_LOGGED])
    return say("{names} and {count} more", names=shown, count=len(every) - _MAX_NAMES_LOGGED)


EXAMPLE_SKILL = "hello-skill"
"""Default name of the skill that `init` adds."""
_FIRST_DESCRIPTION = "Greets somebody by name. Use when the user asks for a greeting or a welcome."
_FIRST_BODY = (
    "Write one friendly sentence that greets: $ARGUMENTS\n\nIf no name was given, ask for one."
)


def add_first_skill(store: Store, name: str) -> str:
    """Add a skill of that name; returns the path of its SKILL.md.

    Raises:
        InvalidInput: the name cannot be a skill's name, or the skill exists.
    """
    texts = (_FIRST_DESCRIPTION, _FIRST_BODY) if name == EXAMPLE_SKILL else ()
    with store.plan_add(name, *texts, skill_id=name) as plan:
        store.require_complete(plan)
        store.apply(plan)
    return os.path.join(store.scope.target(name), "SKILL.md")


class ToolRequest(NamedTuple):
    """The tools that a skill asks to call without approval."""

    skill: Skill
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
            same = integrity.inspect(skill).fields == fields
        except SatchelError:  # the scan reports it
            continue
        if same and (tools := tool_grants(library, skill, fields, digest).refused):
            yield ToolRequest(skill, tools, digest)


class FolderReview(NamedTuple):
    """The untrusted skills of a project, for the decision to trust its folder."""

    folder: str
    skills: tuple[Skill, ...]
    programs: tuple[Skill, ...] = ()
    """Skills with programs."""
    blocked: tuple[Skill, ...] = ()
    """Skills that the scan blocks: not offered even when the folder is trusted."""
    problems: tuple[Problem, ...] = ()
    """Skills that cannot be scanned, and so are not used."""
    requests: tuple[ToolRequest, ...] = ()
    """What the project's skills request, also those that are trusted already."""


def find_skill(library: Library, skill: Skill | str) -> Skill:
    """Return a skill by name, id or path; a `Skill` is returned as it is.

    Raises:
        NotFound: there is no such skill.
    """
    if isinstance(skill, str):
        found = library.refresh().find(skill)
        if not found:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill),
                Message("Run `{command}`", command="satchel list --all"),
            )
        skill = found[0]
    return skill


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
    waiting = [skill for skill in library.untrusted_skills() if not skill.origin.remote]
    programs: list[Skill] = []
    blocked: list[Skill] = []
    problems: list[Problem] = []
    verdicts: dict[str, str] = {}
    quiet: set[str] = set()
    for at, skill in enumerate(waiting):
        if progress is not None:
            progress(at, len(waiting))
        try:
            report = integrity.scan(skill, found=verdicts)
            if report.verdict == "blocked" and not integrity.is_accepted(skill):
                blocked.append(skill)
        except SatchelError as exc:
            values = {"name": skill.reference, "reason": exc.why}
            problems.append(Problem("not-scannable", skill.path, values=values))
            continue
        if report.inventory.programs or tools.of(skill) is not None:
            programs.append(skill)
        if not report.inventory.requests:
            quiet.add(skill.base_dir)
    integrity.record_verdicts(verdicts)
    if progress is not None:
        progress(len(waiting), len(waiting))
    here = [
        skill
        for skill in library.snapshot().skills
        if is_really_inside(skill.base_dir, settings.project)
    ]
    asking = (*waiting, *here)
    return FolderReview(
        settings.project,
        tuple(waiting),
        tuple(programs),
        tuple(blocked),
        tuple(problems),
        tuple(tool_requests(library, (skill for skill in asking if skill.base_dir not in quiet))),
    )


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
