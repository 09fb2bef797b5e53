"""Limits for the processes of one machine, in a file."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from satchel._fs import make_private
from satchel.goals.limits.base import MARGIN
from satchel.goals.limits.shared import FULL, SharedLimiter
from satchel.goals.write_ahead import write_ahead

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from satchel.goals.limits.base import Limit

_TABLES = """
CREATE TABLE IF NOT EXISTS starts (provider TEXT NOT NULL, turn TEXT PRIMARY KEY,
    at REAL NOT NULL, begun INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS starts_at ON starts (provider, at);
CREATE TABLE IF NOT EXISTS places (turn TEXT PRIMARY KEY, provider TEXT NOT NULL,
    until REAL NOT NULL, owner INTEGER NOT NULL, home TEXT NOT NULL);
"""
_LONG_AGO = 3600.0
"""Seconds after which a start is forgotten; one so far ahead is of a clock that was set back."""


class SqliteLimiter(SharedLimiter):
    """Limits that the processes of one machine keep together.

    Args:
        limits: Provider -> limit; `*` is for those without one.
        path: The file that they share.
        margin: Seconds that a window is longer than a second.
        lease: Seconds after which the place of a process that does not answer is free. One that
            is known to be dead loses it at once.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        path: str,
        *,
        margin: float = MARGIN,
        lease: float = 15.0,
    ) -> None:
        super().__init__(limits, lambda: _Ledger(path), margin=margin, lease=lease)


class _Ledger:
    """The file."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        make_private(path)
        self._file = sqlite3.connect(
            path, timeout=30, isolation_level=None, check_same_thread=False
        )
        # A power cut may take the last second with it: then nothing is under way either.
        write_ahead(self._file)
        self._file.execute("PRAGMA synchronous=OFF")
        self._file.executescript(_TABLES)
        columns = {row[1] for row in self._file.execute("PRAGMA table_info(places)")}
        if "home" not in columns:  # a file from before processes said where they are
            with suppress(sqlite3.OperationalError):  # another one was quicker
                self._file.execute("ALTER TABLE places ADD COLUMN home TEXT NOT NULL DEFAULT ''")
        self._home = home()

    @contextmanager
    def _alone(self) -> Generator[sqlite3.Connection]:
        """Nobody else writes meanwhile."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield self._file
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def take(self, provider: str, turn: str, limit: Limit, margin: float, lease: float) -> float:
        """Take a place and a time to begin."""
        with self._alone() as file:
            now = time.time()
            if limit.at_once is not None:
                taken = file.execute(
                    "SELECT turn, owner, home, until FROM places WHERE provider = ?", (provider,)
                ).fetchall()
                free = [
                    one
                    for one, owner, there, until in taken
                    if until < now or (there and there == self._home and _gone(owner))
                ]
                file.executemany("DELETE FROM places WHERE turn = ?", [(one,) for one in free])
                if len(taken) - len(free) >= limit.at_once:
                    return FULL
            left = self._plan(provider, turn, limit, margin, now)
            if limit.at_once is not None:
                file.execute(
                    "INSERT INTO places (turn, provider, until, owner, home)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (turn, provider, now + left + lease, os.getpid(), self._home),
                )
            return left

    def _plan(self, provider: str, turn: str, limit: Limit, margin: float, now: float) -> float:
        """When to begin: after those who began, and those who plan to."""
        count, window = limit.window
        if not count:
            return 0.0
        file = self._file
        file.execute(
            "DELETE FROM starts WHERE at < ? OR at > ?",
            (now - max(_LONG_AGO, window * 2), now + _LONG_AGO),
        )
        last = file.execute(
            "SELECT at FROM starts WHERE provider = ? ORDER BY at DESC LIMIT 1 OFFSET ?",
            (provider, count - 1),
        ).fetchone()
        begin = max(now, last[0] + window + margin) if last else now
        file.execute(
            "INSERT INTO starts VALUES (?, ?, ?, ?)", (provider, turn, begin, begin <= now)
        )
        return begin - now

    def begin(self, provider: str, turn: str, limit: Limit, margin: float) -> float:
        """Begin now, if enough time has passed."""
        count, window = limit.window
        with self._alone() as file:
            now = time.time()
            last = file.execute(
                "SELECT at FROM starts WHERE provider = ? AND begun AND turn != ?"
                " ORDER BY at DESC LIMIT 1 OFFSET ?",
                (provider, turn, count - 1),
            ).fetchone()
            begin = max(now, last[0] + window + margin) if last else now
            file.execute(
                "INSERT INTO starts VALUES (?, ?, ?, ?)"
                " ON CONFLICT (turn) DO UPDATE SET at = excluded.at, begun = excluded.begun",
                (provider, turn, begin, begin <= now),
            )
            return begin - now

    def renew(self, turns: Sequence[str], lease: float) -> None:
        """They are still under way."""
        until = time.time() + lease
        for turn in turns:
            self._file.execute(
                "UPDATE places SET until = max(until, ?) WHERE turn = ?", (until, turn)
            )

    def give_back(self, turn: str) -> None:
        """It is over, or was given up before it began."""
        with self._alone() as file:
            file.execute("DELETE FROM places WHERE turn = ?", (turn,))
            file.execute("DELETE FROM starts WHERE turn = ? AND NOT begun", (turn,))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def home() -> str:
    """Where a process has its number: the same number elsewhere is another process.

    Containers that share a folder number their processes each from 1, and cannot see those of the
    others. Empty when it cannot be told; then only the lease counts.
    """
    if sys.platform != "linux":
        return os.uname().nodename if os.name == "posix" else ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _gone(process: int) -> bool:
    """Whether a process that is numbered here is no more: its places are free at once."""
    if os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
