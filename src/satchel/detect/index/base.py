"""What an index of words is: rows of fields in, scores per field out.

Two engines implement it: `memory` (plain Python, a few thousand skills) and `tantivy` (an extra, a
million skills). They get texts that are cut into terms already, so both see the same words.
"""

from __future__ import annotations

import marshal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zlib import crc32

from satchel._fs import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

FIELDS = ("name", "description", "when", "triggers", "body")
"""What of a skill is indexed, each field apart."""

FEW_ALLOWED = 1_000
"""Allowed keys that are asked for by themselves; of more, some are soon among the best."""

Stamp = tuple[int, int, int]
"""mtime_ns, ctime_ns and size of the skill's file: another stamp, another text."""


class Row(NamedTuple):
    """One skill as an index keeps it."""

    key: str
    """The absolute path of its file: names repeat, paths do not."""
    stamp: Stamp
    fields: tuple[str, ...]
    """Terms joined by single spaces, in the order of `FIELDS`."""


def allowed_only(
    ask: Callable[[int, list[str] | None], dict[str, float]],
    limit: int,
    allowed: Collection[str] | None,
) -> dict[str, float]:
    """The best `limit` of the allowed keys, from an engine that looks for the best of all.

    Mostly nearly all are allowed, and enough of the best are. Where they are not, a few are asked
    for by themselves; of many, the number that is asked for grows until enough are found.

    Args:
        ask: Gives the best so many, best first, of all or of these keys; fewer when there are no
            more.
        limit: How many are wanted.
        allowed: Who may be among them; None allows all.
    """
    if allowed is None:
        return ask(limit, None)
    most = 2 * limit
    while True:
        found = ask(most, None)
        kept = [pair for pair in found.items() if pair[0] in allowed]
        if len(kept) >= limit or len(found) < most:
            return dict(kept[:limit])
        if len(allowed) <= FEW_ALLOWED:
            return ask(limit, list(allowed))
        most *= 4


def write_state(path: str, magic: bytes, state: tuple[Any, ...]) -> None:
    """Write a tuple of plain values with a checksum, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomic(path, magic + _packed(state), private=True, durable=False)


def append_state(path: str, state: tuple[Any, ...]) -> None:
    """Write a tuple behind those that a file holds already.

    Raises:
        OSError: the file cannot be written.
    """
    with open(path, "ab") as stream:
        stream.write(_packed(state))


def _packed(state: tuple[Any, ...]) -> bytes:
    body = marshal.dumps(state)
    return crc32(body).to_bytes(4, "big") + len(body).to_bytes(8, "big") + body


def read_states(path: str, magic: bytes) -> tuple[list[tuple[Any, ...]], bool]:
    """Return what was written, and whether that is all; what follows a damaged part is left out."""
    states: list[tuple[Any, ...]] = []
    with suppress(OSError, ValueError, TypeError, EOFError):
        with open(path, "rb") as stream:
            data = stream.read()
        at = len(magic) if data.startswith(magic) else len(data)
        while at < len(data):
            begin = at + 12
            at = begin + int.from_bytes(data[begin - 8 : begin], "big")
            body = memoryview(data)[begin:at]
            if data[begin - 12 : begin - 8] != crc32(body).to_bytes(4, "big"):
                return states, False
            states.append(marshal.loads(body))  # noqa: S302 - our own file, like a `.pyc`
        return states, True
    return states, False


class FieldIndex(Protocol):
    """Finds skills by terms, field by field."""

    engine: str
    """`memory` or `tantivy`."""

    def stamps(self) -> Mapping[str, Stamp]:
        """What is indexed, by key."""
        ...

    def update(
        self,
        rows: Iterable[Row],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add or replace rows and drop others; searches see all of it or nothing of it.

        Args:
            rows: New or changed skills.
            gone: Keys to drop.
            progress: Told how many rows were taken.
        """
        ...

    def search_legs(
        self,
        terms: Sequence[tuple[str, float]],
        legs: Mapping[str, Mapping[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """BM25 (k1 1.2, b 0.75), fields added up: leg -> key -> score, of the best `limit` per leg.

        Args:
            terms: Distinct terms of the goal and what each weighs; a score is the sum over the
                terms of weight times BM25.
            legs: By name: field -> what its score is multiplied by.
            limit: How many keys per leg.
            allowed: Only these keys count, for an index that holds more than the caller sees. How
                rare a term is still depends on all rows. None allows all, and is quicker.
        """
        ...

    def count(self) -> int:
        """How many keys are indexed; costs microseconds."""
        ...

    def version(self) -> tuple[int, ...]:
        """Another value after every change, by any process; () when there is nothing to search.

        It is so before the first update, and after the files were lost or damaged. Costs
        microseconds, and is compared with what the same object said before.
        """
        ...
