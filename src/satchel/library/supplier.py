"""`Supplier`, the protocol of servers of skills, and the records of what they list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.skill.problems import Problem

SKILL_FILE = "SKILL.md"
"""The main file of a served skill."""


class ServedFile(NamedTuple):
    """One file of a served skill, as listed."""

    path: str
    """Below the skill's folder, with `/`."""
    uri: str
    digest: str
    """Hexadecimal SHA-256."""
    size: int


class ServedSkill(NamedTuple):
    """One served skill, as listed."""

    id: str
    """Its folder below the location: one path component, so that skills are not nested."""
    name: str
    """Its own name, unless the list has several of that name."""
    uri: str
    """Address of its SKILL.md."""
    frontmatter: dict[str, Any]
    files: dict[str, ServedFile]
    digest: str
    """Digest over all digests, sizes, addresses and fields. Accepted risks refer to it."""


class ServedListing(NamedTuple):
    """The skills of a supplier; the same object while nothing changes."""

    served: Mapping[str, ServedSkill]
    """By id."""
    problems: tuple[Problem, ...] = ()
    """Refused entries, and whether the list is outdated."""


class Supplier(Protocol):
    """A source that lists skills and returns their files."""

    @property
    def label(self) -> str:
        """The user's name for it, never its own."""
        ...

    def prepare(self) -> None:
        """Request the list without waiting, so that suppliers are asked in parallel."""
        ...

    def listing(self) -> ServedListing:
        """Return the current list. The first call may wait for a short time."""
        ...

    def fetch(self, file: ServedFile) -> bytes:
        """Return the bytes of a file; the caller verifies them.

        Args:
            file: A file of the list.

        Raises:
            SatchelError: it cannot be fetched.
        """
        ...

    def mark_stale(self) -> None:
        """Request the list again: a file was not as listed."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...
