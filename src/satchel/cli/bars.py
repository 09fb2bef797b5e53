"""How much is it, at a glance? Small bars that read the same without colour."""

from __future__ import annotations

FULL, EMPTY = "■", "·"
WIDE, NARROW = 10, 6
"""Columns of a bar, on a wide screen and on a narrow one."""
_NARROW_SCREEN = 72
_TINY_SCREEN = 56


def bar_width(screen: int) -> int:
    """How wide a bar may be on a screen of so many columns (0: nobody looks); 0 means none."""
    if screen and screen < _TINY_SCREEN:
        return 0
    return NARROW if screen and screen < _NARROW_SCREEN else WIDE


def bar(share: float, width: int) -> str:
    """A bar of `width` columns, `share` of it filled; whatever is above nothing shows a mark."""
    share = min(max(share, 0.0), 1.0) if share == share else 0.0  # noqa: PLR0124 - no number
    full = round(share * width)
    if share > 0 and width:
        full = max(full, 1)
    return FULL * full + EMPTY * (width - full)


def share_of(value: float, most: float) -> float:
    """Which part of the most a value is."""
    if most <= 0 or value <= 0:
        return 0.0
    return 1.0 if value >= most else value / most
