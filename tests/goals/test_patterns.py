"""Patterns of output schemas: refused, or bounded by the length of the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.goals.schema import MAX_TEXT_CHARS, pattern_fault, pattern_fits


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("^(a+)+$", "repeats what repeats"),
        ("([a-z]+-?)*", "repeats what repeats"),
        ("(a?)*x", "repeats what repeats"),
        ("((-a+){10}a)*$", "repeats what repeats"),
        ("(?:(?P<x>a+)b)*", "repeats what repeats"),
        (r"([)]|\(a+)+$", "repeats what repeats"),
        ("(a|aa)+$", "repeats alternatives"),
        (r"(a)\1", "refers back"),
        ("(?=a)", "looks around"),
        ("(?<!a)b", "looks around"),
        ("(?P<x>a)(?P=x)", "refers back"),
        ("(", "cannot be read"),
        ("a" * 2_000, "more than 1000"),
        (5, "no text"),
    ],
)
def test_what_may_backtrack_without_end_is_refused(pattern, why):
    assert why in pattern_fault(pattern)


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
        ("^[a-z]+(?:-[a-z]++)*$", "a-slug", "a--slug"),
        ("^[^]|)(]+$", "abc", "a)"),
    ],
)
def test_ordinary_patterns_are_tried(pattern, good, bad):
    assert not pattern_fault(pattern)
    assert not pattern_fits(pattern, good)
    assert pattern_fits(pattern, bad) == f"must match `{pattern}`"


@pytest.mark.parametrize("pattern", [".*.*.*x", "a?" * 30 + "b", "[a-z]+x", "^a+a+$"])
def test_long_texts_are_not_tried_where_that_takes_long(pattern):
    for size in (10, 20, 100, 1_000, 7_000, MAX_TEXT_CHARS, 2 * MAX_TEXT_CHARS):
        began = time.process_time()
        pattern_fits(pattern, "a" * size)
        assert time.process_time() - began < 5
    assert "too long" in pattern_fits(pattern, "a" * (MAX_TEXT_CHARS + 1))


@given(
    st.text("ab", max_size=30), st.sampled_from(["a+b", "^a*b?$", "(ab){2}", "a|b{2}", "[ab]+$"])
)
def test_it_finds_what_python_finds(text, pattern):
    assert (not pattern_fits(pattern, text)) == bool(re.search(pattern, text))
