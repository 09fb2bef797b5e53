"""The library of a project made from its settings, its notices, a first skill, and a review of it.

What is not offered goes to the logger `satchel`: one warning for each kind, when the library is
first read and again when what it names changes. The commands print the same themselves.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import Message, listed, render, say
from satchel.errors import NotFound, Refused, SatchelError
from satchel.library import Bounds, Filter, Index, Library, TrustBook, default_locations
from satchel.library.locations import user_folder
from satchel.library.snapshot import find_broken
from satchel.library.survey import ScanCache
from satchel.settings import SERVER, similar_setting
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.library import Snapshot
    from satchel.library.locations import Location
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.store import Store


def library_for(settings: Settings) -> Library:
    """The library of these settings; ignored settings are among its problems.

    Raises:
        NotFound: the project's folder does not exist.
    """
    if not os.path.isdir(settings.project):
        raise NotFound(
            say("There is no folder `{path}`", path=settings.project),
            say("Create it, or give a folder that exists"),
        )
    state, cache = settings.paths.state, settings.paths.cache
    where = state or None if settings.trace == "file" else None
    trace = Trace(where, settings.project, enabled=settings.trace != "off")
    served, wrong = _served(settings)
    library = Library(
        [*default_locations(settings), *served],
        bounds=Bounds(settings.max_depth, settings.max_folders),
        wanted=Filter(settings.include, settings.exclude, settings.tags),
        trust=TrustBook(
            os.path.join(state, "trust.json") if state else None, locked=settings.trust == "locked"
        ),
        scans=ScanCache(cache, _exceptions(settings)),
        index=Index(cache) if settings.use_index and cache else None,
        trace=trace,
        problems=[*setting_problems(settings), *wrong],
    )
    if settings.create_missing:
        os.makedirs(user_folder(settings), exist_ok=True)
    return library


def _exceptions(settings: Settings) -> str:
    """The user's own list of accepted findings, if there is one."""
    path = os.path.join(os.path.dirname(settings.paths.config), "satchel-scan.toml")
    return path if settings.paths.config and os.path.isfile(path) else ""


def _served(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """The servers that are set. Where none is, nothing of that kind is even imported."""
    if not settings.servers and not any(one.startswith(SERVER) for one in settings.locations):
        return [], []
    from satchel.remote import served_locations

    return served_locations(settings)


def setting_problems(settings: Settings) -> list[Problem]:
    """What was ignored or refused in the settings files."""
    found: list[Problem] = []
    for code, file, value in settings.remarks:
        near = similar_setting(value) if code == "setting-unknown" else ""
        values = {"name": value, "reason": value, "near": near}
        found.append(Problem("setting-near" if near else code, file, values=values))
    return found


MAX_COMPARED = 500
"""Skills up to which a look compares what is installed with the lockfile."""
_MOST_NAMED = 5


class Notices:
    """Logs the notices of one library, each set of names once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._logged: dict[str, tuple[str, ...]] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        """Log what is new about a snapshot."""
        found: dict[str, list[str]] = {}
        for skill in snapshot.hidden:  # by state: another state needs a sentence in `_sentence`
            name = f"{skill.name} ({skill.winner})" if skill.state == "shadowed" else skill.name
            unpinned = skill.state == "untrusted" and self._library.is_unpinned(skill)
            found.setdefault("unpinned" if unpinned else skill.state, []).append(name)
        if line := self._library.waiting_line():
            found["untrusted"] = [render(line)]
        if len(snapshot.skills) <= MAX_COMPARED:
            found["modified"] = [skill.name for skill in self._library.modified(snapshot.skills)]
        broken = find_broken(snapshot.problems, self._library.locations)
        found["broken"] = [one.problem.path for one in broken]
        found["settings"] = [
            f"{one.path}: {one.message}"
            for one in snapshot.problems
            if one.code.startswith("setting-")
        ]
        found["unmatched"] = self._library.unmatched()
        for kind, names in found.items():
            if self._logged.get(kind, ()) != tuple(names):
                self._logged[kind] = tuple(names)
                _warn(kind, names)


def warn_unmatched(library: Library, patterns: Sequence[str]) -> None:
    """Log the patterns of an `include` that match no skill."""
    _warn("unmatched", library.unmatched(patterns) if patterns else ())


def _warn(kind: str, names: Sequence[str]) -> None:
    sentence = _sentence(kind, _some(names)) if names else ""
    if sentence:
        import logging

        logging.getLogger("satchel").warning("%s", sentence)


def _sentence(kind: str, names: str) -> str:
    """The warning of a kind; empty for what the programmer asked for, such as `excluded`."""
    return {
        "untrusted": names,
        "unpinned": say("Skills not offered, since no lockfile pins them: {names}", names=names),
        "blocked": say("Skills not offered, since the scan blocks them: {names}", names=names),
        "modified": say("Skills modified since they were installed: {names}", names=names),
        "shadowed": say("Skills hidden by others of the same name: {names}", names=names),
        "broken": say("Files that cannot be used as skills: {names}", names=names),
        "settings": say("Settings ignored: {names}", names=names),
        "unmatched": say("No skill matches these patterns of `include`: {names}", names=names),
    }.get(kind, "")


def _some(names: Iterable[str]) -> str:
    every = list(names)
    if len(every) <= _MOST_NAMED:
        return listed(every)
    shown = listed(every[:_MOST_NAMED])
    return say("{names} and {count} more", names=shown, count=len(every) - _MOST_NAMED)


FIRST = "hello-skill"
"""What `init` writes when it is given no name."""
_FIRST_DESCRIPTION = "Greets somebody by name. Use when the user asks for a greeting or a welcome."
_FIRST_BODY = (
    "Write one friendly sentence that greets: $ARGUMENTS\n\nIf no name was given, ask for one."
)


def add_first_skill(store: Store, name: str) -> str:
    """Add a skill of that name, as one change that can be undone; returns its SKILL.md.

    Raises:
        InvalidInput: the name cannot be a skill's name, or the skill exists.
    """
    texts = (_FIRST_DESCRIPTION, _FIRST_BODY) if name == FIRST else ()
    with store.plan_add(name, *texts, skill_id=name) as plan:
        store.insist(plan)
        store.carry_out(plan)
    return os.path.join(store.scope.target(name), "SKILL.md")


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
    found: dict[str, str] = {}
    for at, skill in enumerate(waiting):
        if progress is not None:
            progress(at, len(waiting))
        try:
            report = library.seals.scan(skill, found=found)
        except SatchelError as exc:
            values = {"name": skill.typed, "reason": exc.why}
            problems.append(Problem("not-scannable", skill.path, values=values))
            continue
        if report.inventory.programs or library.tools().of(skill) is not None:
            programs.append(skill)
        if report.verdict == "blocked" and not library.seals.is_accepted(skill):
            blocked.append(skill)
    library.seals.note(found)
    if progress is not None:
        progress(len(waiting), len(waiting))
    return FolderReview(
        settings.project, tuple(waiting), tuple(programs), tuple(blocked), tuple(problems)
    )


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
