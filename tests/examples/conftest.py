"""Makes the example's package importable, and reaches its servers without a proxy."""

from __future__ import annotations

import os
import sys

import pytest

EXAMPLE = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "news_explorer"
)
sys.path.insert(0, os.path.abspath(EXAMPLE))


@pytest.fixture(autouse=True)
def _direct(monkeypatch, tmp_path):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
