"""People read messages in their language; models read English."""

from __future__ import annotations

import json
import re

import pytest

from satchel.testing import make_tool_skill

WANTS = (
    "timeout: 20\nparameters:\n"
    "  - {name: text, type: string, required: true, description: 'A text: a b'}\n"
)
PROGRAMS = {
    "raise SystemExit('no')": "以状态码 1 退出",
    "print('hello')": "写出了不是响应的内容：`hello`",
    "print('{\"ouput\": 1}')": "响应中的字段 `ouput` 有误",
    "print('{\"output\": 1}')": "`output` 是数字，而不是文本",
    "pass": "没有响应就结束了",
}


@pytest.fixture
def call(empty):
    def run(program: str, *words: str):
        place = empty.project / "skills"
        make_tool_skill(place, "words", program, tool="words_count", more=WANTS)
        assert empty.run("trust", "--yes").status == 0
        done = empty.run("try", "words_count", *words, SATCHEL_LANG="zh", COLUMNS="400")
        return next(line for line in done.err.splitlines() if line.startswith("错误："))

    return run


def _english(line: str) -> list[str]:
    """Its words that are neither code nor names of things."""
    return re.findall(r"[a-z]{3,}", re.sub(r"`[^`]*`|stderr", "", line))


@pytest.mark.parametrize("program", PROGRAMS)
def test_errors_are_shown_in_chinese(call, program):
    line = call(program, "--arg", "text=x")
    assert PROGRAMS[program] in line
    assert _english(line) == []


def test_wrong_arguments_are_reported_in_chinese(call):
    line = call("pass", "--json-args", '{"text": 5, "more": 1}')
    assert line == "错误：没有参数 `more`；`text` 必须是文本，不能是数字"


def test_the_model_reads_english(empty):
    empty.skill("skills/words", "---\nname: words\ndescription: Counts words\n---\nCount.\n")
    done = empty.run("show", "--as-model", "words", "--json", SATCHEL_LANG="zh")
    error = json.loads(done.out)["error"]
    assert error["message"] == "The skill `words` is not trusted yet"
    done = empty.run("show", "--as-model", "words", SATCHEL_LANG="zh", COLUMNS="400")
    assert "技能 `words`" in done.err
    assert _english(done.err.replace("satchel", "")) == []


def test_a_stored_failure_is_shown_in_the_language_of_its_reader(empty):
    (empty.project / "plan.yaml").write_text(
        "goal: Read\nsteps:\n  - {id: read, tool: ReadFile, arguments: {path: gone.md}}\n",
        encoding="utf-8",
    )
    done = empty.run("goal", "run", "plan.yaml", "--id", "g", "--allow-tools", "--json")
    assert json.loads(done.out)["reason"] == "Step `read`: There is no `gone.md`"
    done = empty.run("goal", "show", "g", SATCHEL_LANG="zh", COLUMNS="400")
    assert "步骤 `read`：`gone.md` 不存在" in done.out + done.err
    done = empty.run("goal", "show", "g", COLUMNS="400")
    assert "Check the path" in done.out + done.err
