"""Every sentence for people has its Chinese, and the Chinese fits the English."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
from string import Formatter
from typing import get_args

import pytest
from jinja2 import Environment, nodes

from satchel._language import LANGUAGES, say, table
from satchel.authoring.rules import RULES as CHECK_RULES
from satchel.authoring.rules import SECTIONS
from satchel.retelling import SENTENCES, retell, retell_reason
from satchel.security import RULES
from satchel.settings import SETTINGS
from satchel.skill.fields import FIELDS
from satchel.skill.model import State
from satchel.skill.problems import PROBLEMS, Problem, Severity
from satchel.store.archive.rules import HINT, HINTS
from satchel.store.archive.rules import RULES as ARCHIVE_RULES

SRC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "satchel")


@functools.cache
def _trees(*left_out: str) -> list[ast.Module]:
    return list(_parsed(*left_out))


def _parsed(*left_out: str):
    for here, folders, files in os.walk(SRC):
        folders[:] = set(folders) - {"system_skills", "locale", "__pycache__", *left_out}
        for name in files:
            if name.endswith(".py"):
                with open(os.path.join(here, name), encoding="utf-8") as file:
                    yield ast.parse(file.read())


def _said() -> set[str]:
    """Every literal that is passed to `say`."""
    found: set[str] = set()
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id == "say" and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found | _said_in_templates()


@functools.cache
def _said_in_templates() -> frozenset[str]:
    """Every literal that a page passes to `say`."""
    found: set[str] = set()
    for here, _, files in os.walk(os.path.join(SRC, "ui", "templates")):
        for name in files:
            with open(os.path.join(here, name), encoding="utf-8") as file:
                tree = Environment().parse(file.read())
            for call in tree.find_all(nodes.Call):
                first = call.args[0] if call.args else None
                if isinstance(call.node, nodes.Name) and call.node.name == "say":
                    assert isinstance(first, nodes.Const), f"{name}:{call.lineno}: say() no text"
                    found.add(str(first.value))
    return frozenset(found)


def _constants() -> set[str]:
    return {*_said_in_templates()} | {
        node.value
        for tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _sentences() -> set[str]:
    rules = {text for rule in PROBLEMS.values() for text in (rule.message, rule.fix)}
    settings = {setting.description for setting in SETTINGS}
    meanings = {field.meaning for field in FIELDS.values()}
    words = {*get_args(State), *get_args(Severity)}
    refusals = {*ARCHIVE_RULES.values(), *HINTS.values(), HINT}
    findings = {
        text
        for name, rule in RULES.items()
        if not name.startswith("yara:")  # somebody's own, which another test brought
        for text in (rule.what, rule.why, rule.fix)
    }
    boxes = {
        text for rule in CHECK_RULES.values() for text in (rule.demand, rule.message, rule.fix)
    }
    boxes |= {*SECTIONS.values(), "Declaration"}
    return {*_said(), *rules, *settings, *meanings, *words, *refusals, *findings, *boxes}


def _names(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def _code(sentence: str) -> list[str]:
    return sorted(re.findall(r"`[^`]+`", sentence))


def test_every_sentence_is_translated():
    assert sorted(_sentences() - set(table("zh"))) == []


def test_no_translation_outlives_its_sentence():
    assert sorted(set(table("zh")) - _constants() - _sentences()) == []


def test_translations_keep_the_fields():
    filled = {sentence for sentence in table("zh") if "{" in sentence}
    wrong = {one: table("zh")[one] for one in filled if _names(one) != _names(table("zh")[one])}
    assert wrong == {}


def test_translations_keep_the_code_words():
    wrong = {one: other for one, other in table("zh").items() if _code(one) != _code(other)}
    assert wrong == {}


def test_the_table_is_sorted_and_says_nothing_twice():
    with open(os.path.join(SRC, "locale", "zh.json"), encoding="utf-8") as file:
        pairs = json.load(file, object_pairs_hook=list)
    keys = [key for key, _ in pairs]
    assert keys == sorted(set(keys))
    assert all(value.strip() for _, value in pairs)


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({}, "note"),
        ({"LANG": "en_GB.UTF-8"}, "note"),
        ({"LANG": "zh_CN.UTF-8"}, "提示"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "note"),
        ({"LANG": "C", "LC_MESSAGES": "zh_TW"}, "提示"),
        ({"LANG": "de_DE", "SATCHEL_LANG": "zh"}, "提示"),
        ({"LANG": "zh_CN", "SATCHEL_LANG": "en"}, "note"),
    ],
)
def test_the_language_follows_the_reader(variables, word, monkeypatch):
    for name in ("SATCHEL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert say("note") == word


def test_what_tools_say_is_told_to_people_in_chinese(monkeypatch):
    assert sorted(set(SENTENCES.values()) - set(table("zh"))) == []
    wrong = [told for told, said in SENTENCES.items() if not _names(said) <= _names(told)]
    assert wrong == []
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    assert retell("There is no `a {b}`.md`") == "`a {b}`.md` 不存在"
    assert retell("Ask the user to change its permissions") == "请修改它的权限"
    assert retell_reason("name has `a`; description has `b`") == "名称中有 `a`；描述中有 `b`"
    assert retell("Something new") == "Something new"


def _shape(node: ast.expr) -> str:
    """A text of the source, with `{}` for what is filled in; nothing for what is no text."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_shape(part) if isinstance(part, ast.Constant) else "{}"
                       for part in node.values)  # fmt: skip
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def _texts() -> set[str]:
    """Every text outside the terminal, with `{}` for what is filled in."""
    nodes = (node for tree in _trees("cli") for node in ast.walk(tree))
    return {_shape(node) for node in nodes if isinstance(node, ast.expr)}


def _parts(sentence: str) -> list[str]:
    """What stands between its fields."""
    return [part for part in re.split(r"\{[^{}]*\}", sentence) if re.search(r"[a-z]{2}", part)]


def test_sentences_for_models_are_those_that_tools_say():
    """One that no tool says any more would never be recognised."""
    texts = "\n".join(_texts())
    counted = {told: told.replace("1 line;", "{count} line;") for told in SENTENCES}
    lost = {
        told: part
        for told, plain in counted.items()
        for part in _parts(plain)
        if not _stands(part, texts)
    }
    assert lost == {}


def _stands(part: str, texts: str) -> bool:
    """Whether the source has it, whole or in two pieces that are put together."""
    words = part.split(" ")
    pairs = ((" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words)))
    return part in texts or any(one in texts and other in texts for one, other in pairs)


RETOLD = (
    "tools/engine.py", "tools/file_parameters.py", "tools/parameters.py", "tools/script_tool.py",
    "tools/script_tools.py", "tools/secrets.py", "runners/exchange.py", "runners/reply.py",
    "runners/pool.py", "runners/launcher.py", "runners/plain.py",
    "runners/_child.py",
)  # fmt: skip
"""Whose sentences the terminal shows when a call fails."""
FOR_MODELS = {
    "Use it when", "Not for",  # descriptions of tools
    '<tool-output tool="{}" skill="{}"{}>', "{}\n{}{}</tool-output>", ' kind="{}"',  # frames
    "The answer is longer: {} cut after {}. Ask for less at once to see the rest.",
    "Values of secrets were replaced by their names.",
    "(very large number)", "({})",  # in an echo of the arguments
    "[secret {}]", "failed {}", "{}\n… [{} bytes were dropped] …\n{}",  # marks
    "ulimit -c 0; ulimit -f {}; ulimit -n {}; ", 'exec "$@"',
}  # fmt: skip
"""What is in these files and is no sentence for a person."""


def _messages(path: str) -> set[str]:
    """The texts of a file that are neither for readers of the source nor translated there."""
    with open(os.path.join(SRC, path), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        name = node.func if isinstance(node, ast.Call) else None
        if isinstance(name, ast.Name) and name.id in ("say", "cast"):
            return
        if isinstance(name, ast.Attribute) and name.attr == "compile":
            return  # a pattern
        if isinstance(node, ast.expr) and (shape := _shape(node)):
            if re.search(r"[a-z]{2}", shape) and " " in shape.strip():
                found.add(shape)
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found - FOR_MODELS


@pytest.mark.parametrize("path", RETOLD)
def test_everything_that_a_failed_call_says_is_retold(path):
    """A new sentence of these modules needs a line in `retelling/calls.py`."""
    new = [
        text
        for text in sorted(_messages(path))
        if not any(_in_order(_parts(text), told) for told in SENTENCES)
    ]
    assert new == []


def _in_order(parts: list[str], told: str) -> bool:
    """Whether a sentence has these parts, one after the other."""
    told = re.sub(r"\{\w+\}", "{}", told)
    at = 0
    for part in parts:
        at = told.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


SAID = {
    "There is no parameter `x`; `text` is missing": "没有参数 `x`；缺少 `text`",
    "`text` must be a text, not a number; `n` must be at most 5": (
        "`text` 必须是文本，不能是数字；`n` 不能大于 5"
    ),
    "`text` has 12 characters; at most 10 are taken; `n` is missing": (
        "`text` 有 12 个字符，最多接受 10 个；缺少 `n`"
    ),
    "`text` is empty": "`text` 为空",
    "The parameters are `text`, `path`": "可用的参数：`text`, `path`",
    "The arguments are a list, not an object": "参数是列表，而不是对象",
    "The tool `t` failed: its program took too long and was ended (there was no reply within 1 s; "
    "it had written nothing)": (
        "工具 `t` 失败：程序超时，已被终止（1 秒内没有响应；尚未写出任何内容）"
    ),
    "The tool `t` failed: its program failed (it exited with status 1 without a reply)": (
        "工具 `t` 失败：程序出错退出（没有响应，以状态码 1 退出）"
    ),
    "The tool `t` failed: its program crashed (it was ended by SIGXFSZ (a file grew past its "
    "limit) without a reply)": (
        "工具 `t` 失败：程序崩溃（没有响应，被 SIGXFSZ（文件超过大小上限） 终止）"
    ),
    "The tool `t` failed: its program's answer is not JSON (it wrote something that is not its "
    "reply: `a (b)`; send it to stderr)": (
        "工具 `t` 失败：程序的响应不是 JSON（写出了不是响应的内容：`a (b)`；请改写到 stderr）"
    ),
    "The tool `t` failed: its program crashed": "工具 `t` 失败：程序崩溃",
    "The tool `t` needs a secret. Not set: `A`": "工具 `t` 需要密钥。未设置：`A`",
    "Only a person can change that (Put `A=…` into `s.env`, or set `A` in the environment). Tell "
    "the user": "请把 `A=…` 写入 `s.env`，或在环境变量中设置 `A`",
    "There is no such file: a.txt — Call ReadFile on its folder to see what is there": (
        "文件不存在: a.txt — 请检查路径；它相对于项目文件夹"
    ),
    "exit-code (it exited with status 1 without a reply): ValueError: x (y)": (
        "exit-code（没有响应，以状态码 1 退出）：ValueError: x (y)"
    ),
    "Something new (with a remark)": "Something new (with a remark)",
    "Something new; and something else": "Something new; and something else",
}


@pytest.mark.parametrize("told", SAID)
def test_a_failed_call_is_told_in_chinese(told, monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    assert retell(told) == SAID[told]


def test_a_broken_skill_is_told_in_chinese_down_to_its_problem(monkeypatch):
    problem = Problem("tool-not-yaml", line=9, values={"reason": "it is binary"})
    wrong, fix = problem.for_model()
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    said = retell(f"The skill of the tool `t` cannot be read: line 9: {wrong}")
    assert said == f"无法读取工具 `t` 所属的技能：第 9 行：{problem.message}"
    assert problem.message != wrong
    assert retell(f"Go on without it. The user can repair it: {fix}") == problem.fix


def test_a_file_that_cannot_be_used_is_told_in_the_readers_language(monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "en")
    assert retell("路径超出工作区: ../a — 请使用相对工作区的路径") == (
        "The path leads outside the project: ../a — Give a path relative to the project"
    )
    assert retell("The file cannot be read: a — Ask the user to check its permissions") == (
        "The file cannot be read: a — Check its permissions"
    )


def test_problems_speak_chinese_down_to_their_phrases(monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    problem = Problem("description-not-text", values={"kind": "a number"})
    assert "a number" not in problem.message
    assert "数字" in problem.message
    late = Problem("no-frontmatter", values={"found": "it comes only at line 7"})
    assert "它到第 7 行才出现" in late.message
    mark = Problem("repaired-value", values={"key": "a", "why": "it begins with `@`"})
    assert "以 `@` 开头" in mark.message
    # Words of a skill are not ours to translate.
    mine = Problem("name-mismatch", values={"name": "active", "folder": "note"})
    assert "`active`" in mine.message
    assert "`note`" in mine.message


def test_an_unknown_sentence_is_shown_as_it_is(monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    assert say("There is no such sentence: {x}", x=1) == "There is no such sentence: 1"
    assert set(LANGUAGES) == {"en", "zh"}
