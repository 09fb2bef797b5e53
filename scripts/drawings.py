"""Draws docs/assets/drawing-*.svg and the logo of the documentation.

Example:
    python scripts/drawings.py
    python scripts/drawings.py --check

A drawing is data in `drawings.toml`: boxes with positions, and arrows between them. It has its own
background, light or dark as the reader's system, so that it can be read on any page. Where a
Chinese page shows it, it is also drawn in Chinese. `--check` writes nothing; it exits 1 and names
the stale drawings.
"""

from __future__ import annotations

import os
import sys
import tomllib
import unicodedata
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARK = os.path.join(ROOT, "src", "satchel", "ui", "static", "mark.svg")
"""The mark of the browser is the mark of the pages."""

HEAD, TEXT, GAP = 15, 12.5, 17
"""Size of a title and of a line below it, and the distance of lines, in pixels."""
CELL = 0.5
"""Width of a letter by its size, on the safe side; a Chinese one takes one and three quarters."""


class Box(NamedTuple):
    """A frame with a title; without lines the title is centred."""

    key: str
    x: int
    y: int
    width: int
    height: int
    kind: str
    """`plain`, `ours`, `good`, `bad`, `bare` or `none`: which colours it has."""
    title: str
    lines: tuple[str, ...] = ()


class Arrow(NamedTuple):
    """From one box to another: straight where they face each other, else with one bend."""

    start: str
    end: str
    kind: str = ""
    """`dashed` for what happens only sometimes."""


class Drawing(NamedTuple):
    """One file."""

    name: str
    title: str
    """The alternative text."""
    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    chinese: dict[str, str]
    """What each sentence is in Chinese, if pages in Chinese show it."""


STYLE = """\
text {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", \
"Noto Sans CJK SC", sans-serif; fill: #221e19; }}
.h {{ font-size: {head}px; font-weight: 650; }}
.l {{ font-size: {text}px; fill: #5a5248; }}
.ground {{ fill: #fbfaf8; stroke: #e2dcd2; }}
.plain {{ fill: #ffffff; stroke: #b9afa1; }}
.ours {{ fill: #fbeee4; stroke: #c46a33; }}
.good {{ fill: #e3f5e8; stroke: #3f8f59; }}
.bad {{ fill: #fdeae8; stroke: #c9645d; }}
.bare {{ fill: #f4f1ec; stroke: #c9c0b3; }}
.none {{ fill: none; stroke: none; }}
.a {{ fill: none; stroke: #8d857a; stroke-width: 1.6; }}
.dashed {{ stroke-dasharray: 5 4; }}
.tip {{ fill: #8d857a; }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #eee9e1; }}
.l {{ fill: #b9b0a4; }}
.ground {{ fill: #1a1814; stroke: #3a352d; }}
.plain {{ fill: #24211c; stroke: #6b6358; }}
.ours {{ fill: #3a2414; stroke: #d8783a; }}
.good {{ fill: #12301c; stroke: #4d9a66; }}
.bad {{ fill: #3d1512; stroke: #b5554d; }}
.bare {{ fill: #26231e; stroke: #5a5349; }}
.tip {{ fill: #a39a8e; }}
.a {{ stroke: #a39a8e; }}
}}
"""

FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-label="{title}">
<style>
{style}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>
<rect class="ground" x="0.5" y="0.5" width="{inner}" height="{deep}" rx="12"/>
{body}
</svg>
"""


def main(arguments: list[str]) -> int:
    """Draw them all, or with `--check` compare them."""
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: drawings.py [--check]", file=sys.stderr)
        return 2
    stale = [(path, svg) for path, svg in draw_all() if _read(path) != svg]
    for path, svg in stale:
        name = os.path.relpath(path, ROOT)
        if check:
            print(f"error: `{name}` is not what `scripts/drawings.py` draws", file=sys.stderr)
            continue
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(svg)
        print(f"wrote {name}")
    if check and stale:
        print("\nhint: Run `python scripts/drawings.py`", file=sys.stderr)
    return 1 if check and stale else 0


def draw_all() -> Iterator[tuple[str, str]]:
    """Every drawing: the path it belongs to, and its SVG."""
    folder = os.path.join(ROOT, "docs", "assets")
    for drawing in drawings():
        path = os.path.join(folder, f"drawing-{drawing.name}")
        yield f"{path}.svg", draw(drawing)
        if drawing.chinese:
            yield f"{path}.zh.svg", draw(in_chinese(drawing))
    yield os.path.join(folder, "mark.svg"), _read(MARK)


def drawings() -> list[Drawing]:
    """The drawings, as their file has them."""
    with open(os.path.join(ROOT, "scripts", "drawings.toml"), "rb") as file:
        table = tomllib.load(file)
    found: list[Drawing] = []
    for name, row in table.items():
        boxes = tuple(Box(*box[:7], lines=tuple(box[7:])) for box in row["boxes"])
        words = [arrow.split() for arrow in row["arrows"]]
        arrows = tuple(Arrow(a, b, "dashed" if sign == ".>" else "") for a, sign, b in words)
        width, height = row["size"]
        words_of = row.get("zh", {})
        found.append(Drawing(name, row["title"], width, height, boxes, arrows, words_of))
    return found


def in_chinese(drawing: Drawing) -> Drawing:
    """The same drawing with every sentence in Chinese; one that is missing is an error."""
    boxes = tuple(
        box._replace(
            title=drawing.chinese[box.title],
            lines=tuple(drawing.chinese[line] for line in box.lines),
        )
        for box in drawing.boxes
    )
    return drawing._replace(title=drawing.chinese[drawing.title], boxes=boxes)


def draw(drawing: Drawing) -> str:
    """The SVG of one drawing.

    Raises:
        ValueError: Words do not fit into their box.
    """
    boxes = {box.key: box for box in drawing.boxes}
    body = [_arrow(boxes[one.start], boxes[one.end], one.kind) for one in drawing.arrows]
    for box in drawing.boxes:
        body += _box(box)
    return FRAME.format(
        width=drawing.width,
        height=drawing.height,
        inner=drawing.width - 1,
        deep=drawing.height - 1,
        title=escape(drawing.title, {'"': "&quot;"}),
        style=STYLE.format(head=HEAD, text=TEXT),
        body="\n".join(body),
    )


def width_of(words: str, size: float) -> float:
    """About how wide words are."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in words)
    return (len(words) - wide + 1.8 * wide) * size * CELL


def _box(box: Box) -> list[str]:
    for words, size in ((box.title, HEAD), *((line, TEXT) for line in box.lines)):
        if width_of(words, size) > box.width - 8:
            raise ValueError(f"`{words}` does not fit into `{box.key}`")
    middle = box.x + box.width / 2
    high = HEAD + GAP * len(box.lines)
    top = box.y + (box.height - high) / 2 + HEAD - 2
    rect = (
        f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.width}" '
        f'height="{box.height}" rx="9"/>'
    )
    said = [("h", top, box.title)]
    said += [("l", top + GAP * (at + 1) + 1, line) for at, line in enumerate(box.lines)]
    return [rect] + [
        f'<text class="{look}" x="{middle:g}" y="{y:g}" text-anchor="middle">{escape(words)}</text>'
        for look, y, words in said
    ]


def _arrow(start: Box, end: Box, kind: str) -> str:
    left, right = max(start.x, end.x), min(start.x + start.width, end.x + end.width)
    top, low = max(start.y, end.y), min(start.y + start.height, end.y + end.height)
    if right > left:  # one above the other: down or up, through the middle of the narrower one
        narrow = min(start, end, key=lambda box: box.width)
        x = narrow.x + narrow.width / 2
        down = end.y > start.y
        first = start.y + start.height if down else start.y
        last = end.y - 3 if down else end.y + end.height + 3
        path = f"M{x:g} {first} V{last}"
    elif low > top:  # side by side
        y = (top + low) / 2
        path = f"M{start.x + start.width} {y:g} H{end.x - 3}"
    else:  # from the side, then up or down, then into the other's side
        y, other = start.y + start.height / 2, end.y + end.height / 2
        bend = (start.x + start.width + end.x) / 2
        path = f"M{start.x + start.width} {y:g} H{bend:g} V{other:g} H{end.x - 3}"
    return f'<path class="{f"a {kind}".strip()}" d="{path}" marker-end="url(#tip)"/>'


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
