"""Every sentence for people has its Chinese, and the Chinese fits the English."""

from __future__ import annotations

import ast
import json
import os
import re
from string import Formatter
from typing import get_args

import pytest

from satchel._language import LANGUAGES, say, table
from satchel.authoring.rules import RULES as CHECK_RULES
from satchel.authoring.rules import SECTIONS
from satchel.cli.retelling import SENTENCES, retell, retell_reason
from satchel.security import RULES
from satchel.settings import SETTINGS
from satchel.skill.fields import FIELDS
from satchel.skill.model import State
from satchel.skill.problems import PROBLEMS, Problem, Severity
from satchel.store.archive.rules import HINT, HINTS
from satchel.store.archive.rules import RULES as ARCHIVE_RULES

SRC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "satchel")


def _trees(*left_out: str):
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
    return found


def _constants() -> set[str]:
    return {
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


def _texts() -> set[str]:
    """Every text outside the terminal, with `{}` for what is filled in."""
    found: set[str] = set()
    for tree in _trees("cli"):
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
                ]
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_sentences_for_models_are_those_that_tools_say():
    """One that no tool says any more would never be recognised."""
    texts = _texts()
    told = {re.sub(r"\{\w+\}", "{}", sentence) for sentence in SENTENCES}
    # The source writes "line" or "lines" as the number asks.
    told = {sentence.replace("1 line;", "{};").replace("{} lines;", "{};") for sentence in told}
    assert sorted(one for one in told if not any(one in text for text in texts)) == []


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
