"""Line ends: a save changes only edited lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.presentation.drafts import with_line_ends

TEXTS = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\r", b"\0", b"\x0c"])).map(b"".join)


def sent(text: bytes) -> bytes:
    """As a browser sends it."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")


@given(TEXTS)
def test_an_unchanged_text_comes_back_byte_for_byte(before):
    assert with_line_ends(sent(before), before) == before


@given(TEXTS, TEXTS)
def test_a_changed_text_differs_from_what_was_typed_in_line_ends_only(text, before):
    assert sent(with_line_ends(text, before)) == sent(text)


@pytest.mark.parametrize(
    ("before", "typed", "after"),
    [
        (b"a\r\nb\r\n", b"a\nb\nc\n", b"a\r\nb\r\nc\r\n"),
        # Mixed: those that were there keep theirs, new ones get what most have.
        (b"a\nb\r\nc\n", b"a\nx\nb\nc\n", b"a\nx\nb\r\nc\n"),
        (b"a\nb\r\nc\n", b"a\nB\nc\n", b"a\nB\r\nc\n"),
        (b"a\nb\nbar\rdone\n", b"A\nb\nbar\ndone\nmore", b"A\nb\nbar\rdone\nmore"),
        (b"", b"a\r\nb", b"a\nb"),
    ],
)
def test_each_line_keeps_its_end(before, typed, after):
    assert with_line_ends(typed, before) == after


def test_a_text_with_very_many_lines_is_not_compared_line_by_line():
    before = b"head\r\n" + b"".join(b"%d\n" % at for at in range(20_000)) + b"end\r\n"
    after = with_line_ends(b"head\n" + b"new\n" * 20_000 + b"end\n", before)
    assert after == b"head\r\n" + b"new\n" * 20_000 + b"end\r\n"
