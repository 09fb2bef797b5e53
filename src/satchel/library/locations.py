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
            Message("Run `{command}`", command=f"satchel install {source}"),
        )
    return skill.base_dir


_ECOSYSTEM = (
    ".claude/skills",
    ".codex/skills",
    ".cursor/skills",
    ".gemini/skills",
    ".opencode/skills",
    ".github/skills",
    ".goose/skills",
)
_ECOSYSTEM_HOME = (
    ".agents/skills",
    ".claude/skills",
    ".codex/skills",
    ".cursor/skills",
    ".gemini/skills",
    ".copilot/skills",
    ".config/opencode/skills",
    ".config/goose/skills",
)
OTHER_AGENTS = frozenset((*_ECOSYSTEM, *(f"~/{item}" for item in _ECOSYSTEM_HOME)))
"""Labels of the locations of other agents."""
_BESIDE = ("sys.skills", ".skills")
"""Folders beside a `skills` folder, to which the lockfile belongs."""


class Location(NamedTuple):
    """A folder or server with skills."""

    path: str
    """Absolute folder."""
    source: Source = "extra"
    label: str = ""
    """Display name; the path when empty."""
    trusted: bool | None = True
    """True: offered. False: not offered. None: offered if the folder is trusted."""
    single: bool = False
    """The folder itself is one skill (`./SKILL.md`); nothing below it is searched."""
    boundary: str = ""
    """The project it belongs to. A link at `path` may not lead out of it; links below may, once it
    is trusted."""
    writable: bool = True
    supplier: Supplier | None = None
    """The server of its skills; `path` is then only the base of their paths."""

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
        return "" if self.single or name in _BESIDE else os.path.join(folder, "satchel.lock")

    @property
    def origin(self) -> SkillOrigin:
        """The origin of its skills."""
        remote = f"mcp {self.supplier.label}" if self.supplier is not None else ""
        return SkillOrigin(self.path, self.source, self.name, self.writable, remote)


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
    table = [(location, os.path.realpath(location.path)) for location in _table(settings)]
    project = os.path.realpath(settings.project)
    own = {(real, one.single): one.path for one, real in table if not one.boundary}
    found: dict[tuple[str, bool], Location] = {}
    for location, real in table:
        key = (real, location.single)
        if location.boundary and not is_inside(real, project):
            key = (location.path, location.single)  # refused when it is read
        elif location.boundary and key in own:
            if own[key] != location.path:
                continue
            location = location._replace(trusted=True, boundary="")  # noqa: PLW2901 - the home folder
        found.setdefault(key, location)
    return list(found.values())


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


def _table(settings: Settings) -> Iterator[Location]:
    home = os.path.expanduser("~")
    yield from _of_project(settings)
    for item in settings.locations:
        path = os.path.abspath(os.path.join(settings.project, os.path.expanduser(item)))
        inside = is_inside(path, settings.project) or is_inside(
            os.path.realpath(path), os.path.realpath(settings.project)
        )
        trusted = project_trust(settings) if inside else True
        yield Location(path, "extra", item, trusted, boundary=settings.project if inside else "")
    own = global_folder()
    if own:
        usual = os.path.join(home, ".config", "agents", "skills")
        yield Location(own, "global", "~/.config/agents/skills" if own == usual else own)
    if own and settings.ecosystem:
        for item in _ECOSYSTEM_HOME:
            yield Location(os.path.join(home, item), "global", f"~/{item}")
    if settings.builtin:
        yield Location(builtin_folder(), "builtin", "built-in", trusted=True, writable=False)


def _of_project(settings: Settings) -> Iterator[Location]:
    project, trusted = settings.project, project_trust(settings)
    rows: list[tuple[str, Source]] = [
        (".agents/sys.skills", "system"),
        (".agents/skills", "user"),
        ("skills", "project"),
        (".skills", "project"),
        ("", "project"),
        *((item, "extra") for item in settings.project_locations),
        *((item, "project") for item in _ECOSYSTEM if settings.ecosystem),
    ]
    for item, source in rows:
        yield Location(
            os.path.join(project, item) if item else project,
            source,
            item or ".",
            trusted,
            single=not item,
            boundary=project,
            writable=source != "system",
        )


def project_trust(settings: Settings) -> bool | None:
    """Whether the skills of a project's own folders are offered, by the setting `trust`."""
    return None if settings.asks else True
