"""A bar is as wide as it was asked to be, and shows a mark where there is anything at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.cli.bars import EMPTY, FULL, bar, bar_width, share_of
from satchel.cli.output import width_of


@given(st.floats(), st.integers(0, 20))
def test_a_bar_has_its_width_whatever_the_number(share, width):
    assert width_of(bar(share, width)) == width
    assert set(bar(share, width)) <= {FULL, EMPTY}


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "····"), (0.01, "■···"), (0.5, "■■··"), (1, "■■■■"), (7, "■■■■"), (-1, "····")],
)  # fmt: skip
def test_little_is_not_nothing(share, shown):
    assert bar(share, 4) == shown


def test_a_share_needs_something_to_be_a_share_of():
    assert share_of(2, 4) == 0.5
    assert share_of(9, 4) == 1
    assert share_of(2, 0) == share_of(-1, 4) == share_of(0, 0) == 0
    assert share_of(float("inf"), float("inf")) == 1


def test_a_small_screen_has_a_small_bar_or_none():
    assert [bar_width(columns) for columns in (0, 40, 60, 80, 120)] == [10, 0, 6, 10, 10]
