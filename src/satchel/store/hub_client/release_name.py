"""Names of releases: `publisher/skill`, versions, and requests such as `acme/x@^1`."""

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
_NAME = re.compile(rf"(?=[^/]{{1,39}}/[^/]{{1,64}}\Z){_WORD}/{_WORD}\Z")
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}\Z")
_RANGE = re.compile(rf"\^{_NUMBER}(?:\.{_NUMBER})?(?:\.{_NUMBER})?\Z")
_RESERVED = frozenset(
    ("assets", "blobs", "changes", "commits", "index", "revoked", "search", "state")
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
    found = _NAME.match(text)
    return HubName(found[1], found[2]) if found and found[1] not in _RESERVED else None


def split_request(text: str) -> tuple[HubName, str] | None:
    """Split `publisher/skill@range`; None when it does not look like one."""
    name, _, wanted = text.partition("@")
    parsed = parse_name(name)
    return (parsed, wanted) if parsed is not None else None


def parse_version(text: str) -> Version | None:
    """Parse `1.2.0`; None when it is not three plain numbers."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def best_version(wanted: str, versions: Iterable[Version]) -> Version | None:
    """The highest version of a range: nothing for any, `1.2.0` for one, `^1.2` for compatible ones.

    Compatible means the same first number that is not zero: `^1.2` is 1.2.0 up to 2.0.0, `^0.3` is
    0.3.0 up to 0.4.0. Raises `InvalidInput` for other texts.
    """
    if exact := parse_version(wanted):
        return exact if exact in versions else None
    found = _RANGE.match(wanted or "^0")
    if found is None:
        raise InvalidInput(
            say("`{value}` is not valid", value=wanted),
            say("Write `{value}`", value=f"^{wanted}" if _RANGE.match(f"^{wanted}") else "^1.2"),
        )
    given = [int(part) for part in found.groups() if part is not None]
    at = next((place for place, number in enumerate(given) if number), len(given) - 1)
    low, high = (*given, 0, 0)[:3], (*given[:at], given[at] + 1)
    return max((one for one in versions if low <= one and (not wanted or one < high)), default=None)
