"""The record of the Excel skill keeps every rule that packaged skills have."""

from __future__ import annotations

import re

import jsonschema
import pytest

from satchel.tools.excel import skill

TOOLS = {tool.name: tool for tool in skill.tools}
FAILURES = sorted({one for tool in skill.tools for one in tool.failures})
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
@pytest.mark.parametrize(
    ("tool", "parameter"),
    [(tool, parameter) for tool in skill.tools for parameter in tool.parameters],
    ids=lambda one: one.name,
)
def test_a_parameter_says_what_it_is_what_holds_and_an_example(tool, parameter, language):
    text = parameter.description.to(language)
    example = "Example: " if language == "en" else "示例："
    assert example in text
    limits = r"required|default|at most" if language == "en" else r"必填|默认|最多|上限"
    assert re.search(limits, text.partition(example)[0])
    assert len(text.partition(example)[0]) >= 10
    assert text.partition(example)[2]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: one.id)
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_error_says_what_is_wrong_and_what_to_do(failure, language):
    told = failure.told(language)
    assert re.fullmatch(r"[^:]+: .+ — .+", told)
    assert failure.remedy.to(language)
    assert failure.trigger.to(language)
    assert not told.endswith((".", "。"))
    if language == "zh":
        assert re.search(r"[\u4e00-\u9fff]", failure.problem.zh)
        assert re.search(r"[\u4e00-\u9fff]", failure.remedy.zh)
        fields = re.findall(r"\{\w+\}", told)
        assert sorted(fields) == sorted(re.findall(r"\{\w+\}", failure.told("en")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_schemas_are_valid(language):
    for tool in skill.tools:
        schema = tool.schema(language)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(tool.example, schema)
        for scenario in skill.scenarios:
            if scenario.tool == tool.name:
                jsonschema.validate(scenario.arguments, schema)
