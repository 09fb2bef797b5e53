"""The project for tests of sessions."""

from __future__ import annotations

from talking import talks

__all__ = ["talks"]  # a fixture
