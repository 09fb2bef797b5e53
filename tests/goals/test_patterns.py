"""A stranger's pattern never takes long: it is refused, or what it may try is bounded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pattern_search import longest
from satchel.goals.patterns import LONGEST, fault, fits


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("^(a+)+$", "repeats what repeats"),
        ("(a|aa)+$", "repeats alternatives"),
        ("([a-z]+)*", "repeats what repeats"),
        ("([a-z]+-?)*", "repeats what repeats"),
        ("(-?[a-z]+)*$", "repeats what repeats"),
        ("(a?)*x", "repeats what repeats"),
        ("(a*)*", "repeats what repeats"),
        ("(-[a-z-]+)*$", "repeats what repeats"),
        (r"(\.\w+\.?\w*)*$", "repeats what repeats"),
        ("((-a+){10}a)*$", "repeats what repeats"),
        ("(a|a)*", "repeats alternatives"),
        ("(a|b|ab)*c", "repeats alternatives"),
        ("(|a)*", "repeats alternatives"),
        ("(?i)(k[a-j]*|\u212a)*$", "repeats alternatives"),
        (r"(?a)^(?u:(?:\w-?|é-?)*)$", "repeats alternatives"),
        (r"(?a)^(?u:(?:\w|éé)*)$", "repeats alternatives"),
        ("(?i)" + "[\u0100-\uffff]" * 100, "too wide"),
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
        ("^[a-z]+(-[a-z]+)*$", "a-slug", "a--slug"),
        ("^[a-z0-9]+(?:-[a-z0-9]+)*$", "a1-2", "-a"),
        (r"^\d+(\.\d+)*$", "1.20.3", "1..2"),
        (r"^(\w+)(\s\w+)*$", "two words", "two  words"),
        ("^(foo|bar)+$", "foobar", "fooba"),
        ("^(-[a-z]{2,5}){1,30}$", "-ab-cde", "-a"),
        ('^("[^"]*"|[^",])*$', 'a"b,c"d', "a,b"),
        ("^[\u4e00-\u9fff]+(、[\u4e00-\u9fff]+)*$", "苹果、梨", "苹果、"),
    ],
)
def test_ordinary_patterns_are_tried(pattern, good, bad):
    assert not fault(pattern)
    assert not fits(pattern, good)
    assert fits(pattern, bad) == f"must match `{pattern}`"


@pytest.mark.parametrize(
    "pattern",
    [
        ".*.*.*x",
        "(ab){5000}c",
        "a?" * 30 + "b",
        "^" + "(a?)?(b?)?" * 30 + "$",
        "[a-z]+x",
        "^a+a+$",
        "(a-?)*x",
        "(-[a-z]+)*[a-z]*x",
        "(?m)^[a-z]+(b[a-z]+)?x",
    ],
)
def test_no_text_takes_long(pattern):
    for size in (20, 100, 1_000, LONGEST, 10 * LONGEST):
        began = time.process_time()
        fits(pattern, "a" * size)
        fits(pattern, "ab" * (size // 2))
        assert time.process_time() - began < 3


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ("[ab]{50000}x", "a"),
        ("^.*[ab]{50000}x", "a"),
        ("(?:[ab]{50000}x|c)", "a"),
        ("(?:[ab]{50000}x)?y", "a"),
        ("(?:ab){5000}x", "ab"),
        ("(?:(?:ab){8}){8}x", "ab"),
        ("(?i)\u0130{3000}x", "\u0130"),
        (r"(?:a" + r"\B" * 400 + ")*x", "a"),
        (r"(?:\b){5000}a", "a "),
        ("[" + "".join(chr(0x10000 + 2 * n) for n in range(900)) + "]*x", chr(0x10000 + 1_798)),
        ("^(?:" + "(" * 200 + "a" + ")" * 200 + "|b)*x", "a"),
        ("(" * 200 + "a" + ")" * 200 + "x", "a"),
    ],
)
def test_the_longest_text_that_is_let_through_takes_no_second(pattern, unit):
    assert not fault(pattern)
    size = longest(pattern)
    assert size >= 100 or size == LONGEST
    text = (unit * size)[:size]
    began = time.process_time()
    fits(pattern, text)
    assert time.process_time() - began < 1.5


@pytest.mark.timeout(120)
def test_no_pattern_that_is_found_by_chance_takes_long(root):
    """Tried by another process: one that takes for ever is stopped, and named."""
    search = os.path.join(root, "tests", "pattern_search.py")
    done = subprocess.run(
        [sys.executable, search, "5", "3"],
        capture_output=True, text=True, encoding="utf-8", timeout=100, check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tried = int(done.stdout.split()[-1])
    assert tried > 20


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z]+(-[a-z]+)*$",
        "^[a-z0-9]+(?:-[a-z0-9]+)*$",
        r"^\d+(\.\d+)*$",
        "^(a-?)*$",
        "^(?:[a-z]+:)*(?:[0-9]+-)*$",
        '^("[^"]*"|[^",])*$',
    ],
)
@pytest.mark.parametrize("end", ["", "!", "-", "."])
def test_where_there_is_one_way_a_long_text_is_tried_too(pattern, end):
    for unit in ("a", "a-", "-a", "1.", "a:", '"a"', "0-a:"):
        text = unit * (50_000 // len(unit)) + end
        began = time.process_time()
        told = fits(pattern, text)
        assert time.process_time() - began < 1
        assert told in {"", f"must match `{pattern}`"}


def test_what_is_tried_from_every_character_on_takes_short_texts_only():
    """It grows as the square of the text: some thousand characters are the most."""
    assert not fits(r"\d+(\.\d+)*", "1.2" * 500)
    assert "too long" in fits(r"\d+(\.\d+)*", "1.2" * 2_000)


def test_a_text_that_is_too_long_is_said():
    assert "too long" in fits("x", "a" * (LONGEST + 1))
    assert "not tried" in fits("^(a+)+$", "a")


@given(
    st.text("ab", max_size=30), st.sampled_from(["a+b", "^a*b?$", "(ab){2}", "a|b{2}", "[ab]+$"])
)
def test_it_finds_what_python_finds(text, pattern):
    assert (not fits(pattern, text)) == bool(re.search(pattern, text))
