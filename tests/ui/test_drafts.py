"""Line ends: a save keeps the usual line end of the file."""

from __future__ import annotations

import pytest

from satchel.presentation.drafts import encode_text


@pytest.mark.parametrize(
    ("before", "typed", "after"),
    [
        (b"a\r\nb\r\n", "a\r\nb\r\nc\r\n", b"a\r\nb\r\nc\r\n"),
        (b"a\nb\n", "a\r\nb\r\nc\r\n", b"a\nb\nc\n"),
        (b"\xef\xbb\xbfa\n", "b\r\n", b"\xef\xbb\xbfb\n"),
        (b"\xef\xbb\xbfa\nb\r\nc\n", "a\r\nb\r\nc\r\n", b"\xef\xbb\xbfa\nb\r\nc\n"),
        (b"a\nb\r\nc\n", "a\r\nB\r\nc\r\n", b"a\nB\nc\n"),
        (b"", "a\r\nb", b"a\nb"),
    ],
)
def test_a_file_keeps_its_line_ends_and_an_unchanged_one_all_its_bytes(before, typed, after):
    assert encode_text(typed, before) == after
