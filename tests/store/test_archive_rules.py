"""Which names pass, and that those of real skills do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import Unsafe
from satchel.store.archive.rules import RULES, TreeNames, check_path

GOOD = [
    "SKILL.md",
    "references/API (v2), notes + more.md",
    "a.b.c/.hidden",
    "...a",
    "größe/日本語.md",
    "⚠️ read me.md",
    "conx/nullify.md",
    "console/com.md",
    "a~1",
    "-rf",
    "'quoted'",
    "&{$}#@!%^=;[x]",
    "d/" * 64 + "x",
    "a" * 255,
]


@pytest.mark.parametrize("path", GOOD)
def test_ordinary_names_pass(path):
    check_path(path)


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        ("a", "a", "duplicate-name"),
        ("a", "A", "case-conflict"),
        ("a/b", "A/c", "case-conflict"),
        ("a", "A/b", "case-conflict"),
        ("a/b", "a", "file-and-folder"),
        ("straße", "STRASSE", "case-conflict"),
        ("ﬁle", "file", "case-conflict"),
        ("\u212bngstrom", "\u00e5ngstrom", "case-conflict"),
        ("⚠️.md", "⚠.md", "case-conflict"),
        ("\u1e9e", "ss", "case-conflict"),
    ],
)
def test_two_names_that_some_system_takes_for_one(first, second, rule):
    for pair in ((first, second), (second, first)):
        names = TreeNames()
        names.add(pair[0])
        with pytest.raises(Unsafe) as caught:
            names.add(pair[1])
        assert caught.value.rule == rule


@given(st.text(max_size=40))
def test_any_text_passes_or_is_refused(text):
    rule = ""
    try:
        check_path(text)
    except Unsafe as exc:
        rule = exc.rule
    plain = "\\" not in text and not {"", ".", ".."} & set(text.split("/"))
    assert rule in RULES or (plain and (text.isprintable() or not text.isascii()))
