"""Names, versions and version ranges of the skills of a hub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORD = r"([a-z0-9]+(?:-[a-z0-9]+)*)"
_NUMBER = r"(0|[1-9][0-9]{0,8})"
HUB_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]+(?:[.-][a-z0-9]+)*\Z")
_FULL_NAME = re.compile(rf"(?=[^/]{{1,39}}/[^/]{{1,64}}\Z){_WORD}/{_WORD}\Z")
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}\Z")
_VERSION_RANGE = re.compile(rf"\^{_NUMBER}(?:\.{_NUMBER})?(?:\.{_NUMBER})?\Z")
_RESERVED_NAMES = frozenset(
    ("assets", "blobs", "changes", "commits", "index", "revoked", "search", "set-aside", "state")
)
"""Folders of a hub, which no publisher may be named after."""

Version = tuple[int, int, int]


class HubName(NamedTuple):
    """The full name of a skill in a hub."""

    publisher: str
    skill: str

    def __str__(self) -> str:
        return f"{self.publisher}/{self.skill}"


def is_publisher(text: str) -> bool:
    """Whether a text can be the name of a publisher."""
    return parse_name(f"{text}/x") is not None


def parse_name(text: str) -> HubName | None:
    """Parse `publisher/skill`; None when it is not such a name."""
    match = _FULL_NAME.match(text)
    return HubName(match[1], match[2]) if match and match[1] not in _RESERVED_NAMES else None


def split_request(text: str) -> tuple[HubName, str] | None:
    """Split `publisher/skill@range`; None when it does not look like one."""
    full_name, _, version_range = text.partition("@")
    name = parse_name(full_name)
    return (name, version_range) if name is not None else None


def parse_version(text: str) -> Version | None:
    """Parse `1.2.0`; None when it is not three plain numbers."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def best_version(version_range: str, versions: Iterable[Version]) -> Version | None:
    """The highest version of a range: nothing for any, `1.2.0` for one, `^1.2` for compatible ones.

    Compatible means the same first number that is not zero: `^1.2` is 1.2.0 up to 2.0.0, `^0.3` is
    0.3.0 up to 0.4.0. Raises `InvalidInput` for other texts.
    """
    if exact := parse_version(version_range):
        return exact if exact in versions else None
    match = _VERSION_RANGE.match(version_range or "^0")
    if match is None:
        suggestion = f"^{version_range}"
        if not _VERSION_RANGE.match(suggestion):
            suggestion = "^1.2"
        raise InvalidInput(
            say("`{value}` is not valid", value=version_range),
            say("Write `{value}`", value=suggestion),
        )
    numbers = [int(group) for group in match.groups() if group is not None]
    lowest = (*numbers, 0, 0)[:3]
    # The first number that is not zero must stay the same.
    fixed_index = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
    limit = (*numbers[:fixed_index], numbers[fixed_index] + 1)
    candidates = [
        version
        for version in versions
        if lowest <= version and (not version_range or version < limit)
    ]
    return max(candidates, default=None)
