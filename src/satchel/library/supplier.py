"""Who supplies skills that do not lie here, and what is known of one before any file is fetched.

Supplier     who lists skills and hands over files: a server, for all that a library knows
Listing      what a supplier has
Served       one skill as it was listed: its frontmatter, and every file with digest and size
ServedFile   one of its files
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from satchel._language import Message
from satchel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.skill.model import Skill
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
