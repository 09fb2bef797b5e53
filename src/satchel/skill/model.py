"""What a skill is, once read.

    Head       what a scan keeps of one file: small, immutable, shared between snapshots
    Origin     the place it was found in
    Skill      a Head at its Origin, with its state; everything else is read when asked for
    Document   one SKILL.md read whole

A library of 100,000 skills holds 100,000 Heads, so a Head has no room for what nobody asked for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._language import Message
from satchel.skill.problems import NO_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.skill.problems import Problem

MANIFEST = "skill.yaml"
"""The file of a tool skill, beside a SKILL.md or instead of it."""

Source = Literal["builtin", "system", "user", "project", "global", "extra", "server"]
"""Who put a location there: shipped with Satchel, shipped with the host's product
(`.agents/sys.skills`), the project's user (`.agents/skills`), the project (`skills/`, `.skills/`),
the user's home, a path given by hand, or a server."""

State = Literal["active", "shadowed", "untrusted", "blocked", "excluded"]
"""`active` skills are offered. The others are known, shown, and not offered."""


class Head(NamedTuple):
    """What a scan keeps of one SKILL.md."""

    name: str
    description: str
    id: str
    """The skill's folder, relative to its location, with `/`: a path, since names repeat."""
    file: str
    """The file's own name: `SKILL.md`, or a case variant; `skill.yaml` of a tool skill."""
    mtime_ns: int
    ctime_ns: int
    size: int
    extra: dict[str, Any] | None = None
    """Those of `fields.LISTED` that the file has."""
    problems: tuple[Problem, ...] = NO_PROBLEMS


class Origin(NamedTuple):
    """The place a skill was found in."""

    root: str
    """Absolute folder."""
    source: Source
    label: str
    """How people name the place: `.agents/skills`, `~/.config/agents/skills`."""
    writable: bool = True
    """System places are read-only."""
    remote: str = ""
    """Which server its skills come from, as models are told (`mcp docs`); empty when local.

    What came from a server may not be run, and its `allowed-tools` grants nothing.
    """


class Document(NamedTuple):
    """A SKILL.md with its frontmatter, body and problems."""

    fields: dict[str, Any]
    """The frontmatter: every key the author wrote."""
    lines: dict[str, int]
    body: str
    problems: tuple[Problem, ...]
    head: Head | None
    """None when the file is not a skill; `problems` says why."""


class Skill(NamedTuple):
    """A skill in a library."""

    head: Head
    origin: Origin
    state: State = "active"
    winner: str = ""
    """When shadowed: the `ref` of the skill that hides it."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.head.name

    @property
    def typed(self) -> str:
        """The name quoted for a shell."""
        import re

        if re.fullmatch(r"\w[\w.-]*", self.head.name):
            return self.head.name
        import shlex

        return shlex.quote(self.base_dir)

    @property
    def description(self) -> str:
        """What it does and when to use it."""
        return self.head.description

    @property
    def id(self) -> str:
        """Its folder relative to the location: the folder's name, or a path when nested."""
        return self.head.id or os.path.basename(self.origin.root)

    @property
    def ref(self) -> str:
        """Names this skill and no other: the location's label and the id."""
        return f"{self.origin.label}/{self.head.id}" if self.head.id else f"{self.origin.label}/"

    @property
    def base_dir(self) -> str:
        """Absolute folder of the skill."""
        return os.path.join(self.origin.root, self.head.id) if self.head.id else self.origin.root

    @property
    def path(self) -> str:
        """Absolute path of its SKILL.md."""
        return os.path.join(self.base_dir, self.head.file)

    @property
    def mtime(self) -> float:
        """When the file was last changed, in seconds."""
        return self.head.mtime_ns / 1e9

    @property
    def source(self) -> Source:
        """The kind of location: `project`, `global`, `builtin` and others."""
        return self.origin.source

    @property
    def is_system(self) -> bool:
        """Shipped with a product: read-only here."""
        return self.origin.source in ("builtin", "system")

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems found while reading the frontmatter; `satchel validate` finds more."""
        path = self.path
        return tuple(problem.at(path) for problem in self.head.problems)

    @property
    def is_tool(self) -> bool:
        """It has tools and no instructions: there is a skill.yaml and no SKILL.md."""
        return self.head.file == MANIFEST

    @property
    def when_to_use(self) -> str:
        """The `when_to_use` field, or nothing."""
        return str((self.head.extra or {}).get("when_to_use", ""))

    @property
    def argument_hint(self) -> str:
        """The `argument-hint` field, or nothing."""
        return str((self.head.extra or {}).get("argument-hint", ""))

    @property
    def tags(self) -> tuple[str, ...]:
        """Words for filters."""
        return tuple((self.head.extra or {}).get("tags", ()))

    @property
    def for_model(self) -> bool:
        """False when the author set `disable-model-invocation`."""
        return not (self.head.extra or {}).get("disable-model-invocation", False)

    @property
    def for_people(self) -> bool:
        """False when the author set `user-invocable: false`."""
        return bool((self.head.extra or {}).get("user-invocable", True))

    def read(self, verify: Callable[[bytes], None] | None = None) -> Document:
        """Read the whole file now: fields, body, every problem.

        Args:
            verify: Gets the very bytes that the document is made of, and raises when it may not be.

        Raises:
            NotFound: the file is gone.
            Refused: the operating system does not let us read it, or it lies on a server and
                nobody verifies it.
        """
        from satchel.skill.load import load_document

        if self.origin.remote and verify is None:
            from satchel.errors import Refused

            raise Refused(
                Message(
                    "The skill `{name}` lies on a server ({origin}) and is read when it is loaded",
                    name=self.name,
                    origin=self.origin.remote,
                ),
                Message("Run `satchel show {name}` to read it", name=self.typed),
            )

        return load_document(self.base_dir, self.head.file, self.head.id, verify)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "is_system": self.is_system,
            "state": self.state,
            "ref": self.ref,
            "path": self.path,
            "base_dir": self.base_dir,
            "mtime": self.mtime,
            "tags": list(self.tags),
            "winner": self.winner or None,
            **({"origin": self.origin.remote} if self.origin.remote else {}),
            "problems": [problem.to_dict() for problem in self.problems],
        }
