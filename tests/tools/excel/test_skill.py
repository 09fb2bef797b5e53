"""The record of the Excel skill keeps every rule that packaged skills have."""

from __future__ import annotations

import re

import jsonschema
import pytest

from satchel.tools.excel import skill

TOOLS = {tool.name: tool for tool in skill.tools}
LANGUAGES = ("en", "zh")


def test_the_skill_has_its_three_tools():
    assert list(TOOLS) == ["excel_info", "excel_read", "excel_write"]
    assert skill.switch == "SKILL_EXCEL_ENABLED"
    assert [name for name, tool in TOOLS.items() if tool.writes] == ["excel_write"]


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_description_begins_with_a_verb_and_has_its_limits(name, language):
    text = TOOLS[name].description.to(language)
    assert 20 <= len(text) <= 80
    verb = r"(List|Read|Write) " if language == "en" else r"(查看|读取|将)"
    assert re.match(verb, text)
    assert re.search(r"20 ?MB|1000", text)
    assert "openpyxl" not in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_schemas_are_valid(language):
    for tool in skill.tools:
        schema = tool.schema(language)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(tool.example, schema)
        for scenario in skill.scenarios:
            if scenario.tool == tool.name:
                jsonschema.validate(scenario.arguments, schema)
