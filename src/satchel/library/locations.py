"""Locations of skills and their order.

The first location wins when two have the same name: the project's, then the user's, then Satchel's
built-in skills. `default_locations` is the whole table; `docs/concepts/locations.md` shows it.

A location whose path lies inside the project, with or without links resolved, has a `boundary`: if
it is a link that leads out of the project, it is not followed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.errors import Refused
from satchel.i18n import Message, say
from satchel.skill.model import SkillOrigin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.library.supplier import Supplier
    from satchel.settings import Settings
    from satchel.skill.model import Skill, Source


_AGENT_PROJECT_FOLDERS = (
    ".claude/skills",
    ".codex/skills",
    ".cursor/skills",
    ".gemini/skills",
    ".opencode/skills",
    ".github/skills",
    ".goose/skills",
)
_AGENT_HOME_FOLDERS = (
    ".agents/skills",
    ".claude/skills",
    ".codex/skills",
    ".cursor/skills",
    ".gemini/skills",
    ".copilot/skills",
    ".config/opencode/skills",
    ".config/goose/skills",
)
_AGENT_ENDINGS = tuple({f"/{name}" for name in (*_AGENT_PROJECT_FOLDERS, *_AGENT_HOME_FOLDERS)})
_FOLDERS_WITHOUT_LOCK = ("sys.skills", ".skills")
"""Folders beside a `skills` folder, to which the lockfile belongs."""


class Location(NamedTuple):
    """A folder or server with skills.

    Example:
        import os

        from satchel import Library, Location

        library = Library([Location(os.path.abspath("skills"), label="ours")])
        assert library.list_skills()[0].ref == "ours/code-review"
    """

    path: str
    """Absolute folder."""
    source: Source = "extra"
    """The kind of location, for reports and for precedence."""
    label: str = ""
    """Display name; the path when empty."""
    trusted: bool | None = True
    """True: offered. False: not offered. None: offered if the folder is trusted."""
    single: bool = False
    """The folder itself is one skill (`./SKILL.md`); nothing below it is searched."""
    boundary: str = ""
    """The project it belongs to. A link at `path` may not lead out of it; links below may if
    `trusted` is True."""
    writable: bool = True
    """Whether Satchel may change skills there."""
    supplier: Supplier | None = None
    """The server of its skills; `path` is then only the base of their paths."""
    folders: tuple[str, ...] = ("",)
    """The folders below `path` that are searched; `path` itself by default."""
    version: str = ""
    """The version of the package or plugin that brought it."""
    trusted_with: str = ""
    """The project with which the skills of a package or plugin are trusted, wherever they lie."""

    @property
    def name(self) -> str:
        """Label or path."""
        return self.label or self.path

    @property
    def lock(self) -> str:
        """Path of its lockfile; empty when it cannot have one."""
        if self.supplier is not None:
            return ""
        folder, name = os.path.split(self.path)
        return (
            ""
            if self.single or self.trusted_with or name in _FOLDERS_WITHOUT_LOCK
            else os.path.join(folder, "satchel.lock")
        )

    @property
    def origin(self) -> SkillOrigin:
        """The origin of its skills."""
        kind = "mcp" if self.source == "server" else self.source
        remote = f"{kind} {self.supplier.label}" if self.supplier is not None else ""
        return SkillOrigin(self.path, self.source, self.name, self.writable, remote, self.version)

    @property
    def is_changeable(self) -> bool:
        """Whether commands change its skills: it is an `.agents/skills`, or another agent's."""
        return (
            self.writable
            and self.supplier is None
            and self.path.replace(os.sep, "/").endswith(_AGENT_ENDINGS)
        )

    @property
    def is_confined(self) -> bool:
        """Whether links below it may not lead out of the boundary."""
        return bool(self.boundary) and (self.trusted is not True or bool(self.trusted_with))

    def trust_decision(self, folder: str) -> tuple[str, str]:
        """The folder and the project whose trust decides about a folder of a skill."""
        if self.trusted_with:
            return self.trusted_with, self.trusted_with
        return folder, self.boundary


def is_of_agents(label: str) -> bool:
    """Whether a label is that of a folder of other agents, or of one above or below the project."""
    return f"/{label}".endswith(_AGENT_ENDINGS) and label != ".agents/skills"


def local_folder(skill: Skill) -> str:
    """The folder of a local skill.

    Raises:
        Refused: it is a served skill, of which only cached files are local.
    """
    if skill.origin.remote:
        import shlex

        source = shlex.quote(f"{skill.origin.label}/{skill.name}")
        raise Refused(
            Message(
                "The skill `{name}` lies on a server ({origin}): there is no folder to work on",
                name=skill.name,
                origin=skill.origin.remote,
            ),
            Message("Run `{command}`", command=f"satchel install {source}")
            if skill.source == "server"
            else "",
        )
    return skill.base_dir


def source_words(source: str) -> str:
    """The name of a source for people; `user` is also a scope, so its skills are `own`."""
    return {
        "user": say("own"),
        "project": say("project"),
        "system": say("system"),
        "global": say("global"),
        "extra": say("extra"),
        "server": say("server"),
        "builtin": say("built-in"),
        "code": say("code"),
        "package": say("package"),
        "plugin": say("plugin"),
    }.get(source, "–")


def builtin_folder() -> str:
    """The folder of the skills that ship with Satchel."""
    return os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system_skills"
    )


def default_locations(settings: Settings) -> list[Location]:
    """The locations of a project, each folder once even if several paths lead to it.

    A folder of the user's own stays trusted when a project links to it.
    """
    candidates = [
        (location, os.path.realpath(location.path)) for location in _list_candidates(settings)
    ]
    user_paths = {
        (real_path, location.single): location.path
        for location, real_path in candidates
        if not location.boundary
    }
    locations: dict[tuple[str, bool], Location] = {}
    for location, real_path in candidates:
        key = (real_path, location.single)
        if location.boundary and not is_inside(real_path, os.path.realpath(location.boundary)):
            key = (location.path, location.single)  # refused when it is read
        elif location.boundary and key in user_paths:
            if user_paths[key] != location.path:
                continue
            location = location._replace(trusted=True, boundary="")  # noqa: PLW2901 - the home folder
        locations.setdefault(key, location)
    return list(locations.values())


def user_folder(settings: Settings) -> str:
    """The folder that `init`, `add` and `import` write to."""
    return os.path.join(settings.project, ".agents", "skills")


def global_folder() -> str:
    """The folder of the user's skills for all projects; empty without a home folder."""
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        return ""  # a relative path would be a folder of the project
    config = os.environ.get("XDG_CONFIG_HOME") or ""
    if not os.path.isabs(config):
        config = os.path.join(home, ".config")
    return os.path.join(config, "agents", "skills")


def _list_candidates(settings: Settings) -> Iterator[Location]:
    """Yield all locations in their order; several paths may lead to one folder."""
    home = os.path.expanduser("~")
    position = settings.levels.index(settings.project)
    for level in settings.levels[:position]:
        yield from _list_level(settings, level)
    yield from _list_project_locations(settings)
    for level in settings.levels[position + 1 :]:
        yield from _list_level(settings, level)
    for label in settings.locations:
        path = os.path.abspath(os.path.join(settings.project, os.path.expanduser(label)))
        in_project = is_inside(path, settings.project) or is_inside(
            os.path.realpath(path), os.path.realpath(settings.project)
        )
        trusted = project_trust(settings) if in_project else True
        boundary = settings.project if in_project else ""
        yield Location(path, "extra", label, trusted, boundary=boundary)
    folder = global_folder()
    if folder:
        default_folder = os.path.join(home, ".config", "agents", "skills")
        label = "~/.config/agents/skills" if folder == default_folder else folder
        yield Location(folder, "global", label)
    if folder and settings.ecosystem:
        for agent_folder in _AGENT_HOME_FOLDERS:
            yield Location(os.path.join(home, agent_folder), "global", f"~/{agent_folder}")
    if settings.builtin:
        yield Location(builtin_folder(), "builtin", "built-in", trusted=True, writable=False)


def _list_project_locations(settings: Settings) -> Iterator[Location]:
    project, trusted = settings.project, project_trust(settings)
    folders: list[tuple[str, Source]] = [
        (".agents/sys.skills", "system"),
        (".agents/skills", "user"),
        ("skills", "project"),
        (".skills", "project"),
        ("", "project"),
        *((folder, "extra") for folder in settings.project_locations),
        *((folder, "project") for folder in _AGENT_PROJECT_FOLDERS if settings.ecosystem),
    ]
    for folder, source in folders:
        yield Location(
            os.path.join(project, folder) if folder else project,
            source,
            folder or ".",
            trusted,
            single=not folder,
            boundary=project,
            writable=source != "system",
        )


def _list_level(settings: Settings, level: str) -> Iterator[Location]:
    """Yield the locations of a folder below or above the project, in the same repository.

    Each level is trusted by itself: it may be a clone without its `.git`.
    """
    trusted = project_trust(settings)
    for folder in (".agents/skills", *(_AGENT_PROJECT_FOLDERS if settings.ecosystem else ())):
        path = os.path.join(level, folder)
        label = os.path.relpath(path, settings.project).replace(os.sep, "/")
        source: Source = "user" if folder == ".agents/skills" else "project"
        yield Location(path, source, label, trusted, boundary=level)


def project_trust(settings: Settings) -> bool | None:
    """Whether the skills of a project's own folders are offered, by the setting `trust`."""
    return None if settings.asks else True
