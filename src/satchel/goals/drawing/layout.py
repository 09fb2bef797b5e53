"""Layered layout of a directed acyclic graph (Sugiyama, Tagawa, Toda).

Every node is below its dependencies, the nodes of a layer are ordered to cross few edges, and each
is then moved as near to its neighbours as the others allow. An edge that passes through a layer has
a lane there. The layout is deterministic.
"""

from __future__ import annotations

from bisect import bisect_right
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BOX_GAP_PX = 28.0
LANE_GAP_PX = 14.0
"""Beside an edge that passes through a layer."""
_LAYER_GAP_PX = 54.0
_PORT_GAP_PX = 18.0
_SWEEP_COUNT = 12
_MAX_SWEPT_NODES = 3_000
"""Larger graphs are ordered only once."""


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
        for at in order:
            beside = {
                name: lay_out for lay_out, name in enumerate(rows[at - 1 if down else at + 1])
            }
            own = {name: float(lay_out) for lay_out, name in enumerate(rows[at])}
            middles = {
                name: _mean([beside[other] for other in near[name]])
                if near.get(name)
                else own[name]
                for name in rows[at]
            }
            rows[at].sort(key=lambda name, middles=middles: middles[name])
        count = _crossings(rows, downs)
        if count < fewest:
            fewest, best = count, [list(row) for row in rows]
    rows[:] = best


def _rounded(number: float) -> float:
    """Round off the digits in which Python versions differ, and remove a minus before 0."""
    return round(number, 3) + 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _crossings(rows: Sequence[Sequence[str]], downs: Mapping[str, list[str]]) -> int:
    """Count crossing edges layer by layer."""
    total = 0
    for row, under in pairwise(rows):
        where = {name: lay_out for lay_out, name in enumerate(under)}
        ends = [end for name in row for end in sorted(where[one] for one in downs.get(name, ()))]
        seen: list[int] = []
        for end in ends:
            place = bisect_right(seen, end)
            total += len(seen) - place
            seen.insert(place, end)
    return total


def _centres(
    rows: Sequence[Sequence[str]],
    ups: Mapping[str, list[str]],
    downs: Mapping[str, list[str]],
    sizes: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    gaps = [
        [
            (_wide(one, sizes) + _wide(other, sizes)) / 2
            + (BOX_GAP_PX if one in sizes and other in sizes else LANE_GAP_PX)
            for one, other in pairwise(row)
        ]
        for row in rows
    ]
    centres: dict[str, float] = {}
    for row, between in zip(rows, gaps, strict=True):
        at = -sum(between) / 2
        for name, gap in zip(row, [*between, 0.0], strict=True):
            centres[name] = at
            at += gap
    sweeps = _SWEEP_COUNT if len(centres) <= _MAX_SWEPT_NODES else 2
    for sweep in range(sweeps + 1):  # the last sweep goes down, so that dependents are below
        down = sweep % 2 == 0
        for at in range(len(rows)) if down else range(len(rows) - 1, -1, -1):
            wanted: list[float] = []
            weights: list[float] = []
            for name in rows[at]:
                above, under = ups.get(name, []), downs.get(name, [])
                near = (above if down else under) or under or above
                wanted.append(_mean([centres[one] for one in near]) if near else centres[name])
                lane = name not in sizes and near[0] not in sizes
                weights.append(4.0 if lane else 1.0)  # long edges should be straight
            centres.update(zip(rows[at], _separate(wanted, weights, gaps[at]), strict=True))
    return centres


def _separate(
    wanted: Sequence[float], weights: Sequence[float], gaps: Sequence[float]
) -> list[float]:
    """The positions nearest to the wanted ones (least squares) that keep order and distances.

    Neighbours that would come too near become one block at the mean of the positions that its
    members want; a block that comes too near to the one before it joins that.
    """
    shifts = [0.0]
    for gap in gaps:
        shifts.append(shifts[-1] + gap)
    blocks: list[tuple[float, float, int]] = []  # position, weight, members
    for want, weight, shift in zip(wanted, weights, shifts, strict=False):
        at, total, members = want - shift, weight, 1
        while blocks and blocks[-1][0] > at:
            other, heavy, several = blocks.pop()
            at = (at * total + other * heavy) / (total + heavy)
            total += heavy
            members += several
        blocks.append((at, total, members))
    spread = [at for at, _, members in blocks for _ in range(members)]
    return [at + shift for at, shift in zip(spread, shifts, strict=False)]


def _wide(name: str, sizes: Mapping[str, tuple[float, float]]) -> float:
    return sizes[name][0] if name in sizes else 0.0


def _measure(
    rows: Sequence[Sequence[str]],
    chains: Sequence[Sequence[str]],
    centres: Mapping[str, float],
    sizes: Mapping[str, tuple[float, float]],
) -> Layout:
    """Compute boxes and edges, shifted so that the drawing begins at (0, 0)."""
    left = min((at - _wide(name, sizes) / 2 for name, at in centres.items()), default=0.0)
    right = max((at + _wide(name, sizes) / 2 for name, at in centres.items()), default=0.0)
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
        name: NodeBox(_rounded(centres[name] - left - width / 2), tops[name], width, height)
        for name, (width, height) in sizes.items()
    }
    leaves = _port_offsets([(chain[0], centres[chain[1]]) for chain in chains], sizes)
    enters = _port_offsets([(chain[-1], centres[chain[-2]]) for chain in chains], sizes)
    lines: list[EdgeLine] = []
    for number, chain in enumerate(chains):
        points: list[tuple[float, float]] = []
        for spot, name in enumerate(chain):
            x = _rounded(centres[name] - left)
            if spot:
                points.append((x, tops[name]))
            if spot < len(chain) - 1:
                points.append((x, tops[name] + tall[name]))
        points[0] = (points[0][0] + leaves[number], points[0][1])
        points[-1] = (points[-1][0] + enters[number], points[-1][1])
        lines.append(EdgeLine(chain[0], chain[-1], tuple(points)))
    return Layout(boxes, tuple(lines), right - left, max(y - _LAYER_GAP_PX, 0.0))


def _port_offsets(
    ends: Sequence[tuple[str, float]], sizes: Mapping[str, tuple[float, float]]
) -> list[float]:
    """For each end of an edge, its distance from the middle of the box.

    Ends are sorted by the direction of their edges, so that they do not cross at the box.
    """
    by_box: dict[str, list[int]] = {}
    for number, (name, _) in enumerate(ends):
        by_box.setdefault(name, []).append(number)
    found = [0.0] * len(ends)
    for name, numbers in by_box.items():
        numbers.sort(key=lambda number: ends[number][1])
        apart = min(_PORT_GAP_PX, sizes[name][0] * 0.7 / len(numbers))
        for at, number in enumerate(numbers):
            found[number] = (at - (len(numbers) - 1) / 2) * apart
    return found
