"""Which vectors are nearest to a query's? All are compared, or those with nearly the same signs.

Up to `EXACT` vectors all of them are compared, in 32 bits. Beyond that the signs of the numbers
are compared first, at a bit each, and the nearest thousand or more exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.detect.vectors.base import EXTRA
from satchel.detect.vectors.segment import Damaged, signs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.detect.vectors.base import Matrix
    from satchel.detect.vectors.segment import Segment

EXACT = 20_000
"""Up to so many vectors a query is compared with every one: a millisecond, and 30 MB at 384."""
SHORTLIST = 1_000
"""So many of the nearest by sign are compared exactly, or more in a large store: `_GROWTH` times
the root of its size. On 35,595 real skills it finds 97.1 % of the ten nearest, where comparing
every vector in 8 bits finds 97.3 %; the rest are copies of one another."""
_GROWTH = 5.3
_NOWHERE = -2.0
"""The cosine of a vector that does not count."""


def nearest(
    query: Matrix, segments: Sequence[Segment], count: int, drop: Callable[[Segment], None]
) -> list[tuple[Segment, int]]:
    """The `count` nearest rows of all segments, in no order.

    Args:
        query: One vector of length one, as long as those of the segments.
        segments: Where to look.
        count: How many rows.
        drop: Told of a segment that is damaged.
    """
    np: Any = require("numpy", EXTRA)
    if sum(one.rows for one in segments) <= EXACT:
        near = [(one, np.arange(one.rows)) for one in segments]
    else:
        near = _near_by_sign(np, query, segments, 4 * count)
    found: list[tuple[Segment, int]] = []
    cosines = np.zeros(0, np.float32)
    for segment, rows in near:
        whole = len(rows) == segment.rows
        try:
            part = (segment.exact() if whole else segment.take(rows)) @ query
        except Damaged:
            drop(segment)
            continue
        if whole and segment.dead_rows is not None:
            part[segment.dead_rows] = _NOWHERE
        top = _top(np, part, count)
        found += [(segment, row) for row in rows[top].tolist()]
        cosines = np.concatenate([cosines, part[top]])
    best = _top(np, cosines, count).tolist()
    return [found[at] for at in best if cosines[at] > _NOWHERE]


def _near_by_sign(
    np: Any, query: Matrix, segments: Sequence[Segment], count: int
) -> list[tuple[Segment, Any]]:
    """The rows whose signs differ least from the query's, `count` or more."""
    bits = signs_of(np, query.reshape(1, -1))[0]
    farthest = len(query)
    parts: list[Any] = []
    counts = np.zeros(farthest + 2, np.int64)
    for segment in segments:
        differ = np.zeros(segment.rows, np.uint16)
        for word, one in zip(segment.signs, bits, strict=True):
            differ += np.bitwise_count(word ^ one)
        if segment.dead_rows is not None:
            differ[segment.dead_rows] = farthest + 1
        parts.append(differ)
        counts += np.bincount(differ, minlength=farthest + 2)
    count = max(count, SHORTLIST, int(_GROWTH * float(counts.sum()) ** 0.5))
    # How much may differ, so that about `count` are left. Counting is quicker than sorting.
    cut = min(int(np.searchsorted(np.cumsum(counts), count)), farthest)
    return [
        (segment, np.flatnonzero(differ <= cut))
        for segment, differ in zip(segments, parts, strict=True)
    ]


def _top(np: Any, values: Any, count: int) -> Any:
    """The places of the largest values, in no order."""
    if len(values) > count:
        return np.argpartition(values, len(values) - count)[-count:]
    return np.arange(len(values))
