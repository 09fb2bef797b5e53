"""Translations are complete and consistent with the English."""

from __future__ import annotations

import ast
import copy
import functools
import json
import os
import pickle
import re
from string import Formatter
from typing import get_args

import pytest
from jinja2 import Environment, nodes

from satchel.authoring.checklist import RULES as CHECK_RULES
from satchel.authoring.checklist import SECTIONS
from satchel.detect.base import TEMPLATES, DetectorNote
from satchel.detect.match_reasons import REASON_TEMPLATES
from satchel.i18n import (
    LANGUAGES,
    Message,
    join_messages,
    pack_messages,
    render,
    say,
    table,
    unpack_messages,
)
from satchel.security import RULES
from satchel.settings import SETTINGS
from satchel.skill.fields import FIELDS
from satchel.skill.model import State
from satchel.skill.problems import PROBLEMS, Problem, Severity
from satchel.store.archive.rules import HINT, HINTS
from satchel.store.archive.rules import RULES as ARCHIVE_RULES
from satchel.tools.program_reply import FAULT_FIXES

SRC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "satchel")


def _parsed():
    for here, folders, files in os.walk(SRC):
        folders[:] = set(folders) - {"system_skills", "locale", "__pycache__"}
        for name in files:
            if name.endswith(".py"):
                with open(os.path.join(here, name), encoding="utf-8") as file:
                    yield ast.parse(file.read())


TAKERS = {"say": 0, "Message": 0, "_Wrong": 1}
"""What is given sentences, and as which argument."""


@functools.cache
def _in_sources() -> tuple[frozenset[str], frozenset[str]]:
    """Every literal that is passed to `say`, or to `Message` and said to people; every literal."""
    said, constants = set[str](), set[str]()
    for node in (node for tree in _parsed() for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            constants.add(node.value)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        people = [word.value for word in node.keywords if word.arg == "people"]
        given = [*people, *node.args[TAKERS.get(node.func.id, len(node.args)) :]]
        first = given[0] if given else None
        text = first.value if isinstance(first, ast.Constant) else None
        if isinstance(text, str) and re.sub(r"\{\w+\}|\W", "", text):
            said.add(text)
    return frozenset(said), frozenset(constants)


@functools.cache
def _said_in_templates() -> frozenset[str]:
    """Every literal that a page passes to `say`."""
    found: set[str] = set()
    folders = (os.path.join(SRC, one, "templates") for one in ("ui", "hub"))
    for here, _, files in (row for folder in folders for row in os.walk(folder)):
        for name in files:
            with open(os.path.join(here, name), encoding="utf-8") as file:
                tree = Environment().parse(file.read())
            for call in tree.find_all(nodes.Call):
                first = call.args[0] if call.args else None
                if isinstance(call.node, nodes.Name) and call.node.name == "say":
                    assert isinstance(first, nodes.Const), f"{name}:{call.lineno}: say() no text"
                    found.add(str(first.value))
    return frozenset(found)


def _sentences() -> set[str]:
    rules = {text for rule in PROBLEMS.values() for text in (rule.message, rule.fix)}
    settings = {setting.description for setting in SETTINGS}
    meanings = {field.meaning for field in FIELDS.values()}
    words = {*get_args(State), *get_args(Severity)}
    refusals = {*ARCHIVE_RULES.values(), *HINTS.values(), HINT}
    findings = {text for rule in RULES.values() for text in (rule.what, rule.fix)}
    boxes = {text for rule in CHECK_RULES.values() for text in (rule.demand, rule.fix) if text}
    boxes |= {*SECTIONS.values(), "Declaration", *REASON_TEMPLATES.values(), *TEMPLATES.values()}
    boxes |= {*FAULT_FIXES.values()}
    said = {*_in_sources()[0], *_said_in_templates()}
    return {*said, *rules, *settings, *meanings, *words, *refusals, *findings, *boxes}


def _names(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def _code(sentence: str) -> list[str]:
    return sorted(re.findall(r"`[^`]+`", sentence))


def test_every_sentence_is_translated():
    assert sorted(_sentences() - set(table("zh"))) == []


def test_no_translation_outlives_its_sentence():
    assert sorted(set(table("zh")) - _in_sources()[1] - _sentences()) == []


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
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "note"),
        ({"LANG": "C", "LC_MESSAGES": "zh_SG"}, "提示"),
        ({"LANG": "zh_TW.UTF-8"}, "note"),
        ({"SATCHEL_LANG": "zh-Hant"}, "note"),
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


FAILED = Message(
    "The tool `{tool}` failed: {fault}",
    tool="a {b}",
    fault=Message("its reply has a wrong field, `{name}`", name="x"),
)
STEP = Message("Go on without it. The user can repair it: {fix}", people="{fix}", fix="Mend it")


def test_a_message_is_english_and_is_rendered_for_its_reader(monkeypatch):
    assert FAILED == "The tool `a {b}` failed: its reply has a wrong field, `x`"
    assert (render(FAILED), render(STEP)) == (FAILED, "Mend it")
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    assert render(FAILED) == "工具 `a {b}` 失败：响应中的字段 `x` 有误"
    words = Message("name has {words}", words=["`a`", "`b`"])
    assert words == "name has `a`, `b`"
    assert render(join_messages((words, "", Message("its meaning is near")))) == (
        "名称中有 `a`、`b`；含义相近"
    )
    assert render(join_messages(())) == ""
    assert render("note") == "note"  # a text of a host or of a user


def test_a_message_survives_copies_and_json(monkeypatch):
    packed = json.loads(json.dumps(pack_messages({"message": FAILED, "notes": (STEP, "his own")})))
    assert (packed["message"], packed["notes"]) == (FAILED, [STEP, "his own"])
    found = unpack_messages(packed)
    other = {**packed, "message": "Something else", "said": {**packed["said"], "notes": 5}}
    assert unpack_messages(other) == {"message": "Something else", "notes": [STEP, "his own"]}
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    for one in (found["message"], copy.deepcopy(FAILED), pickle.loads(pickle.dumps(FAILED))):
        assert render(one) == render(FAILED) != FAILED
    assert list(map(render, found["notes"])) == ["Mend it", "his own"]
    note = pickle.loads(pickle.dumps(DetectorNote("both", name="a")))
    assert (note.code, render(note)) == ("both", render(DetectorNote("both", name="a")))


def test_problems_are_translated_with_their_phrases(monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    values = {"key": "description", "kind": "a number"}
    problem = Problem("description-not-text", values=values)
    wrong, _ = problem.for_model()
    assert "a number" in wrong
    assert "数字" in problem.message
    assert render(wrong) == problem.message
    # Words of a skill are not translated.
    mine = Problem("name-mismatch", values={"name": "active", "folder": "note"})
    assert "`active`" in mine.message
    assert "`note`" in mine.message


def test_an_unknown_sentence_is_shown_as_it_is(monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    assert say("There is no such sentence: {x}", x=1) == "There is no such sentence: 1"
    assert set(LANGUAGES) == {"en", "zh"}


def test_counts_are_written_with_separators():
    assert say("{count} skills", count=1863) == "1,863 skills"
