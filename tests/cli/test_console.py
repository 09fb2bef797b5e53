"""Escaping, width, wrapping and colours of terminal output."""

from __future__ import annotations

import io
import json
import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.cli.console import (
    Screen,
    clean,
    cut,
    pad,
    width_of,
    wrap,
    write_json,
)

HOSTILE = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\x08\x08b",
    "a\rb",
    "\u202egpj.exe",
    "\u2066x\u2069",
    "\x00",
    "\x7f",
    "a\u2028b",
    "\udc9b",
    "\U000e0041",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_commands_for_a_terminal_become_visible(text):
    shown = clean(text, keep="")
    assert shown.isprintable()
    assert shown != text
    assert len(shown) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "naïve café",
        "中文　全角空格",
        "👩\u200d💻",
        "می\u200cخواهم",
        "a\u00a0b",
        "line\nline\tx",
    ],
)
def test_honest_text_stays_as_it_is(text):
    assert clean(text) == text


@given(st.text())
def test_nothing_that_commands_a_terminal_survives(text):
    shown = clean(text, keep="")
    assert not set(shown) & {chr(code) for code in (*range(32), *range(127, 160))}
    assert not set(shown) & set(
        "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
    shown.encode()


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("中文", 4), ("e\u0301", 1), ("ｱ", 1), ("Ａ", 2)]
)
def test_width_is_counted_in_columns(text, width):
    assert width_of(text) == width
    assert width_of(pad(text, 10)) == 10


@pytest.mark.parametrize(
    "text", ["a long line of plain words", "中文写得自然准确有条理", "mixed 中文 words"]
)
@pytest.mark.parametrize("width", range(4, 30))
def test_cut_text_fits_and_says_that_it_was_cut(text, width):
    shown = cut(text, width)
    assert width_of(shown) <= width
    assert shown == text or shown.endswith("…")
    assert cut(text, 0) == text


@given(st.text(alphabet="ab c`中文，。", max_size=80), st.integers(10, 40))
def test_wrapped_text_loses_nothing_but_spaces(text, width):
    lines = wrap(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_wrapping_keeps_code_together():
    lines = wrap("then please run `satchel trust release-notes` and look", 32)
    assert lines == ["then please run", "`satchel trust release-notes`", "and look"]
    assert all(width_of(line) <= 11 for line in wrap("把中文写得自然、准确、有条理", 11))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "asked", "coloured"),
    [
        ({}, None, True),
        ({"NO_COLOR": "1"}, None, False),
        ({"NO_COLOR": "1"}, True, True),
        ({"TERM": "dumb"}, None, False),
        ({}, False, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(env, asked, coloured, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert Screen(_Terminal(), asked).colour is coloured
    assert Screen(io.StringIO(), asked).colour is (asked is True)


def test_data_is_untouched_in_a_pipe_and_harmless_on_a_terminal():
    pipe, terminal = io.StringIO(), _Terminal()
    Screen(pipe).data("a\x1b[2J\n")
    Screen(terminal).data("a\x1b[2J")
    assert pipe.getvalue() == "a\x1b[2J\n"
    assert terminal.getvalue() == "a␛[2J\n"


def test_colours_do_not_count_as_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    plain, coloured = io.StringIO(), io.StringIO()
    for stream, colour in ((plain, False), (coloured, True)):
        screen = Screen(stream, colour)
        screen.table(["", "name", "text"], [["●", "中文", "x" * 60]], [["green", "bold"]])
        screen.line("words " * 12, "dim", "  ", lead=[("▲ warning", "yellow"), (" ", "")])
    import re

    assert "\x1b[" in coloured.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue()) == plain.getvalue()
    assert all(width_of(line) <= 40 for line in plain.getvalue().splitlines())


def test_json_is_the_same_value_without_commands(capsys):
    value = {"text": "\x1b[31m\x9b\u202e\x7f中文\udc9b"}
    write_json(value)
    text = capsys.readouterr().out
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()


def test_a_terminal_that_does_not_know_its_width_has_80_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()  # a new one says 0
    with os.fdopen(ours, "wb"), os.fdopen(theirs, "w") as stream:
        assert os.get_terminal_size(theirs).columns == 0
        assert Screen(stream).width == 80


def test_a_narrow_table_cuts_no_name_and_takes_two_lines_a_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    rows = [["●", "a-very-long-name-of-a-skill", "", "user", "Does this and that"],
            ["●", "short", "", "global", "Does something else"]]  # fmt: skip
    Screen(stream).table(["", "name", "id", "source", "description"], rows, [[], []])
    assert stream.getvalue().splitlines() == [
        "   name                         source",
        "●  a-very-long-name-of-a-skill  user",
        "   Does this and that",
        "●  short                        global",
        "   Does something else",
    ]
