"""Frames: text from files cannot pose as Satchel's own."""

from __future__ import annotations

import pytest

from satchel.tools.framing import make_nonce


@pytest.mark.req("D2")
def test_a_nonce_that_is_in_the_text_is_not_used(monkeypatch):
    drawn = [b"\0" * 6, b"\1" * 6]
    monkeypatch.setattr("os.urandom", lambda count: drawn.pop(0))
    assert make_nonce("x" + "00" * 6) == "01" * 6
