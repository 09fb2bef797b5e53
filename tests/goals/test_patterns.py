"""A stranger's pattern never takes long: it is refused, or what it may try is bounded."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.goals.patterns import LONGEST, fault, fits


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("^(a+)+$", "repeats what repeats"),
        ("(a|aa)+$", "repeats alternatives"),
        ("^[a-z]+(-[a-z]+)*$", "repeats what repeats"),
        (r"(a)\1", "refers back"),
        ("(?=a)", "looks around"),
        ("(", "cannot be read"),
        ("((((a{8}){8}){8}){8}){8}", "too many parts"),
        ("a" * 2_000, "more than 1000"),
        (5, "no text"),
        (None, "no text"),
    ],
)
def test_what_may_take_for_ever_is_refused(pattern, why):
    assert why in fault(pattern)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-15", "soon"),
        (r"^(\d{1,3}\.){3}\d{1,3}$", "10.0.0.1", "10.0.0"),
        (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "ann@example.com", "ann"),
        ("^(red|green)$", "red", "blue"),
        ("https?://", "see http://example.com", "nothing"),
        ("^(draft-)?[a-z]+$", "draft-a", "1"),
        (r"(?i)^ok\b", "OK then", "no"),
    ],
)
def test_ordinary_patterns_are_tried(pattern, good, bad):
    assert not fault(pattern)
    assert not fits(pattern, good)
    assert fits(pattern, bad) == f"must match `{pattern}`"


@pytest.mark.parametrize(
    "pattern", [".*.*.*x", "(ab){5000}c", "a?" * 30 + "b", "[a-z]+x", "^a+a+$"]
)
def test_no_text_takes_long(pattern):
    for size in (20, 100, 1_000, LONGEST, 10 * LONGEST):
        began = time.process_time()
        fits(pattern, "a" * size)
        fits(pattern, "ab" * (size // 2))
        assert time.process_time() - began < 3


def test_a_text_that_is_too_long_is_said():
    assert "too long" in fits("x", "a" * (LONGEST + 1))
    assert "not tried" in fits("^(a+)+$", "a")


@given(
    st.text("ab", max_size=30), st.sampled_from(["a+b", "^a*b?$", "(ab){2}", "a|b{2}", "[ab]+$"])
)
def test_it_finds_what_python_finds(text, pattern):
    assert (not fits(pattern, text)) == bool(re.search(pattern, text))
