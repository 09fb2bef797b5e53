"""Word index: BM25 scores of skills for the terms of a goal, field by field.

`FieldIndex` is the protocol: rows of fields in, scores per field out. Two engines implement it:
`memory` (plain Python, a few thousand skills) and `tantivy_index` (an extra, a million skills).
Both receive tokenised texts, so they see the same terms.
"""

from __future__ import annotations

import marshal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zlib import crc32

from satchel._fs import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.skill import Skill


FIELDS = ("name", "description", "when", "triggers", "body")
"""Indexed fields of a skill."""

MAX_ALLOWED_KEYS = 1_000
"""Up to this number the engine is queried for the allowed keys only."""

Stamp = tuple[int, int, int]
"""mtime_ns, ctime_ns and size of the skill's file."""


def file_stamp(skill: Skill) -> Stamp:
    """Return the file state of a skill."""
    head = skill[0]  # faster than by name: a library may have a million
    return (head.mtime_ns, head.ctime_ns, head.size)


class IndexRow(NamedTuple):
    """An indexed skill."""

    key: str
    """The absolute path of its file: unique, unlike names."""
    stamp: Stamp
    fields: tuple[str, ...]
    """Terms joined by single spaces, in the order of `FIELDS`."""


def search_allowed(
    search: Callable[[int, list[str] | None], dict[str, float]],
    limit: int,
    allowed: Collection[str] | None,
) -> dict[str, float]:
    """Return the best `limit` allowed keys of an engine that searches all keys.

    Usually nearly all keys are allowed and enough of the best are. Otherwise a few allowed keys are
    queried directly; for many, the number of results grows until enough are found.

    Args:
        search: Returns the best keys of all or of some, best first; fewer when there are no more.
        limit: How many keys to return.
        allowed: The allowed keys; None allows all.
    """
    if allowed is None:
        return search(limit, None)
    query_limit = 2 * limit
    while True:
        scores = search(query_limit, None)
        allowed_pairs = [pair for pair in scores.items() if pair[0] in allowed]
        if len(allowed_pairs) >= limit or len(scores) < query_limit:
            return dict(allowed_pairs[:limit])
        if len(allowed) <= MAX_ALLOWED_KEYS:
            return search(limit, list(allowed))
        query_limit *= 4


def write_state(path: str, magic: bytes, state: tuple[Any, ...]) -> None:
    """Write a tuple of plain values with a checksum, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomic(path, magic + _pack(state), private=True, durable=False)


def _pack(state: tuple[Any, ...]) -> bytes:
    body = marshal.dumps(state)
    return crc32(body).to_bytes(4, "big") + len(body).to_bytes(8, "big") + body


def read_state(path: str, magic: bytes) -> tuple[Any, ...] | None:
    """Return the saved tuple; None when the file is missing or damaged."""
    with suppress(OSError, ValueError, TypeError, EOFError):
        with open(path, "rb") as stream:
            data = stream.read()
        start = len(magic) + 12
        body = memoryview(data)[start:]
        size, checksum = data[start - 8 : start], data[start - 12 : start - 8]
        is_complete = data.startswith(magic) and int.from_bytes(size, "big") == len(body)
        if is_complete and checksum == crc32(body).to_bytes(4, "big"):
            return marshal.loads(body)  # noqa: S302 - our own file, like a `.pyc`
    return None


class FieldIndex(Protocol):
    """Finds skills by terms, field by field."""

    engine: str
    """`memory` or `tantivy`."""

    def stamps(self) -> Mapping[str, Stamp]:
        """Return the stamps of indexed skills by key."""
        ...

    def update(
        self,
        rows: Iterable[IndexRow],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add, replace and remove rows atomically for searches.

        Args:
            rows: New or changed skills.
            gone: Keys to drop.
            progress: Called with the number of processed rows.
        """
        ...

    def search_signals(
        self,
        terms: Sequence[tuple[str, float]],
        signals: Mapping[str, Mapping[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the BM25 scores (k1 1.2, b 0.75) of the best `limit` keys per signal.

        Args:
            terms: Unique terms with weights; a score is the sum of weight times BM25.
            signals: Signal -> field -> field weight.
            limit: How many keys per signal.
            allowed: Restricts the keys, for an index with more skills than the caller sees. Term
                rarity still depends on all rows. None allows all and is faster.
        """
        ...

    def count(self) -> int:
        """Return the number of indexed keys; costs microseconds."""
        ...

    def version(self) -> tuple[int, ...]:
        """Return a value that differs after every change by any process; () for an empty index.

        An index is empty before the first update, and after its files were lost or damaged. Costs
        microseconds; values compare within one object only.
        """
        ...
