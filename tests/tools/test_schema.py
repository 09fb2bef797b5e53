"""Argument validation agrees with JSON Schema."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import InvalidInput
from satchel.tools import ReadFileTool, SearchTool, SkillTool
from satchel.tools.schema import check

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
    # Two exceptions: null means "omitted", and a blank text is empty.
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
