"""Files that are no skills are read with the same bounds, and say where things stand."""

from __future__ import annotations

import pytest

from satchel.skill.document import Unreadable, read_document


def test_yaml_has_lines():
    document = read_document("a: 1\nb:\n  - x\n  - c: 2\n    c: 3\n", 100)
    assert document.value == {"a": 1, "b": ["x", {"c": 3}]}
    assert document.lines["b", 1] == 4
    assert document.lines["b", 1, "c"] == 5
    assert document.twice == [("b", 1, "c")]


def test_json_is_read_as_json():
    document = read_document('{"a": 1e3, "b": "\\ud83d\\ude00", "a": 2}', 100)
    assert document.value == {"a": 2, "b": "😀"}
    assert document.twice == [("a",)]


def test_a_flow_mapping_is_yaml():
    assert read_document("{a: yes, b: [1]}", 100).value == {"a": True, "b": [1]}
    assert read_document("", 100).value is None


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("a: &x 1\n", "it has an anchor", 1),
        ("\n[\n", "", 3),
        ('{"a": 1,\n "b": }', "Expecting value", 2),
        ("[1, 2, 3, 4]", "it has more than 3 values", 1),
    ],
)
def test_what_cannot_be_read_says_where(text, reason, line):
    with pytest.raises(Unreadable) as caught:
        read_document(text, 3)
    assert reason in str(caught.value)
    assert caught.value.line == line
