"""Confidence interval of a measured share."""

from __future__ import annotations

import math

_Z = 1.959964
"""Of the normal distribution, for 95 %."""


def wilson(hits: float, total: int) -> tuple[float, float]:
    """The 95 % interval of a proportion, by Wilson's score; `hits` may be a mean of counts."""
    if not total:
        return 0.0, 1.0
    share = hits / total
    centre = share + _Z * _Z / (2 * total)
    spread = _Z * math.sqrt(share * (1 - share) / total + _Z * _Z / (4 * total * total))
    scale = 1 + _Z * _Z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
