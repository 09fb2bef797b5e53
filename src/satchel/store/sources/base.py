"""What can every source do, and what does it hand over?

A `Source` is an address. Fetching it gives a `Bundle`: all its files as one tree, and the `Place`
that the lockfile will remember. Nothing is written to where skills live; a hub's client is one
more source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from satchel.library.lockfile import Place
    from satchel.skill.tree import Tree


class Bundle(NamedTuple):
    """What a source holds right now. Open until the `with` block ends."""

    place: Place
    """Where it came from. `path` is what was asked for within it, such as one skill's folder."""
    tree: Tree
    """Every file of the source. Links are still links; `subtree` resolves them for one skill."""
    notes: tuple[str, ...] = ()
    """What was left out or is worth knowing, in the reader's language."""
    name: str = ""
    """What to call a skill that lies at the very top and has no folder of its own."""

    def place_of(self, path: str) -> Place:
        """The place of one skill within the source."""
        return self.place._replace(path=path)


class Source(Protocol):
    """Somewhere skills come from."""

    @property
    def kind(self) -> str:
        """As in `Place.kind`."""
        ...

    @property
    def url(self) -> str:
        """As in `Place.url`: never with a password."""
        ...

    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> AbstractContextManager[Bundle]:
        """Get what is there now, or what `ref` or `commit` names.

        Raises:
            Unsafe: it holds something that is never unpacked.
            NotFound: it is not there, or has no such ref.
        """
        ...


def blocked_paths(tree: Tree) -> Mapping[str, str]:
    """Paths of a source that no skill may contain, with the rule: submodules, devices."""
    found: Mapping[str, str] = getattr(tree, "blocked", {})
    return found
