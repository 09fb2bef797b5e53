"""Every block of the documents has a use here, and their good and bad texts are judged so."""

from __future__ import annotations

import json
import re

import pytest

from satchel.authoring.check_skill import check_folder
from satchel.authoring.text_rules import find_message_fault

PROTOCOL = """\
import json

sent = json.loads(input())["arguments"]
asked = json.loads({asked!r})["arguments"]
print({answered!r} if asked.items() <= sent.items() else {failed!r})
"""
USES = {
    ("A", "<skill-name>/"): "shown: the layout, which test_coding_agent.py writes",
    ("A", "name: code-review"): "test_coding_agent.py: the skill",
    ("A", "class SkillMeta"): "test_coding_agent.py: the fields of the record",
    ("D", "啟動階段"): "shown: the order of the calls in test_news_agent.py",
    ("D", "reddit-explorer/"): "shown: the layout, which test_news_agent.py writes",
    ("D", "class SkillLoader"): "test_news_agent.py: the methods of the loader",
    ("D", "def run_skill"): "test_news_agent.py: runs",
    ("D", "SYSTEM_PROMPT"): "test_news_agent.py: runs",
    ("D", "get_subagent_prompt"): "test_news_agent.py: runs",
    ("D", "name: chinese-writing"): "test_news_agent.py: the skill",
    ("E", "internal/tool/skill/<name>/tool.go"): "not used: packaged skills are Python (E1)",
    ("E", "// cmd/omega/main.go"): "test_workbench_tools.py: the line at the start",
    ("E", "<workspace>/skills/"): "shown: the layout, which test_workbench_tools.py writes",
    ("E", "name: excel_read"): "test_workbench_tools.py: the manifest",
    ("E", '{"arguments": {"path": "data.xlsx"'): "here: the lines of the protocol",
    ("E", "import sys, json"): "test_workbench_tools.py: runs",
    ("E", "import * as readline"): "test_workbench_tools.py: runs",
    ("E", "package main"): "test_workbench_tools.py: is built and runs",
    ("E", "支持跨 Sheet 读取"): "here: a good description",
    ("E", "这个工具基于"): "here: bad descriptions",
    ("E", "① 是什么"): "shown: what the next block has examples of",
    ("E", "要读取的单元格区域"): "here: good descriptions of parameters",
    ("E", "← 没有格式说明"): "here: bad descriptions of parameters",
    ("E", "格式：<问题描述>"): "shown: what the next block has examples of",
    ("E", "Sheet 不存在"): "here: good errors",
    ("E", "runtime error"): "here: bad errors",
    (
        "E",
        "通过 SKILL_EXCEL_ENABLED=false",
    ): "test_workbench_tools.py: the line at the start",
}
"""A part of a block -> what it is used for."""


def test_every_block_has_a_use(documents):
    blocks = [block.text for letter in "ABCDE" for block in documents.blocks(letter)]
    assert sorted(documents.block(*row) for row in USES) == sorted(blocks)


@pytest.fixture
def judge(project, documents):
    """What `check` finds in the document's skill with one other text."""
    manifest = documents.block("E", "name: excel_read")
    about, parameter = re.findall(r'description: "(.+)"', manifest)[:2]

    def failing(*, description: str = about, path: str = parameter):
        text = manifest.replace(f'"{about}"', json.dumps(description, ensure_ascii=False))
        text = text.replace(f'"{parameter}"', json.dumps(path, ensure_ascii=False))
        if path.startswith("是否"):
            text = text.replace("type: string", "type: boolean", 1)
        program = documents.block("E", "import sys, json")
        project.write({"skills/excel/skill.yaml": text, "skills/excel/main.py": program})
        (report,) = check_folder(str(project.project / "skills/excel"))
        return {rule for rule in report.failed_codes if not rule.startswith("docs-")}

    return failing


def quoted(block: str) -> list[str]:
    """The quoted texts of a block, one at the beginning of each line; a text may have two lines."""
    return ["".join(text.split("\n ")) for text in re.findall(r'^"([^"]+)"', block, re.MULTILINE)]


@pytest.mark.req("E5", "E9")
def test_good_texts_pass_and_bad_ones_fail(documents, judge):
    usual = judge()
    good = documents.block("E", "支持跨 Sheet 读取").replace("\n", "")
    assert judge(description=good) == usual
    for text in quoted(documents.block("E", "这个工具基于")):
        assert judge(description=text) > usual, text
    for text in quoted(documents.block("E", "要读取的单元格区域")):
        assert judge(path=text) == usual, text
    for text in quoted(documents.block("E", "← 没有格式说明")):
        assert judge(path=text) > usual, text
    for text in quoted(documents.block("E", "Sheet 不存在")):
        assert not find_message_fault(text), text
    for text in quoted(documents.block("E", "runtime error")):
        assert find_message_fault(text), text


@pytest.mark.req("E4")
def test_the_lines_of_the_protocol_are_what_a_program_reads_and_writes(project, documents):
    lines = documents.block("E", '{"arguments": {"path": "data.xlsx"').split("\n")
    asked, answered, failed = (line for line in lines if line.startswith("{"))
    project.write({
        "skills/excel/skill.yaml": documents.block("E", "name: excel_read"),
        "skills/excel/main.py": PROTOCOL.format(asked=asked, answered=answered, failed=failed),
        "data.xlsx": "",
    })  # fmt: skip
    session = project.open(packaged=False).session()
    arguments = json.loads(asked)["arguments"]
    reply = session.call("excel_read", arguments)
    assert reply.data["output"] == json.loads(answered)["output"]
    wrong = session.call("excel_read", arguments | {"sheet": "Sheet2"})
    assert json.loads(failed)["error"] in wrong.text
