"""Servers that all tests of goals share: one of each kind, started when the first test wants it."""

from __future__ import annotations

from postgres import postgres_server
from temporal_server import temporal_server

__all__ = ["postgres_server", "temporal_server"]
