"""How do numbers look? Bars as SVG, coloured by classes, told in words to those who do not see.

Knows SVG and nothing else: no skills, no pages. Everything that is written is escaped, and every
drawing has a title and a description. Sizes are attributes, since no style may stand in a page.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 720
"""Units of a chart's width; it is scaled to the page."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 6, 10, 22
_LABELS = 8
"""Days between two labels at most so many times."""


class Svg(str):
    """A drawing. Templates put it into a page as it is: whatever is in it was escaped here."""

    __slots__ = ()

    def __html__(self) -> str:
        """What templates ask for."""
        return str(self)


class Series(NamedTuple):
    """One kind of number."""

    key: str
    """Names its colour: the class `series-KEY`."""
    title: str


class Column(NamedTuple):
    """One day."""

    label: str
    """Below the column."""
    title: str
    """In full, when somebody points at it."""
    values: tuple[int, ...]
    """One for each series."""


def day_bars(
    columns: Sequence[Column],
    series: Sequence[Series],
    key: str,
    title: str,
    told: str,
    height: int = 190,
) -> Svg:
    """Columns of stacked bars beside a scale.

    Args:
        columns: From left to right.
        series: From the bottom up.
        key: Makes the ids unique in a page.
        title: What it shows.
        told: The same numbers in words.
        height: Units.
    """
    most = _nice(max((sum(column.values) for column in columns), default=0))
    floor = height - _BOTTOM
    room = floor - _TOP
    step = (WIDTH - _LEFT - _RIGHT) / max(len(columns), 1)
    wide = max(step * 0.72, 1.0)
    parts = [_opening(key, title, told, WIDTH, height)]
    for at in sorted({0, most // 2 if most % 2 == 0 else most, most}):
        y = floor - room * at / most
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="scale" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{at:,}</text>'
        )
    every = -(-len(columns) // _LABELS) or 1
    for at, column in enumerate(columns):
        x = _LEFT + step * at
        bars, y = _stack(column, series, x + (step - wide) / 2, wide, floor, room / most)
        said = [f"{one.title}: {value:,}" for one, value in zip(series, column.values, strict=True)]
        words = escape(f"{column.title} — {', '.join(said)}")
        # The whole column answers to the pointer, however low its bars are.
        parts.append(
            f'<g class="column"><title>{words}</title><rect class="reach" x="{x:.1f}" y="{_TOP}" '
            f'width="{step:.1f}" height="{room}"/>{bars}</g>'
        )
        if (len(columns) - 1 - at) % every == 0:
            middle = x + step / 2
            parts.append(
                f'<text class="scale" x="{middle:.1f}" y="{height - 6}" text-anchor="middle">'
                f"{escape(column.label)}</text>"
            )
    parts.append("</svg>")
    return Svg("".join(parts))


def share_bar(parts: Sequence[tuple[str, int]], most: int, told: str, width: int = 180) -> Svg:
    """One line of bars after each other.

    Args:
        parts: (key of the series, number).
        most: What fills the whole width.
        told: The same in words.
        width: Units.
    """
    words = escape(told)
    size = f'viewBox="0 0 {width} 12" width="{width}" height="12"'
    drawn = [f'<svg class="share" {size} role="img" aria-label="{words}"><title>{words}</title>']
    x = 0.0
    for key, number in parts:
        wide = width * number / most if most else 0.0
        if wide:
            drawn.append(
                f'<rect class="series-{escape(key)}" x="{x:.1f}" y="1" '
                f'width="{max(wide - 1, 1):.1f}" height="10" rx="2"/>'
            )
        x += wide
    drawn.append("</svg>")
    return Svg("".join(drawn))


def _opening(key: str, title: str, told: str, width: int, height: int) -> str:
    name = escape(key)
    return (
        f'<svg class="bars" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="{name}-title {name}-told">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-told">{escape(told)}</desc>'
    )


def _stack(
    column: Column, series: Sequence[Series], x: float, wide: float, floor: float, unit: float
) -> tuple[str, float]:
    y = floor
    drawn: list[str] = []
    for one, value in zip(series, column.values, strict=True):
        tall = value * unit
        if tall:
            y -= tall
            gap = 1 if tall > 3 and y + tall < floor else 0
            drawn.append(
                f'<rect class="series-{escape(one.key)}" x="{x:.1f}" y="{y:.1f}" '
                f'width="{wide:.1f}" height="{tall - gap:.1f}" rx="1.5"/>'
            )
    return "".join(drawn), y


def _nice(most: int) -> int:
    """The top of a scale: a round number that is not below `most`."""
    if most <= 4:
        return 4 if most > 2 else 2
    size = 10 ** (len(str(most)) - 1)
    for factor in (1, 2, 4, 5, 6, 8, 10):
        if most <= factor * size:
            return factor * size
    return 10 * size
