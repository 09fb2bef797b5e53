"""Where skills are looked for, in which order, and who supplies those that do not lie here.

The first location wins when two hold the same name: the project's, then the user's, then Satchel's
built-in skills. `default_locations` is the whole table; `docs/concepts/locations.md` shows it.

A location is the project's when its path lies inside the project, with or without links resolved:
then it has a `boundary`, and a link at it that leads out of the project is not followed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from satchel._fs import is_inside
from satchel._language import Message
from satchel.errors import Refused
from satchel.settings import SERVER
from satchel.skill.model import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.settings import Settings
    from satchel.skill.model import Skill, Source
    from satchel.skill.problems import Problem

OWN = "SKILL.md"
"""The file that every served skill has."""


class ServedFile(NamedTuple):
    """One file of a served skill, as it was listed."""

    path: str
    """Below the skill's folder, with `/`."""
    uri: str
    digest: str
    """64 hexadecimal digits of SHA-256."""
    size: int


class Served(NamedTuple):
    """One skill as it was listed."""

    id: str
    """Its folder below the location: one name, so that no skill lies within another."""
    name: str
    """What it is offered as: its own name, unless the same list has another of that name."""
    uri: str
    """Of its SKILL.md."""
    frontmatter: dict[str, Any]
    files: dict[str, ServedFile]
    mark: str
    """Changes with every digest, size, address and field. An accepted risk is bound to it."""


class Listing(NamedTuple):
    """What a supplier has; the very same object as long as nothing changes."""

    served: Mapping[str, Served]
    """By id."""
    problems: tuple[Problem, ...] = ()
    """What was refused, and whether the list is an old one."""


class Supplier(Protocol):
    """Who lists skills and hands over their files."""

    @property
    def label(self) -> str:
        """What the user calls it; never what it calls itself."""
        ...

    def prepare(self) -> None:
        """Begin what the first `listing` would wait for: several suppliers take no longer so."""
        ...

    def listing(self) -> Listing:
        """What there is. The first call may wait a moment, and none waits long."""
        ...

    def fetch(self, served: Served, file: ServedFile) -> bytes:
        """A file's bytes, whatever they are: the caller compares them.

        Raises:
            SatchelError: it cannot be had.
        """
        ...

    def suspect(self) -> None:
        """A file was not as listed: the list may be old, and is asked for again."""
        ...

    def close(self) -> None:
        """End what it keeps running."""
        ...


def mark_of(uri: str, frontmatter: Mapping[str, Any], files: Mapping[str, ServedFile]) -> str:
    """One digest over all that was listed of a skill."""
    import json
    from hashlib import sha256

    from satchel.skill.tree import digest_of

    rows = {path: f"sha256:{file.digest} {file.size} {file.uri}" for path, file in files.items()}
    # No path has a NUL in it, so these two rows are nobody's file.
    rows["\0uri"] = uri
    text = json.dumps(frontmatter, sort_keys=True, default=str)
    rows["\0frontmatter"] = sha256(text.encode()).hexdigest()
    return digest_of(rows)


def folder_of(skill: Skill) -> str:
    """The folder of a skill that lies here, whole.

    Raises:
        Refused: it lies on a server, and what is here is no more than what was read of it.
    """
    if skill.origin.remote:
        raise Refused(
            Message(
                "The skill `{name}` lies on a server ({origin}): there is no folder to work on",
                name=skill.name,
                origin=skill.origin.remote,
            ),
            Message("Make a copy of your own first: `satchel mcp copy {name}`", name=skill.typed),
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
"""Labels of the locations that belong to other agents."""
_BESIDE = ("sys.skills", ".skills")
"""Folders that lie beside a `skills`, whose lockfile it is."""


class Location(NamedTuple):
    """One folder, or one server, with skills."""

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
