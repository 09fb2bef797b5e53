"""Boxes are below their dependencies and never overlap, and edges avoid boxes."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.goals.drawing import lay_out


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    names = [f"n{number}" for number in range(count)]
    pairs = [(one, other) for at, other in enumerate(names) for one in names[:at]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []
    wide = st.integers(60, 300)
    return {name: (float(draw(wide)), float(draw(st.integers(30, 90)))) for name in names}, edges


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_any_graph_is_placed_soundly(graph):
    sizes, edges = graph
    found = lay_out(sizes, edges)
    assert set(found.boxes) == set(sizes)
    for one, other in itertools.combinations(found.boxes.values(), 2):
        beside = one.x + one.width <= other.x + 0.01 or other.x + other.width <= one.x + 0.01
        apart = one.y + one.height <= other.y + 0.01 or other.y + other.height <= one.y + 0.01
        assert beside or apart
    for box in found.boxes.values():
        assert box.x >= -0.01
        assert box.y >= -0.01
        assert box.x + box.width <= found.width + 0.01
        assert box.y + box.height <= found.height + 0.01
    assert [(line.source, line.target) for line in found.lines] == edges
    for line in found.lines:
        above, below = found.boxes[line.source], found.boxes[line.target]
        assert above.y + above.height < below.y
        (x, y), (to_x, to_y) = line.points[0], line.points[-1]
        assert above.x < x < above.x + above.width
        assert y == pytest.approx(above.y + above.height)
        assert below.x < to_x < below.x + below.width
        assert to_y == pytest.approx(below.y)
        for x, y in line.points[1:-1]:  # lanes lie beside the boxes of their layer
            for box in found.boxes.values():
                assert not (box.x < x < box.x + box.width and box.y < y < box.y + box.height)


def test_a_diamond_is_symmetric_and_crosses_nothing():
    sizes = dict.fromkeys("abcd", (100.0, 40.0))
    found = lay_out(sizes, [("a", "c"), ("a", "b"), ("b", "d"), ("c", "d")])
    boxes = found.boxes
    assert boxes["a"].x == pytest.approx(boxes["d"].x)
    assert boxes["b"].y == boxes["c"].y
    assert boxes["b"].x + boxes["c"].x == pytest.approx(2 * boxes["a"].x)


def test_a_cycle_is_refused_and_an_empty_graph_is_drawn():
    sizes = dict.fromkeys("ab", (100.0, 40.0))
    with pytest.raises(ValueError, match="cycle"):
        lay_out(sizes, [("a", "b"), ("b", "a")])
    assert lay_out({}, []).boxes == {}


def test_the_largest_plan_is_placed_in_seconds():
    names = [f"n{number}" for number in range(2000)]
    edges = [(names[at // 2], names[at]) for at in range(1, 2000)]
    before = time.monotonic()
    assert len(lay_out(dict.fromkeys(names, (120.0, 50.0)), edges).boxes) == 2000
    assert time.monotonic() - before < 5
