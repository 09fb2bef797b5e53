"""Where skills are looked for, and in which order.

The first location wins when two hold the same name. System places come first, then the project's,
then the user's own. `default_locations` is the whole table; `docs/concepts/locations.md` shows it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_really_inside
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
    """While untrusted, links may not lead out of this folder."""
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
    """The location table for a project."""
    found: list[Location] = []
    seen: set[tuple[str, bool]] = set()
    for location in _table(settings):
        key = (os.path.realpath(location.path), location.single)
        if key not in seen:
            seen.add(key)
            found.append(location)
    return found


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
    if settings.builtin:
        yield Location(builtin_folder(), "builtin", "built-in", trusted=True, writable=False)
    yield from _of_project(settings.project, settings.project, "", settings)
    if settings.ancestors:
        for folder in _ancestors(settings.project):
            prefix = os.path.relpath(folder, settings.project) + "/"
            yield from _of_project(folder, folder, prefix, settings)
    for item in settings.project_locations:
        path = os.path.join(settings.project, item)
        yield Location(path, "extra", item, policy(settings), boundary=settings.project)
    for item in settings.locations:
        if item.startswith(SERVER):
            continue  # whoever knows servers adds those
        path = os.path.abspath(os.path.join(settings.project, os.path.expanduser(item)))
        inside = is_really_inside(path, settings.project)
        trusted = policy(settings) if inside else True
        yield Location(path, "extra", item, trusted, boundary=settings.project if inside else "")
    own = global_folder()
    if not own:
        return
    usual = os.path.join(home, ".config", "agents", "skills")
    yield Location(own, "global", "~/.config/agents/skills" if own == usual else own)
    if settings.ecosystem:
        for item in _ECOSYSTEM_HOME:
            yield Location(os.path.join(home, item), "global", f"~/{item}")


def _of_project(folder: str, boundary: str, prefix: str, settings: Settings) -> Iterator[Location]:
    trusted = policy(settings)
    rows: tuple[tuple[str, Source, bool], ...] = (
        (".agents/sys.skills", "system", False),
        (".agents/skills", "user", True),
        ("skills", "project", True),
        (".skills", "project", True),
    )
    for item, source, writable in rows:
        yield Location(
            os.path.join(folder, item),
            source,
            prefix + item,
            trusted,
            boundary=boundary,
            writable=writable,
        )
    yield Location(
        folder, "project", prefix.rstrip("/") or ".", trusted, single=True, boundary=boundary
    )
    if settings.ecosystem:
        for item in _ECOSYSTEM:
            yield Location(
                os.path.join(folder, item), "project", prefix + item, trusted, boundary=boundary
            )


def policy(settings: Settings) -> bool | None:
    """Whether the skills of a project's own folders are offered, by the setting `trust`."""
    return None if settings.trust == "ask" else True


def _ancestors(project: str) -> Iterator[str]:
    """The folders above the project, up to the one that holds `.git`; none without it."""
    above: list[str] = []
    folder = project
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        above.append(parent)
        folder = parent
    yield from above
