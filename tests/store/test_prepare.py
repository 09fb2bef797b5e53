"""What changes in a skill.yaml is shown as its author writes it, never as Python does."""

from __future__ import annotations

import pytest

from satchel.store.prepare import _short


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (["TOKEN", "KEY"], "TOKEN, KEY"),
        ([], ""),
        (True, "true"),
        ({"read": ["path"]}, '{"read": ["path"]}'),
        (30, "30"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_value_on_one_line(value, shown):
    assert _short(value) == shown
