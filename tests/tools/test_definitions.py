"""Tool definitions for each provider."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest

from satchel.errors import InvalidInput
from satchel.tools import PROVIDERS


def parts(definition: dict) -> tuple[str, str, dict]:
    """Name, description and schema, whatever the form."""
    inner = definition.get("function") or definition.get("toolSpec") or definition
    keys = ("input_schema", "inputSchema", "parameters", "parametersJsonSchema")
    schema = next(inner[key] for key in keys if key in inner)
    return inner["name"], inner["description"], schema.get("json", schema)


SHAPES = {
    "anthropic": {"name", "description", "input_schema"},
    "openai": {"type", "function"},
    "openai-responses": {"type", "name", "description", "parameters", "strict"},
    "gemini": {"name", "description", "parametersJsonSchema"},
    "bedrock": {"toolSpec"},
    "mcp": {"name", "description", "inputSchema", "annotations"},
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_gets_its_own_form(desk, provider):
    desk.skill("demo")
    found = desk.tools.definitions(provider)
    assert [parts(item)[0] for item in found] == ["Skill", "ReadFile", "SkillSearch"]
    for item in found:
        assert set(item) == SHAPES[provider]
        _, _, schema = parts(item)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
    json.dumps(found)
    if provider == "openai":
        assert {item["type"] for item in found} == {"function"}
        assert set(found[0]["function"]) == {"name", "description", "parameters"}
    if provider == "openai-responses":
        assert {item["strict"] for item in found} == {False}
    if provider == "bedrock":
        assert set(found[0]["toolSpec"]) == {"name", "description", "inputSchema"}
        assert set(found[0]["toolSpec"]["inputSchema"]) == {"json"}
    if provider == "mcp":
        assert all(item["annotations"]["readOnlyHint"] for item in found)


def test_an_unknown_provider_is_refused(desk):
    with pytest.raises(InvalidInput, match="antropic") as caught:
        desk.tools.definitions("antropic")
    assert "Did you mean `anthropic`?" in caught.value.hint


@pytest.mark.req("A3")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_description_of_skill_lists_the_skills(desk, provider):
    desk.skill("code-review", description="Review code.")
    listing = parts(desk.tools.definitions(provider, catalogue=True)[0])[1]
    assert "code-review" in listing
    assert "Review code." in listing
    bare = parts(desk.tools.definitions(provider)[0])[1]
    assert "code-review" not in bare


@pytest.mark.req("D5")
def test_without_skills_there_are_no_tools_about_skills(desk):
    assert [parts(item)[0] for item in desk.tools.definitions()] == ["ReadFile"]
    desk.skill("people", disable_model_invocation=True)
    assert [parts(item)[0] for item in desk.tools.definitions()] == ["ReadFile"]
    desk.skill("demo")
    assert len(desk.tools.definitions()) == 3


@pytest.mark.req("B9")
def test_without_refresh_changes_are_seen_after_an_explicit_refresh(make_desk):
    desk = make_desk(refresh_on_call=False)
    desk.skill("one")
    desk.tools.definitions()
    desk.skill("two")
    assert desk.tools.change_notice() == ""
    desk.library.refresh()
    assert "two" in desk.tools.change_notice()


@pytest.mark.req("D6")
def test_definitions_are_the_same_bytes_in_any_process(desk, root):
    for name in ("b", "a", "c"):
        desk.skill(name, description=f"Text of {name} — 中文.")
    code = (
        "import json, sys\n"
        "from satchel import Satchel\n"
        "s = Satchel.for_project(sys.argv[1], trust='all', builtin=False, packaged=False)\n"
        "print(json.dumps(s.session().definitions(catalogue=True)))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, desk.project],
            check=True,
            capture_output=True,
            text=True,
            env={
                "PYTHONPATH": f"{root}/src",
                "PYTHONHASHSEED": seed,
                "HOME": desk.project,
                "LANG": lang,
            },
        ).stdout
        for seed, lang in (("1", "C.UTF-8"), ("2", "zh_CN.UTF-8"))
    }
    assert outputs == {json.dumps(desk.tools.definitions(catalogue=True)) + "\n"}
