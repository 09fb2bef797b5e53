"""Where skills are looked for, and in which order.

The first location wins when two hold the same name: the project's, then the user's, then Satchel's
built-in skills. `default_locations` is the whole table; `docs/concepts/locations.md` shows it.

A location is the project's when its path lies inside the project, with or without links resolved:
then it has a `boundary`, and a link at it that leads out of the project is not followed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.settings import SERVER
from satchel.skill.model import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.library.supplier import Supplier
    from satchel.settings import Settings
    from satchel.skill.model import Source

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
"""Labels of the locations that belong to other agents."""
_BESIDE = ("sys.skills", ".skills")
"""Folders that lie beside a `skills`, whose lockfile it is."""


class Location(NamedTuple):
    """One place with skills."""

    path: str
    """Absolute folder."""
    source: Source = "extra"
    label: str = ""
    """How people name it; the path when empty."""
    trusted: bool | None = True
    """True: offered. False: not offered. None: only what lies in a trusted folder."""
    single: bool = False
    """The folder itself is one skill (`./SKILL.md`); nothing below it is searched."""
    boundary: str = ""
    """The project it belongs to. Its own link may not lead out of it; links below it may once it is
    trusted."""
    writable: bool = True
    supplier: Supplier | None = None
    """Who supplies its skills; `path` is only where their files are kept then."""

    @property
    def name(self) -> str:
        """The label, or the path."""
        return self.label or self.path

    @property
    def lock(self) -> str:
        """The lockfile that belongs to it, if there is one; nothing where there cannot be."""
        if self.supplier is not None:
            return ""
        folder, name = os.path.split(self.path)
        return "" if self.single or name in _BESIDE else os.path.join(folder, "satchel.lock")

    @property
    def origin(self) -> Origin:
        """What each of its skills carries."""
        remote = f"mcp {self.supplier.label}" if self.supplier is not None else ""
        return Origin(self.path, self.source, self.name, self.writable, remote)


def builtin_folder() -> str:
    """Where the skills that ship with Satchel lie."""
    return os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system_skills"
    )


def default_locations(settings: Settings) -> list[Location]:
    """The location table for a project. One folder is read once, however many names it has.

    A folder that is the user's own stays so, whatever links a project has to it.
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
    """Where `init`, `add` and `import` put skills."""
    return os.path.join(settings.project, ".agents", "skills")


def global_folder() -> str:
    """Where the user's skills for all projects are; nothing when nobody's home is known."""
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        return ""  # nobody's home: it would be a folder of the project
    config = os.environ.get("XDG_CONFIG_HOME") or ""
    if not os.path.isabs(config):
        config = os.path.join(home, ".config")
    return os.path.join(config, "agents", "skills")


def _table(settings: Settings) -> Iterator[Location]:
    home = os.path.expanduser("~")
    yield from _of_project(settings)
    for item in settings.locations:
        if item.startswith(SERVER):
            continue  # added by `satchel.remote`
        path = os.path.abspath(os.path.join(settings.project, os.path.expanduser(item)))
        inside = is_inside(path, settings.project) or is_inside(
            os.path.realpath(path), os.path.realpath(settings.project)
        )
        trusted = policy(settings) if inside else True
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
    project, trusted = settings.project, policy(settings)
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


def policy(settings: Settings) -> bool | None:
    """Whether the skills of a project's own folders are offered, by the setting `trust`."""
    return None if settings.asks else True
