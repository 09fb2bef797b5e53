"""Escaping and colours of terminal output."""

from __future__ import annotations

import io
import json
import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.cli.console import Screen, clean, write_json

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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_data_is_untouched_in_a_pipe_and_harmless_on_a_terminal():
    pipe, terminal = io.StringIO(), _Terminal()
    Screen(pipe).data("a\x1b[2J\n")
    Screen(terminal).data("a\x1b[2J")
    assert pipe.getvalue() == "a\x1b[2J\n"
    assert terminal.getvalue() == "a␛[2J\n"


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


def test_in_a_narrow_terminal_a_mark_stands_before_its_name():
    stream = io.StringIO()
    screen = Screen(stream)
    screen.width = 30
    row = ["●", "a-name-of-28-characters-here", "x"]
    screen.table(["", "name", "about"], [row] * 12, [[]] * 12)
    assert stream.getvalue().splitlines()[:3] == ["   name", f"●  {row[1]}", "   x"]
