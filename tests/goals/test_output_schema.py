"""Outputs are checked as jsonschema would, for the part of it that plans use."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.goals.output_schema import fault, unchecked, violations

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
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
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
    [[], "x", {"type": "text"}, {"properties": []}, {"items": 3}, {"anyOf": {}},
     {"properties": {"a": {"type": "number!"}}}, {"required": "a"}, {"type": None}, {"type": 5},
     {"type": []}, {"type": [{}]}, {"minLength": "a"}, {"maximum": None}, {"minItems": True},
     {"minimum": float("nan")}, {"required": [{"a": 1}]},
     {"enum": 1}, {"items": {"maxLength": []}}],
)  # fmt: skip
def test_an_invalid_schema_is_an_error(schema):
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


def test_keywords_that_are_not_checked_are_named():
    schema = {"items": {"pattern": "^a+$", "format": "date"}, "oneOf": [{}]}
    assert unchecked(schema) == ["oneOf", "pattern"]
    assert fault(schema) == ""
    assert violations(["b"], schema) == []
