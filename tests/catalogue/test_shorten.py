from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.blocks import hostile
from satchel.catalogue.choose import sentence_ends, shorten
from satchel.catalogue.render import clean


def cut(text: str, limit: int) -> str:
    return shorten(text, limit, sentence_ends(text))


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("Reviews code.", 24, "Reviews code."),
        ("Reviews code. Use it before each merge.", 20, "Reviews code. …"),
        ("A. Reviews the code of a whole project.", 24, "A. Reviews the code of…"),
        ("Reads files, tables and pictures of any kind", 13, "Reads files…"),
        (
            "Works with tools, e.g. compilers and linters of all kinds",
            30,
            "Works with tools, e.g.…",
        ),
        ("审查代码的质量和风险给出可执行的修改建议", 10, "审查代码的质量和风…"),
        ("审查代码。给出可执行的修改建议和说明", 9, "审查代码。给出可…"),
        ("审查代码的质量。给出可执行的修改建议", 11, "审查代码的质量。 …"),
        ("https://example.com/a/very/long/address", 20, "https://example.com…"),
        ("Überprüft größere Änderungen", 20, "Überprüft größere…"),
        ("家族は👩\u200d💻と一緒", 5, "家族は…"),
        ("ที่นี่มีคนอยู่มากมาย", 6, "ที่…"),
    ],
)
def test_a_text_is_cut_where_a_reader_would(text, limit, short):
    assert cut(text, limit) == short


@given(hostile.map(clean), st.integers(3, 200))
def test_a_cut_text_is_a_beginning_within_the_limit(text, limit):
    short = cut(text, limit)
    assert len(short) <= limit
    if short != text:
        assert short.endswith("…")
        assert text.startswith(short[:-1].rstrip())
