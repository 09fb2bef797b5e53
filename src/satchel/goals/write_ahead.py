"""How do several processes share one SQLite file from their first moment on?

With a write-ahead log who reads does not stop who writes. To switch to it takes a lock that SQLite
does not wait for when somebody else is writing, whatever its time limit says: of two workers that
begin together one would fail.
"""

from __future__ import annotations

import sqlite3
import time

WAIT = 30.0
"""Seconds to wait for whoever writes."""
_PAUSE = 0.02
_KIND = 0xFF
"""The part of SQLite's error codes that says what it is about."""


def write_ahead(connection: sqlite3.Connection, seconds: float = WAIT) -> None:
    """Switch the file of a connection to a write-ahead log, once nobody writes.

    Raises:
        sqlite3.OperationalError: somebody writes all the time, or it cannot be done.
    """
    give_up = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            busy = exc.sqlite_errorcode & _KIND in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE)
        else:
            return
