"""Template references are filled once, and values are never expanded again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import StepFailed
from satchel.goals.templates import (
    MAX_INSERTED_CHARS,
    TemplateValues,
    fill,
    fill_value,
    parse,
    references_in,
)

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

VALUES = TemplateValues(
    {"since": "Monday", "limit": 3, "deep": {"a": [1, {"b": "x"}]}},
    {"one": "text of one", "two": {"rows": [{"n": 1}, {"n": 2}]}, "gone": None},
    "the goal",
)


@pytest.mark.parametrize(
    "inner",
    ["", "x", "steps", "steps.a", "steps.a.result", "steps..output", "inputs", "inputs.", "skills",
     "steps.a.output.", "goal.x", "steps.a b.output", "__import__('os')", "inputs.a.", "GOAL"],
)  # fmt: skip
def test_anything_else_is_no_reference(inner):
    assert parse(inner) is None
    with pytest.raises(StepFailed, match="There is nothing for"):
        fill(f"{{{{{inner}}}}}", VALUES)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("{{goal}} since {{ inputs.since }}", "the goal since Monday"),
        ("{{inputs.limit}} {{inputs.deep.a.1.b}} {{inputs.deep}}", '3 x {"a": [1, {"b": "x"}]}'),
        ("{{steps.one.output}}", "text of one"),
        ("{{steps.two.output.rows.1.n}}", "2"),
        ("{{steps.gone.output}} {{steps.gone.output.field}}", "null null"),
        (r"\{{goal}} and {{goal}}", "{{goal}} and the goal"),
        ("{{goal", "{{goal"),
        ("{single}", "{single}"),
    ],
)
def test_texts_are_filled(text, filled):
    assert fill(text, VALUES) == filled


def test_a_missing_value_fails_permanently():
    for text in ("{{inputs.no}}", "{{steps.no.output}}", "{{steps.two.output.rows.9}}",
                 "{{steps.one.output.field}}", "{{steps.two.output.rows.n}}"):  # fmt: skip
        with pytest.raises(StepFailed) as caught:
            fill(text, VALUES)
        assert caught.value.code == "MISSING_INPUT"
        assert not caught.value.retryable


def test_arguments_keep_their_types():
    arguments = {
        "whole": "{{steps.two.output.rows}}",
        "inside": "n = {{inputs.limit}}",
        "list": ["{{inputs.limit}}", 7, None, True],
        "two": "{{inputs.limit}}{{inputs.limit}}",
    }
    assert fill_value(arguments, VALUES) == {
        "whole": [{"n": 1}, {"n": 2}],
        "inside": "n = 3",
        "list": [3, 7, None, True],
        "two": "33",
    }


@given(st.text())
def test_an_output_is_never_read_as_a_template(output):
    hostile = output + "{{goal}}{{steps.a.output}}"
    values = TemplateValues({"x": hostile}, {"a": hostile}, "secret")
    assert fill("[{{steps.a.output}}|{{inputs.x}}]", values) == f"[{hostile}|{hostile}]"


def test_inserted_text_is_limited():
    values = TemplateValues({"x": "a" * 1_000_000}, {})
    assert len(fill("{{inputs.x}}" * 4, values)) == MAX_INSERTED_CHARS
    for text in ("{{inputs.x}}" * 5, "{{inputs.x}}" * 10_000):
        with pytest.raises(StepFailed) as caught:
            fill(text, values)
        assert (caught.value.code, caught.value.retryable) == ("TOO_LARGE", False)
    with pytest.raises(StepFailed):  # together
        fill_value(["a {{inputs.x}}"] * 5, values)


@pytest.mark.timeout(10)
def test_braces_that_never_close_take_no_time():
    text = "{{" * 200_000
    assert list(references_in(text)) == []
    assert fill(text, VALUES) == text
    assert fill("{{goal}}" + text, VALUES) == "the goal" + text
