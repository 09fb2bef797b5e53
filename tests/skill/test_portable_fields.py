"""Frontmatter values that every YAML reader agrees on."""

from __future__ import annotations

import pytest

from satchel.errors import SkillBroken
from satchel.skill.published_format import portable_fields

HEAD = "name: a-skill\ndescription: What it does\n"


def read(more: str) -> dict:
    return portable_fields(f"---\n{HEAD}{more}---\n\nText\n".encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("true", True), ("FALSE", False), ("~", None), ("", None), ("010", 10),
        ("0o10", 8), ("0x1F", 31), ("1_000", "1_000"), ("1:30", "1:30"), ("1.10", 1.1),
        ("-2e3", -2000.0), ("2026-01-02", "2026-01-02"), ("'12'", "12"), ("'ä 漢'", "ä 漢"),
        ("[a, 1, [b]]", ["a", 1, ["b"]]), ("{x: 1, 2: y}", {"x": 1, "2": "y"}),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"), ("a --- b", "a --- b"),
    ],
)  # fmt: skip
def test_values_are_those_of_yaml_1_2(text, value):
    assert read(f"extra: {text}\n")["extra"] == value


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("extra: &a 1\nother: *a\n", "anchor"),
        ("extra: 1\nextra: 2\n", "repair"),
        ("extra: .inf\n", "repair"),
        ("extra: 1e999\n", "repair"),
        ("extra: a: b\n", "repair"),
        ("extra: !!str 1\n", "tag"),
        ("metadata: {a: 1}\n", "metadata"),
        ("metadata: text\n", "metadata"),
        ("allowed-tools: [Read]\n", "allowed-tools"),
        ("license: 2\n", "license"),
        (f"compatibility: {'x' * 501}\n", "compatibility"),
        ("? [a]\n: b\n", "repair"),
    ],
)
def test_values_that_readers_interpret_differently_are_refused(more, why):
    with pytest.raises(SkillBroken) as caught:
        read(more)
    assert why in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "head",
    [
        "name: A Skill\ndescription: x\n", "name: a--b\ndescription: x\n",
        f"name: {'a' * 65}\ndescription: x\n", "name: 12\ndescription: x\n", "description: x\n",
        "name: a\ndescription: ''\n", f"name: a\ndescription: {'x' * 1025}\n", "- a\n", "",
        b"# Text\n", b"\n---\nname: a\ndescription: b\n---\n", b"---\nname: \xff\n---\n",
    ],
)  # fmt: skip
def test_skills_against_the_published_format_are_refused(head):
    with pytest.raises(SkillBroken):
        portable_fields(head if isinstance(head, bytes) else f"---\n{head}---\n\nText\n".encode())


def test_a_byte_order_mark_and_windows_lines_change_nothing():
    data = b"\xef\xbb\xbf---\r\nname: a\r\ndescription: b\r\n---\r\n"
    assert portable_fields(data) == {"name": "a", "description": "b"}
