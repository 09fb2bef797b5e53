"""Draws a plan as SVG.

Drawings are parts of a page, whose style sheet has the colours and fonts; every box is a link.
Texts of a plan are escaped, and characters that XML does not allow are removed.

The layout is layered (Sugiyama, Tagawa, Toda). Every node is below its dependencies, the nodes of a
layer are ordered to cross few edges, and each is then moved as near to its neighbours as the others
allow. An edge that passes through a layer has a lane there. The layout is deterministic.
"""

from __future__ import annotations

from bisect import bisect_right
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category, east_asian_width

from satchel.goals.labels import MARKS, labels, state_word
from satchel.goals.plan_graph import needs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.goals.labels import Label
    from satchel.goals.model import GoalReport, Plan


BOX_GAP_PX = 28.0
LANE_GAP_PX = 14.0
"""Beside an edge that passes through a layer."""
_LAYER_GAP_PX = 54.0
_PORT_GAP_PX = 18.0
_SWEEP_COUNT = 12
_MAX_SWEPT_NODES = 3_000
"""Larger graphs are ordered only once."""
TITLE_FONT_PX, TEXT_FONT_PX = 14.0, 11.5
_ROW_PX, _BOX_PADDING_PX = 20.0, 16.0
_LEFT_PX, _RIGHT_PX = 36.0, 16.0
"""Padding before and after the text of a box; the state's mark is before the text."""
_MIN_WIDTH_PX, _MAX_WIDTH_PX = 132.0, 248.0
_BOLD_RATIO = 1.18
"""Bold Latin letters are wider than regular ones; Chinese characters are not."""
_MARGIN_PX = 24.0
_USAGE_WIDTH_PX = 148.0
"""Reserved width for usage: a box that grew during a run would move all others."""
_NARROW_LETTERS = frozenset("iljtfrI.,:;'|!()[] -")
_WIDE_LETTERS = frozenset("mwMW@%—…")
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M0 0.8 7.4 4 0 7.2z"/></marker></defs>'
)


class NodeBox(NamedTuple):
    """Position (upper left corner) and size of a node."""

    x: float
    y: float
    width: float
    height: float


class EdgeLine(NamedTuple):
    """An edge: its nodes, and the points it passes."""

    source: str
    target: str
    points: tuple[tuple[float, float], ...]
    """Two per stop: out of a box, in and out of each lane, into a box."""


class Layout(NamedTuple):
    """A whole drawing, from (0, 0)."""

    boxes: Mapping[str, NodeBox]
    lines: tuple[EdgeLine, ...]
    width: float
    height: float


def lay_out(sizes: Mapping[str, tuple[float, float]], edges: Iterable[tuple[str, str]]) -> Layout:
    """Place the nodes of a graph without cycles.

    Args:
        sizes: Node -> width and height, in tie-breaking order.
        edges: (from, to), each once.

    Raises:
        graphlib.CycleError: there is a cycle.
    """
    links = [(source, target) for source, target in edges if source in sizes and target in sizes]
    layers_of = _layers(list(sizes), links)
    rows, chains = _rows_and_lanes(sizes, links, layers_of)
    below = [edge for chain in chains for edge in pairwise(chain)]
    ups: dict[str, list[str]] = {}
    downs: dict[str, list[str]] = {}
    for upper, lower in below:
        downs.setdefault(upper, []).append(lower)
        ups.setdefault(lower, []).append(upper)
    _order_rows(rows, ups, downs)
    centres = _centres(rows, ups, downs, sizes)
    return _measure(rows, chains, centres, sizes)


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Node -> its layer: below its dependencies, and as low as its dependents allow."""
    needs: dict[str, list[str]] = {node: [] for node in nodes}
    feeds: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in edges:
        needs[target].append(source)
        feeds[source].append(target)
    ordered = list(TopologicalSorter(needs).static_order())
    layer: dict[str, int] = {}
    for node in ordered:
        layer[node] = max((layer[upper] + 1 for upper in needs[node]), default=0)
    for node in reversed(ordered):  # a node with more dependents than needs moves towards them
        if len(feeds[node]) > len(needs[node]):
            layer[node] = min(layer[lower] for lower in feeds[node]) - 1
    return layer


def _rows_and_lanes(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str]],
    layers: Mapping[str, int],
) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of boxes and lanes, and the stops of each edge.

    Names of lanes begin with a NUL, so that they never equal the name of a node.
    """
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in sizes:
        rows[layers[node]].append(node)
    chains: list[list[str]] = []
    for number, (source, target) in enumerate(edges):
        chain = [source]
        for row in range(layers[source] + 1, layers[target]):
            lane = f"\0{number}.{row}"
            rows[row].append(lane)
            chain.append(lane)
        chains.append([*chain, target])
    return rows, chains


def _order_rows(
    rows: list[list[str]], ups: Mapping[str, list[str]], downs: Mapping[str, list[str]]
) -> None:
    """Order each row by the mean position of its neighbours, down and up, and keep the best."""
    best = [list(row) for row in rows]
    fewest = _crossings(rows, downs)
    sweeps = _SWEEP_COUNT if sum(map(len, rows)) <= _MAX_SWEPT_NODES else 1
    for sweep in range(sweeps):
        if not fewest:
            break
        down = sweep % 2 == 0
        near = ups if down else downs
        order = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for index in order:
            _order_row(rows[index], rows[index - 1 if down else index + 1], near)
        count = _crossings(rows, downs)
        if count < fewest:
            fewest, best = count, [list(row) for row in rows]
    rows[:] = best


def _order_row(row: list[str], beside: Sequence[str], near: Mapping[str, list[str]]) -> None:
    """Order a row by the mean position of its neighbours in the row beside it."""
    indexes = {name: index for index, name in enumerate(beside)}
    middles = {
        name: _mean([indexes[other] for other in near[name]]) if near.get(name) else float(index)
        for index, name in enumerate(row)
    }
    row.sort(key=middles.__getitem__)


def _rounded(number: float) -> float:
    """Round off the digits in which Python versions differ, and remove a minus before 0."""
    return round(number, 3) + 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _crossings(rows: Sequence[Sequence[str]], downs: Mapping[str, list[str]]) -> int:
    """Count crossing edges layer by layer."""
    total = 0
    for row, under in pairwise(rows):
        indexes = {name: index for index, name in enumerate(under)}
        ends = [
            end for name in row for end in sorted(indexes[other] for other in downs.get(name, ()))
        ]
        passed: list[int] = []
        for end in ends:
            position = bisect_right(passed, end)
            total += len(passed) - position
            passed.insert(position, end)
    return total


def _centres(
    rows: Sequence[Sequence[str]],
    ups: Mapping[str, list[str]],
    downs: Mapping[str, list[str]],
    sizes: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    gaps = [[_gap(name, other, sizes) for name, other in pairwise(row)] for row in rows]
    centres = _first_centres(rows, gaps)
    sweeps = _SWEEP_COUNT if len(centres) <= _MAX_SWEPT_NODES else 2
    for sweep in range(sweeps + 1):  # the last sweep goes down, so that dependents are below
        down = sweep % 2 == 0
        preferred, others = (ups, downs) if down else (downs, ups)
        for index in range(len(rows)) if down else range(len(rows) - 1, -1, -1):
            targets: list[float] = []
            weights: list[float] = []
            for name in rows[index]:
                near = preferred.get(name) or others.get(name) or []
                targets.append(_mean([centres[other] for other in near]) if near else centres[name])
                lane = name not in sizes and near[0] not in sizes
                weights.append(4.0 if lane else 1.0)  # long edges should be straight
            centres.update(zip(rows[index], _separate(targets, weights, gaps[index]), strict=True))
    return centres


def _gap(name: str, other: str, sizes: Mapping[str, tuple[float, float]]) -> float:
    """The distance between the centres of two neighbours."""
    between = BOX_GAP_PX if name in sizes and other in sizes else LANE_GAP_PX
    return (_wide(name, sizes) + _wide(other, sizes)) / 2 + between


def _first_centres(
    rows: Sequence[Sequence[str]], gaps: Sequence[Sequence[float]]
) -> dict[str, float]:
    """The centres of the nodes of each row, around 0."""
    centres: dict[str, float] = {}
    for row, between in zip(rows, gaps, strict=True):
        offset = -sum(between) / 2
        for name, gap in zip(row, [*between, 0.0], strict=True):
            centres[name] = offset
            offset += gap
    return centres


def _separate(
    targets: Sequence[float], weights: Sequence[float], gaps: Sequence[float]
) -> list[float]:
    """The positions nearest to the wanted ones (least squares) that keep order and distances.

    Neighbours that would come too near become one block at the mean of the positions that its
    members want; a block that comes too near to the one before it joins that.
    """
    shifts = [0.0]
    for gap in gaps:
        shifts.append(shifts[-1] + gap)
    blocks: list[tuple[float, float, int]] = []  # position, weight, members
    for want, weight, shift in zip(targets, weights, shifts, strict=False):
        position, total, members = want - shift, weight, 1
        while blocks and blocks[-1][0] > position:
            other, heavy, several = blocks.pop()
            position = (position * total + other * heavy) / (total + heavy)
            total += heavy
            members += several
        blocks.append((position, total, members))
    spread = [position for position, _, members in blocks for _ in range(members)]
    return [position + shift for position, shift in zip(spread, shifts, strict=False)]


def _wide(name: str, sizes: Mapping[str, tuple[float, float]]) -> float:
    return sizes[name][0] if name in sizes else 0.0


def _measure(
    rows: Sequence[Sequence[str]],
    chains: Sequence[Sequence[str]],
    centres: Mapping[str, float],
    sizes: Mapping[str, tuple[float, float]],
) -> Layout:
    """Compute boxes and edges, shifted so that the drawing begins at (0, 0)."""
    start = min((centre - _wide(name, sizes) / 2 for name, centre in centres.items()), default=0.0)
    right = max((centre + _wide(name, sizes) / 2 for name, centre in centres.items()), default=0.0)
    tops: dict[str, float] = {}
    tall: dict[str, float] = {}
    y = 0.0
    for row in rows:
        height = max((sizes[name][1] for name in row if name in sizes), default=0.0)
        for name in row:
            tops[name] = y
            tall[name] = sizes[name][1] if name in sizes else height
        y += height + _LAYER_GAP_PX
    boxes = {
        name: NodeBox(_rounded(centres[name] - start - width / 2), tops[name], width, height)
        for name, (width, height) in sizes.items()
    }
    leaves = _port_offsets([(chain[0], centres[chain[1]]) for chain in chains], sizes)
    enters = _port_offsets([(chain[-1], centres[chain[-2]]) for chain in chains], sizes)
    lines: list[EdgeLine] = []
    for number, chain in enumerate(chains):
        points: list[tuple[float, float]] = []
        for spot, name in enumerate(chain):
            x = _rounded(centres[name] - start)
            if spot:
                points.append((x, tops[name]))
            if spot < len(chain) - 1:
                points.append((x, tops[name] + tall[name]))
        points[0] = (points[0][0] + leaves[number], points[0][1])
        points[-1] = (points[-1][0] + enters[number], points[-1][1])
        lines.append(EdgeLine(chain[0], chain[-1], tuple(points)))
    return Layout(boxes, tuple(lines), right - start, max(y - _LAYER_GAP_PX, 0.0))


def _port_offsets(
    ends: Sequence[tuple[str, float]], sizes: Mapping[str, tuple[float, float]]
) -> list[float]:
    """For each end of an edge, its distance from the middle of the box.

    Ends are sorted by the direction of their edges, so that they do not cross at the box.
    """
    by_box: dict[str, list[int]] = {}
    for number, (name, _) in enumerate(ends):
        by_box.setdefault(name, []).append(number)
    offsets = [0.0] * len(ends)
    for name, numbers in by_box.items():
        numbers.sort(key=lambda number: ends[number][1])
        apart = min(_PORT_GAP_PX, sizes[name][0] * 0.7 / len(numbers))
        for index, number in enumerate(numbers):
            offsets[number] = (index - (len(numbers) - 1) / 2) * apart
    return offsets


def to_inline_svg(
    report: GoalReport, link: Callable[[str], str], layout: Layout | None = None
) -> str:
    """Draw a goal as a part of a page, whose style sheet has the colours.

    Args:
        report: The goal.
        link: Step id -> URL of its details.
        layout: A cached layout of the same plan.
    """
    layout = layout or lay_out_plan(report.plan)
    texts = labels(report.plan, report)
    title = xml_text_of(" ".join(report.plan.goal.split()))
    boxes = [
        box_of(name, box, texts[name], link(name), report.steps[name].started)
        for name, box in layout.boxes.items()
    ]
    head = f'<svg {size_of(layout)} role="group" aria-label="{title}">'
    return "\n".join([head, *body_of(layout, boxes)])


def lay_out_plan(plan: Plan, rows: int = 3) -> Layout:
    """Place the boxes of a plan; the third row is for states and usage, whose text may change."""
    sizes: dict[str, tuple[float, float]] = {}
    for name, label in labels(plan, None).items():
        words = max(
            _width(label.title, TITLE_FONT_PX, _BOLD_RATIO),
            _width(label.kind, TEXT_FONT_PX),
            _USAGE_WIDTH_PX if rows > 2 else _MIN_WIDTH_PX,
        )
        sides = (_LEFT_PX if rows > 2 else _RIGHT_PX) + _RIGHT_PX
        sizes[name] = min(words, _MAX_WIDTH_PX) + sides, rows * _ROW_PX + _BOX_PADDING_PX
    return lay_out(sizes, [(need, step.id) for step in plan.steps for need in needs_of(step)])


def size_of(layout: Layout) -> str:
    """The attributes with the size of a drawing."""
    width, height = layout.width + 2 * _MARGIN_PX, layout.height + 2 * _MARGIN_PX
    return f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'


def body_of(layout: Layout, boxes: list[str], ground: str = "") -> list[str]:
    """The lines and boxes of a drawing, on a ground."""
    shift = f'<g transform="translate({_MARGIN_PX:.0f} {_MARGIN_PX:.0f})">'
    return [_TIP + ground, shift, *map(_line, layout.lines), *boxes, "</g>", "</svg>"]


def box_of(name: str, box: NodeBox, label: Label, link: str = "", started: float = 0.0) -> str:
    """A box, which links to its step; a running one carries its start time for a page's clock."""
    state = label.state
    padding = _LEFT_PX if state else _RIGHT_PX
    room = box.width - padding - _RIGHT_PX + 0.5
    x, y = box.x + padding, box.y + _BOX_PADDING_PX / 2 + 14
    word = state_word(state) if state else ""
    about = ", ".join(part for part in (label.title, label.kind, word, label.taken) if part)
    tag, attributes = "g", ""
    if link:
        tag = "a"
        step = xml_text_of(name)
        attributes = f' href="{xml_text_of(link)}" data-step="{step}" id="box-{step}"'
    parts = [
        f'<{tag} class="{state or "plan"}"{attributes}><title>{xml_text_of(about)}</title>',
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"',
        f' height="{box.height:.1f}" rx="{box.height / 2 if label.person else 7:.0f}"/>',
        _text_element("t", x, y, _cut(label.title, room, TITLE_FONT_PX, _BOLD_RATIO)),
        _text_element("k", x, y + _ROW_PX, _cut(label.kind, room, TEXT_FONT_PX)),
    ]
    if state:
        ticks = ""
        if state == "running" and started:
            ticks = f' data-since="{started:.3f}" data-word="{xml_text_of(word)}"'
        taken = xml_text_of(_cut(label.taken or word, room, TEXT_FONT_PX))
        parts += [
            f'<text class="k s" x="{x:.1f}" y="{y + 2 * _ROW_PX:.1f}"{ticks}>{taken}</text>',
            _text_element("m", box.x + _LEFT_PX / 2 + 1, y, MARKS[state]),
        ]
    return "".join([*parts, f"</{tag}>"])


def _text_element(css_class: str, x: float, y: float, text: str) -> str:
    return f'<text class="{css_class}" x="{x:.1f}" y="{y:.1f}">{xml_text_of(text)}</text>'


def _line(line: EdgeLine) -> str:
    """Curves that leave and enter boxes vertically, and straight lines through lanes."""
    (x, y), *points = line.points
    path = f"M{x:.1f} {y:.1f}"
    for index, (to_x, to_y) in enumerate(points):
        if index % 2:  # through a lane
            path += f"V{to_y:.1f}"
        elif abs(to_x - x) < 0.5:
            path += f"L{to_x:.1f} {to_y:.1f}"
        else:
            middle = (y + to_y) / 2
            path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
    return f'<path class="e" d="{path}" marker-end="url(#tip)"/>'


def _width(text: str, size: float, bold: float = 1.0) -> float:
    """Estimated width of a text. The reader's font is unknown, so it is rather too wide."""
    return sum(_letter(char, bold) for char in text) * size


def _letter(char: str, bold: float) -> float:
    if char.isascii():
        if char in _NARROW_LETTERS:
            return 0.36 * bold
        return (0.88 if char in _WIDE_LETTERS else 0.68 if char.isupper() else 0.57) * bold
    if east_asian_width(char) in "WF":
        return 1.0
    return 0.0 if category(char) in {"Mn", "Me", "Cf"} else 0.65 * bold


def _cut(text: str, room: float, size: float, bold: float = 1.0) -> str:
    if _width(text, size, bold) <= room:
        return text
    used = _letter("…", bold)
    for index, char in enumerate(text):
        used += _letter(char, bold)
        if used * size > room:
            return text[:index].rstrip() + "…"
    return text


def xml_text_of(text: str) -> str:
    """Escape `text` for XML content and attributes."""
    allowed = "".join(char for char in text if _allowed(ord(char)))
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        allowed = allowed.replace(char, entity)
    return allowed


def _allowed(code: int) -> bool:
    """Whether XML 1.0 allows the character, and it is no bidirectional control."""
    if code in {0x9, 0xA, 0xD}:
        return True
    if 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or 0x7F <= code <= 0x9F:
        return False
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
