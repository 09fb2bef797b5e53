"""Which skills an agent is meant to have: patterns and tags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.skill.model import Head


class Filter(NamedTuple):
    """Keeps a skill when it matches `include` (if any), no `exclude`, and has a tag (if any)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def compile(self) -> Sieve | None:
        """The filter made ready; None when it keeps everything."""
        return Sieve(self) if any(self) else None


class Sieve:
    """A filter made ready for many skills."""

    def __init__(self, wanted: Filter) -> None:
        self._include = _pattern(wanted.include)
        self._exclude = _pattern(wanted.exclude)
        self._tags = frozenset(tag.casefold() for tag in wanted.tags)

    def keeps(self, head: Head) -> bool:
        """Whether the skill passes."""
        if self._exclude and (self._exclude(head.name) or self._exclude(head.id)):
            return False
        if self._include and not (self._include(head.name) or self._include(head.id)):
            return False
        if self._tags:
            tags = (head.extra or {}).get("tags", ())
            return any(str(tag).casefold() in self._tags for tag in tags)
        return True


def unmatched(patterns: Iterable[str], heads: Iterable[Head]) -> list[str]:
    """The patterns that match neither name nor id of any skill."""
    left = {item: match for item in patterns if (match := _pattern((item,))) is not None}
    if left:
        for head in heads:
            for item in [one for one, match in left.items() if match(head.name) or match(head.id)]:
                del left[item]
            if not left:
                break
    return list(left)


def _pattern(patterns: tuple[str, ...]) -> Callable[[str], object] | None:
    if not patterns:
        return None
    import fnmatch

    return re.compile("|".join(fnmatch.translate(item) for item in patterns)).match
