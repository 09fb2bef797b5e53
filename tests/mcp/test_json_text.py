"""One entry of a JSON file is put and cut; every other word of the file stays where it was."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest

from satchel.integrations.mcp import json_text

ENTRY = {"command": "satchel", "args": ["mcp"]}
REMARK = re.compile(r"remark \d+")


def put(text: str) -> str:
    return json_text.put(text, "m", "satchel", ENTRY)


def drop(text: str) -> str:
    return json_text.drop(text, "m", "satchel")


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "m": {\n    "a": {"command": "x"} // about a\n  }\n}\n',
        '{\n  "m": {\n    "a": {"command": "x"}, // about a\n  }\n}\n',
        '{\n  "m": {\n    "a": 1 /* one\n    two */\n    // the end\n  }\n}\n',
        '{\n\t"m": {\n\t\t"a": [\n\t\t\t1\n\t\t]\n\t}\n}',
        '{"m": {"a": {"command": "x"}}}',
        '{"m":{"a":{"command":"x"}},"b":2}',
        '{ "m": { "a": 1 /* about a */ } }\n',
        '{"m": {"a": 1,}}',
        '{\r\n  "m": {\r\n    "a": {"command": "x"}\r\n  }\r\n}\r\n',
        '{\n  "z": 1,\n  "m": {"a": 1}\n}\n',
        '{\n  "m": {}\n}\n',
        '{"m": {}}',
    ],
)
def test_what_was_put_is_cut_again_to_the_byte(text):
    after = put(text)
    assert json_text.get(after, "m", "satchel") == ENTRY
    assert drop(after) == text
    assert put(after) == after


def test_a_remark_stays_with_what_it_is_about():
    after = put('{\n  "m": {\n    "a": {"command": "x"} // about a\n  }\n}\n')
    assert '"a": {"command": "x"}, // about a\n    "satchel": {' in after
    after = put('{"m": {"a": 1 /* about a */}}')
    assert after.startswith('{"m": {"a": 1 /* about a */, "satchel"')


def test_one_line_stays_one_line_and_compact_stays_compact():
    assert put('{"m": {"a": 1}}') == (
        '{"m": {"a": 1, "satchel": {"command": "satchel", "args": ["mcp"]}}}'
    )
    assert put('{"m":{"a":1}}') == ('{"m":{"a":1,"satchel":{"command":"satchel","args":["mcp"]}}}')
    assert put("{}") == '{"m": {"satchel": {"command": "satchel", "args": ["mcp"]}}}'
    assert put('{"m": {"satchel": {"command": "old"}}}').count("\n") == 0


def test_lines_end_as_they_did():
    after = put('{\r\n  "m": {\r\n    "a": 1\r\n  }\r\n}\r\n')
    assert after.count("\n") == after.count("\r\n") == 11


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            '{\n "m": {\n  "satchel": {"command":"s"},\n  // about b\n  "b": 1\n }\n}\n',
            '{\n "m": {\n  // about b\n  "b": 1\n }\n}\n',
        ),
        (
            '{\n "m": {\n  "b": 1, // about b\n  // another\n  "satchel": {"x":\n 1}\n }\n}\n',
            '{\n "m": {\n  "b": 1 // about b\n  // another\n }\n}\n',
        ),
        (
            '{\n "m": {\n  // ask Ann first\n  "satchel": {}\n }\n}\n',
            '{\n "m": {\n  // ask Ann first\n }\n}\n',
        ),
        (
            '{\n "m": {\n  "a": 1,\n  "satchel": {}, // ours\n  "b": 2\n }\n}\n',
            '{\n "m": {\n  "a": 1,\n   // ours\n  "b": 2\n }\n}\n',
        ),
        ('{"m": {"satchel": {}, /* b */ "b": {}}}', '{"m": {/* b */ "b": {}}}'),
        ('{"m": {"a": 1, "satchel": {}, "b": 2}}', '{"m": {"a": 1, "b": 2}}'),
        ('{"m": {"satchel": 1, "a": 1, "satchel": {}}}', '{"m": {"a": 1}}'),
        ('{"m": {\n  "a": 1,\n  "satchel": {}}}', '{"m": {\n  "a": 1\n  }}'),
        ('{"m": {"a": 1}}', '{"m": {"a": 1}}'),
        ("{}", "{}"),
    ],
)
def test_only_the_entry_its_comma_and_its_line_are_cut(text, wanted):
    assert drop(text) == wanted


def test_whatever_the_layout_no_remark_is_lost_or_moved():
    """Each order of members, commas, remarks and line ends that a generator thinks of."""
    chance = random.Random(6)
    fillers = ["", " ", "\n  ", " /* {n} */ ", " // {n}\n", "\n  // {n}\n  ", "\r\n"]
    count = itertools.count()

    def gap() -> str:
        return chance.choice(fillers).replace("{n}", f"remark {next(count)}")

    for _ in range(1500):
        names = chance.sample(["a", "b", "satchel", "c"], chance.randint(0, 4))
        parts = [f'{gap()}"{name}"{gap()}:{gap()}{{"x": [1]}}{gap()}' for name in names]
        comma = f",{gap()}" if parts and chance.random() < 0.3 else gap()
        text = f'{gap()}{{{gap()}"k": "// no"{gap()},{gap()}"m":{gap()}{{'
        text += ",".join(parts) + comma + f"}}{gap()}}}{gap()}"
        cut = drop(text)
        assert json_text.get(cut, "m", "satchel") is None
        inside = _remarks_of_the_entry(text)
        kept = [one for one in REMARK.findall(text) if one not in inside]
        assert REMARK.findall(cut) == kept, text
        after = put(cut)
        assert json_text.get(after, "m", "satchel") == ENTRY
        assert REMARK.findall(after) == REMARK.findall(cut), cut
        assert "".join(drop(after).split()) == "".join(cut.split()), (cut, after)


def _remarks_of_the_entry(text: str) -> list[str]:
    found = re.search(r'"satchel"(.*?)\[1\]\}', text, re.DOTALL)
    return REMARK.findall(found[1]) if found else []


def test_strict_json_stays_strict():
    text = json.dumps({"m": {"a": 1, "satchel": {}}, "z": []}, indent=2)
    assert json.loads(drop(text)) == {"m": {"a": 1}, "z": []}
    assert json.loads(put(drop(text)))["m"]["satchel"] == ENTRY


@pytest.mark.parametrize("text", ["[]", '{"m": []}', '{"m": {"satchel": {}} x', '{"m" {}}'])
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        drop(text)
