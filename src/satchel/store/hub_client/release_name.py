"""Names of releases: `publisher/skill`, versions, and requests such as `acme/x@^1`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PUBLISHER_CHARS = 39
_WORD = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_PUBLISHER = re.compile(rf"{_WORD}\Z")
_NAME = re.compile(rf"(?P<publisher>{_WORD})/(?P<skill>{_WORD})\Z")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\Z")
_RANGE = re.compile(r"\^(0|[1-9][0-9]{0,8})(?:\.(0|[1-9][0-9]{0,8}))?(?:\.(0|[1-9][0-9]{0,8}))?\Z")

_RESERVED = frozenset(
    ("assets", "blobs", "changes", "commits", "index", "probe", "revoked", "search", "state")
)

Version = tuple[int, int, int]


class HubName(NamedTuple):
    """The full name of a skill in a hub."""

    publisher: str
    skill: str

    def __str__(self) -> str:
        return f"{self.publisher}/{self.skill}"


def is_publisher(text: str) -> bool:
    """Whether a text can be the name of a publisher; the folders of a hub are none."""
    return (
        len(text) <= MAX_PUBLISHER_CHARS and text not in _RESERVED and bool(_PUBLISHER.match(text))
    )


def parse_name(text: str) -> HubName | None:
    """Parse `publisher/skill`; None when it is not such a name."""
    found = _NAME.match(text)
    if found is None or not is_publisher(found["publisher"]) or len(found["skill"]) > 64:
        return None
    return HubName(found["publisher"], found["skill"])


def split_request(text: str) -> tuple[HubName, str] | None:
    """Split `publisher/skill@range`; None when it does not look like one."""
    name, _, wanted = text.partition("@")
    parsed = parse_name(name)
    return (parsed, wanted) if parsed is not None else None


def parse_version(text: str) -> Version | None:
    """Parse `1.2.0`; None when it is not three plain numbers."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


class VersionRange(NamedTuple):
    """The versions from `low` up to, not including, `high`."""

    low: Version = (0, 0, 0)
    high: Version | None = None

    def best(self, versions: Iterable[Version]) -> Version | None:
        """The highest version of the range; None when there is none."""
        inside = (
            one for one in versions if one >= self.low and (self.high is None or one < self.high)
        )
        return max(inside, default=None)


def parse_range(text: str) -> VersionRange:
    """Parse the requested version: nothing for any, `1.2.0` for one, `^1.2` for compatible ones.

    Compatible means the same first number that is not zero: `^1.2` is 1.2.0 up to 2.0.0, `^0.3` is
    0.3.0 up to 0.4.0.

    Raises:
        InvalidInput: it is none of these.
    """
    if not text:
        return VersionRange()
    if exact := parse_version(text):
        return VersionRange(exact, (exact[0], exact[1], exact[2] + 1))
    found = _RANGE.match(text)
    if found is None:
        raise InvalidInput(
            say("`{value}` is not valid", value=text),
            say("Write `{value}`", value=f"^{text}" if _RANGE.match(f"^{text}") else "^1.2"),
        )
    given = [int(part) for part in found.groups() if part is not None]
    low = (*given, 0, 0)[:3]
    at = next((place for place, number in enumerate(given) if number), len(given) - 1)
    high = (*given[:at], given[at] + 1, 0, 0)[:3]
    return VersionRange((low[0], low[1], low[2]), (high[0], high[1], high[2]))
