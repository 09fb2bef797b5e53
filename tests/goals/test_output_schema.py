"""Outputs are checked as jsonschema would, for the part of it that plans use."""

from __future__ import annotations

import time

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.goals.output_schema import (
    MAX_TEXT_CHARS,
    fault,
    pattern_fault,
    pattern_fits,
    unchecked,
    violations,
)

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "ab"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=5,
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null"])
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
            "enum": st.lists(st.integers(-1, 1) | st.just("ab"), min_size=1, max_size=2),
            "const": st.integers(-1, 1) | st.just("ab"),
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "exclusiveMinimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "pattern": st.sampled_from(["a", "^b"]),
            "required": st.lists(st.sampled_from("ab"), max_size=1),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=4,
)


@given(VALUES, SCHEMAS)
def test_it_agrees_with_jsonschema(value, schema):
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (violations(value, schema) == []) == valid
    assert fault(schema) == ""
    assert unchecked(schema) == []


@pytest.mark.parametrize(
    "schema",
    [[], "x", {"type": "text"}, {"properties": []}, {"items": 3}, {"anyOf": {}}, {"pattern": "("},
     {"properties": {"a": {"type": "number!"}}}, {"required": "a"}, {"type": None}, {"type": 5},
     {"type": []}, {"type": [{}]}, {"minLength": "a"}, {"maximum": None}, {"minItems": True},
     {"minimum": float("nan")}, {"required": [{"a": 1}]}, {"pattern": "^(a+)+$"}, {"pattern": 3},
     {"enum": 1}, {"items": {"maxLength": []}}],
)  # fmt: skip
def test_what_is_no_schema_is_said(schema):
    assert fault(schema)


def test_deep_schemas_end():
    schema: dict = {}
    for _ in range(500):
        schema = {"items": schema}
    assert "deeply" in fault(schema)
    assert unchecked(schema) == []
    value: list = []
    for _ in range(300):
        value = [value]
    assert violations(value, schema) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYWORDS = st.sampled_from([
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
    "oneOf", "allOf", "minimum", "exclusiveMaximum", "maxLength", "pattern", "maxItems",
])  # fmt: skip


@given(st.dictionaries(KEYWORDS, VALUES, max_size=4), VALUES)
def test_what_has_no_fault_can_be_checked(schema, value):
    if not fault(schema):
        violations(value, schema)
        unchecked(schema)


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
        (5, "not valid"),
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
