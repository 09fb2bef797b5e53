"""One table of a TOML file is put and cut; every other word of the file stays where it was."""

from __future__ import annotations

import tomllib

import pytest

from satchel.integrations.mcp import toml_text

ENTRY = {"command": "satchel", "args": ["mcp"]}


def put(text: str) -> str:
    return toml_text.put(text, "m", "satchel", ENTRY)


def drop(text: str) -> str:
    return toml_text.drop(text, "m", "satchel")


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\n",
        "# only words\n",
        'x = """\n[m.satchel]\ncommand = "no"\n"""\n',
        "x = '''\n[m.satchel]\n'''\n\n[y]\nz = [\n  [1],\n  [2], # [m.satchel]\n]\n",
        'x = """a\\"""" # "\n[b]\n',
        'm.a.command = "x"\n',
        "a = 1\r\n[b]\r\nc = 2\r\n",
        '[[profiles]]\nname = "[m.satchel]"\n',
    ],
)
def test_what_was_put_is_cut_again_to_the_byte(text):
    after = put(text)
    assert tomllib.loads(after)["m"]["satchel"] == ENTRY
    assert drop(after) == text
    assert put(after) == after
    assert drop(text) == text


def test_lines_end_as_they_did():
    after = put("a = 1\r\n[b]\r\nc = 2\r\n")
    assert after.count("\n") == after.count("\r\n") == 7


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[m.satchel]\na = 1\n# at the end\n", "# at the end\n"),
        ("[m.satchel]\na = 1\n\n# about b\n[b]\n", "# about b\n[b]\n"),
        ("# about it\n[m.satchel]\na = 1\n[b]\n", "# about it\n[b]\n"),
        ("x = 1\n\n[m.satchel]\na = 1\n\n[b]\n", "x = 1\n\n[b]\n"),
        ('[m.satchel]\na = """\n[z]\n"""\nb = 2\n[c]\n', "[c]\n"),
        ('[ m . "satchel" ]\na = 1\n[[c]]\n', "[[c]]\n"),
        ("[m.satchel]\na = 1\n[b]\nc = 1\n[m.satchel.env]\nK = 1\n", "[b]\nc = 1\n"),
        ("[m.satchel]\na = 1\n# mine\n[m.satchel.env]\nK = 1\n", "# mine\n"),
        ("[m]\n[m.satchel]\na = 1\n[m.satchels]\na = 2", "[m]\n[m.satchels]\na = 2"),
    ],
)
def test_only_the_tables_of_the_entry_are_cut(text, wanted):
    assert drop(text) == wanted


@pytest.mark.parametrize(
    "text", ["[m]\nsatchel = {a = 1}\n", "m.satchel.a = 1\n", "[m]\nsatchel.a = 1\n", "a ="]
)
def test_what_cannot_be_cut_is_refused(text):
    with pytest.raises(ValueError, match=r"not (written as|TOML)"):
        drop(text)


def test_what_says_the_same_already_is_left_as_it_is_written():
    text = '[m]\nsatchel = {command = "satchel", args = ["mcp"]} # short\n'
    assert put(text) == text
