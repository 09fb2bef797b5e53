"""Toolset: one envelope for every call, and no exception."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satchel.errors import InvalidInput
from satchel.settings import load_settings
from satchel.tools import ReadFileTool, SearchTool, SkillTool, Tool, Toolset
from satchel.tools.schema import check

CODES = {
    "NOT_FOUND", "ACCESS_DENIED", "PERMISSION_DENIED", "INVALID_PARAM", "TIMEOUT", "INTERNAL_ERROR",
    "EXECUTION_ERROR", "CONFLICT", "IS_DIRECTORY", "BINARY_FILE",
}  # fmt: skip


def check_shape(reply, given_arguments=None) -> None:
    """The protocol, word for word."""
    wire = json.loads(reply.to_json().encode())
    fields = {"status", "data", "text", "stats", "context"}
    if wire["status"] == "error":
        fields.add("error")
        assert set(wire["error"]) == {"code", "message"}
        assert wire["error"]["code"] in CODES
        assert wire["error"]["message"]
        assert not wire["error"]["message"].endswith(".")
        assert wire["text"].startswith(wire["error"]["message"])
    assert set(wire) == fields
    assert wire["status"] in {"success", "partial", "error"}
    assert isinstance(wire["data"], dict)
    assert isinstance(wire["text"], str)
    assert wire["text"]
    assert isinstance(wire["stats"]["time_ms"], int)
    assert wire["context"]["cwd"] == "."
    assert isinstance(wire["context"]["params_input"], dict)
    if isinstance(given_arguments, dict) and given_arguments:
        assert set(wire["context"]["params_input"]) == {
            str(key).encode("utf-8", "replace").decode() for key in given_arguments
        }
    if wire["status"] == "partial":
        assert {"truncated", "fallback", "applied", "failed_items"} & set(wire["data"])


CALLS = [
    ("Skill", {"name": "demo"}, "success"),
    ("Skill", {"name": "demo", "args": "x"}, "success"),
    ("Skill", {"skill": "demo", "args": None}, "success"),
    ("Skill", {"name": "long"}, "partial"),
    ("Skill", {"name": "nothing"}, "NOT_FOUND"),
    ("Skill", {"name": "stranger"}, "PERMISSION_DENIED"),
    ("Skill", {"name": "people"}, "PERMISSION_DENIED"),
    ("Skill", {"name": "broken"}, "INTERNAL_ERROR"),
    ("Skill", {}, "INVALID_PARAM"),
    ("Skill", {"name": 3}, "INVALID_PARAM"),
    ("ReadFile", {"path": "a.md"}, "success"),
    ("ReadFile", {"path": "long.md"}, "partial"),
    ("ReadFile", {"path": "latin.md"}, "partial"),
    ("ReadFile", {"path": "missing.md"}, "NOT_FOUND"),
    ("ReadFile", {"path": "../x.md"}, "ACCESS_DENIED"),
    ("ReadFile", {"path": "a.exe"}, "ACCESS_DENIED"),
    ("ReadFile", {"path": "bin.md"}, "BINARY_FILE"),
    ("ReadFile", {"path": "skills"}, "IS_DIRECTORY"),
    ("ReadFile", {"path": "a.md", "offset": 99}, "INVALID_PARAM"),
    ("ReadFile", {"path": "y" * 300 + ".md"}, "INVALID_PARAM"),
    ("ReadFile", {}, "INVALID_PARAM"),
    ("SkillSearch", {"query": "demo"}, "success"),
    ("SkillSearch", {"query": "zzzz"}, "success"),
    ("SkillSearch", {"query": "demo", "limit": 0}, "INVALID_PARAM"),
    ("SkillSearch", None, "INVALID_PARAM"),
    ("Unknown", {"a": 1}, "NOT_FOUND"),
    ("", {}, "NOT_FOUND"),
    ("Skill", "{broken", "INVALID_PARAM"),
    ("Skill", 5, "INVALID_PARAM"),
]  # fmt: skip


@pytest.fixture
def full(make_desk):
    """A project in which everything can happen."""
    desk = make_desk(reading={"limit": 1_000}, trust="ask")
    for name in ("demo", "long", "people"):
        fields = {"disable_model_invocation": True} if name == "people" else {}
        folder = desk.skill(name, "text\n" * (100_000 if name == "long" else 1), **fields)
        desk.library.trust.trust(folder)
    desk.skill("stranger")
    desk.write("skills/broken/SKILL.md", "no frontmatter")
    desk.write("a.md", "text")
    desk.write("a.exe", "text")
    desk.write("long.md", "text\n" * 1_000)
    desk.write("latin.md", b"caf\xe9")
    desk.write("bin.md", b"\0")
    return desk


@pytest.mark.req("A10")
@pytest.mark.parametrize(("tool", "arguments", "expected"), CALLS)
def test_every_answer_has_the_shape_of_the_protocol(full, tool, arguments, expected):
    reply = full.tools.call(tool, arguments)
    check_shape(reply, arguments)
    assert (reply.error.code if reply.error else reply.status) == expected, reply.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["name", "skill", "args", "path", "relativePath", "offset", "limit", "column", "query"]
)
WORDS = st.sampled_from(
    ["demo", "people", "$demo", "skills/demo", "a.md", "../a.md", "skills", "", "/", "~"]
) | st.sampled_from(["\0", "\ud800"])


@pytest.mark.req("A10", "A15")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tool=st.sampled_from(["Skill", "ReadFile", "SkillSearch"]) | st.text(),
    arguments=st.dictionaries(KEYS | st.text(), JSON | WORDS | st.integers(-2, 60)) | JSON,
)
def test_no_arguments_make_it_raise(full, tool, arguments):
    check_shape(full.tools.call(tool, arguments), arguments)


def test_many_wrong_arguments_are_cut_to_the_first(full):
    reply = full.tools.call("ReadFile", {f"k{number}": 1 for number in range(5_000)})
    assert reply.error.code == "INVALID_PARAM"
    assert reply.error.message.endswith("there is no parameter `k19`; and 4981 more")


def test_things_that_are_not_json_do_not_make_it_raise(full):
    for value in (object(), {1, 2}, b"x", float("nan"), 10**400, 10**9_000, [[[[[[[[[[1]]]]]]]]]]):
        check_shape(full.tools.call("Skill", {"name": value}))
        check_shape(full.tools.call("ReadFile", {"path": "a.md", "offset": value}))
    deep = []
    for _ in range(5_000):
        deep = [deep]
    check_shape(full.tools.call("Skill", {"name": deep}))
    check_shape(full.tools.call("Skill", {3: "x"}))


class Failing(Tool):
    """A tool with a fault."""

    name = "Failing"
    description = "Fails."
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}  # noqa: RUF012

    def run(self, call):
        raise ZeroDivisionError("secret details")


@pytest.mark.req("A15")
def test_a_fault_in_a_tool_is_an_internal_error(full, tmp_path):
    chosen = load_settings(full.project, env={"HOME": str(tmp_path)})
    tools = Toolset([Failing()], full.library, chosen)
    reply = tools.call("Failing", {})
    check_shape(reply)
    assert reply.error.code == "INTERNAL_ERROR"
    assert reply.error.message == "ZeroDivisionError in the tool `Failing`"
    event = full.trace.events[-1]
    assert (event.kind, event.values["code"]) == ("failed", "INTERNAL_ERROR")


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 60)
    | st.floats(-2, 60)
    | st.text()
    | st.lists(st.text())
)
PARAMETERS = st.sampled_from(
    ["name", "args", "path", "offset", "limit", "column", "query", "other"]
)


@pytest.mark.parametrize("tool", [SkillTool, ReadFileTool, SearchTool])
@given(arguments=st.dictionaries(PARAMETERS, VALUES))
def test_the_argument_check_agrees_with_jsonschema(tool, arguments):
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
