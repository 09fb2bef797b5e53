"""Our own checker agrees with JSON Schema."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import InvalidInput
from satchel.tools import ReadFileTool, SearchTool, SkillTool
from satchel.tools.parameters import check, echo, read_arguments

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 60)
    | st.floats(-2, 60)
    | st.text()
    | st.lists(st.text())
)
NAMES = st.sampled_from(["name", "args", "path", "offset", "limit", "column", "query", "other"])


@pytest.mark.parametrize("tool", [SkillTool, ReadFileTool, SearchTool])
@given(arguments=st.dictionaries(NAMES, VALUES))
def test_what_we_refuse_is_what_the_schema_refuses(tool, arguments):
    # Two kindnesses: null stands for "left out", and a text of blanks is as good as none.
    plain = {key: value for key, value in arguments.items() if value is not None}
    trimmed = {k: v.strip() if isinstance(v, str) else v for k, v in plain.items()}
    valid = jsonschema.Draft202012Validator(tool.parameters).is_valid(trimmed)
    unknown = set(arguments) - set(tool.parameters["properties"])
    try:
        check(arguments, tool.parameters, {})
    except InvalidInput:
        assert not valid or unknown
    else:
        assert valid


def test_every_slip_is_named_at_once():
    with pytest.raises(InvalidInput) as caught:
        check({"limit": 0, "offset": "x", "foo": 1}, ReadFileTool.parameters, {})
    assert caught.value.message == (
        "There is no parameter `foo`; `path` is missing; `limit` must be at least 1; "
        "`offset` must be a whole number, not a text"
    )
    assert caught.value.hint == "The parameters are `path`, `offset`, `limit`, `column`"


def test_arguments_come_as_tables_or_as_json():
    assert read_arguments(None) == read_arguments("") == read_arguments(" ") == {}
    assert read_arguments('{"a": 1}') == read_arguments(b'{"a": 1}') == {"a": 1}
    for wrong in ("[", "[]", "1", 1, ["a"], "[" * 100_000):
        with pytest.raises(InvalidInput):
            read_arguments(wrong)


def test_the_echo_can_always_be_sent():
    class Odd:
        pass

    assert echo({"a": float("inf"), 1: (1, Odd()), "\ud800": "\ud800"}) == {
        "a": "inf",
        "1": [1, "(Odd)"],
        "?": "?",
    }
