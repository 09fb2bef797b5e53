"""How is an SQLite file opened so that damage, a fork or a second writer does no harm?

Readers have a connection that is kept, and go on while somebody writes. A writer has its own, for
one transaction. A file that is missing or damaged reads as empty, and the next writer replaces it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from satchel.detect.index.base import Stamp

_OUTSIDE = frozenset((
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
))  # fmt: skip
"""Errors that say nothing about the file."""


class Database:
    """One SQLite file that may be thrown away."""

    def __init__(self, path: str, schema: Sequence[str], checks: Sequence[str]) -> None:
        """Name the file; nothing is opened yet.

        Args:
            path: The file.
            schema: What makes its tables.
            checks: Queries that fail on a file that is not ours or is damaged.
        """
        self._path = path
        self._schema = schema
        self._checks = checks
        self._lock = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._opened: tuple[int, ...] = ()
        self._openings = 0
        self._asked: tuple[int, ...] = ()
        self._damaged: tuple[int, ...] = ()
        self.damage = ""
        """What SQLite said when the file could last not be read."""

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query; none when the file is missing or damaged."""
        with self._lock:
            try:
                reader = self._open()
                return reader.execute(query, values).fetchall() if reader else []
            except sqlite3.Error as exc:
                self._note(exc)
                self._forget()
                return []

    def stamps(self, query: str, keys: Sequence[str] | None) -> dict[str, Stamp]:
        """Key -> stamp of all rows, or of those with these keys."""
        if keys is None:
            rows = self.ask(query)
        else:
            query = f"{query} AND key = ?"
            rows = [row for key in keys for row in self.ask(query, (packed_key(key),))]
        return {whole_key(data): (mtime, ctime, size) for data, mtime, ctime, size in rows}

    def numbers(self, keys: Sequence[str], living: str = "1") -> list[int]:
        """The numbers of the rows with these keys, of those for which `living` is so."""
        found: list[int] = []
        for at in range(0, len(keys), 500):
            part = [packed_key(key) for key in keys[at : at + 500]]
            marks = ",".join("?" * len(part))
            query = f"SELECT num FROM rows WHERE key IN ({marks}) AND {living}"  # noqa: S608 - marks
            found += [number for (number,) in self.ask(query, part)]
        return found

    @contextmanager
    def writing(self) -> Generator[tuple[sqlite3.Connection, bool]]:
        """A transaction, and whether the file is new; an exception takes it back.

        Raises:
            TimeoutError: another process is writing.
            OSError: it cannot be written.
        """
        try:
            writer, is_new = self._begin()
            try:
                yield writer, is_new
                if writer.in_transaction:
                    writer.execute("COMMIT")
            finally:
                writer.close()  # takes back what is not committed
        except sqlite3.Error as exc:
            self._note(exc)
            raise OSError(f"SQLite: {exc}") from exc

    def version(self) -> tuple[int, ...]:
        """Another value after every change by anybody; () when it cannot be read."""
        with self._lock:
            try:
                reader = self._open()
                if reader is None:
                    return ()
                # What SQLite counts is the changes that this very connection has not made.
                changes: int = reader.execute("PRAGMA data_version").fetchone()[0]
                return (*self._opened, self._openings, changes)
            except sqlite3.Error as exc:
                self._note(exc)
                self._forget()
                return ()

    def identity(self) -> tuple[int, ...]:
        """Which file it is; () when there is none."""
        try:
            info = os.stat(self._path)
        except OSError:
            return ()
        return info.st_dev, info.st_ino

    def is_sound(self) -> bool:
        """Whether the file is there, and could be read when it was last asked."""
        try:
            info = os.stat(self._path)
        except OSError:
            return False
        return (info.st_ino, info.st_mtime_ns) != self._damaged

    def is_another(self) -> bool:
        """Whether it is not the file that this was last asked about."""
        last, self._asked = self._asked, self.identity()
        return last != self._asked or not last

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._forget()

    def __del__(self) -> None:
        # Python 3.13 complains about connections that nobody closed.
        self._forget()

    def _open(self) -> sqlite3.Connection | None:
        """The connection for reading; a new one when the file is another or the process is."""
        try:
            info = os.stat(self._path)
        except OSError:
            self._forget()
            return None
        now = (os.getpid(), info.st_dev, info.st_ino)
        if self._reader is None or now != self._opened:
            self._forget()
            self._reader = _connect(self._path)
            self._opened = now
            self._openings += 1
        return self._reader

    def _forget(self) -> None:
        # A connection that a fork brought along is not ours to close.
        if self._reader is not None and self._opened[0] == os.getpid():
            with suppress(sqlite3.Error):
                self._reader.close()
        self._reader = None

    def _note(self, exc: sqlite3.Error) -> None:
        """Remember that this very file is damaged, or is not ours."""
        self.damage = str(exc)
        if _code(exc) in _OUTSIDE:
            return
        with suppress(OSError):
            info = os.stat(self._path)
            self._damaged = (info.st_ino, info.st_mtime_ns)

    def _begin(self) -> tuple[sqlite3.Connection, bool]:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        try:
            if self.is_sound() or not os.path.exists(self._path):
                return self._begin_once()
        except sqlite3.Error as exc:
            if _is_busy(exc):
                raise TimeoutError("another process is writing the index") from exc
            if _code(exc) in _OUTSIDE:
                raise
            self.damage = str(exc)
        self.close()
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(self._path + end)
        return self._begin_once()

    def _begin_once(self) -> tuple[sqlite3.Connection, bool]:
        writer = _connect(self._path)
        try:
            writer.execute("BEGIN IMMEDIATE")
            is_new = writer.execute("SELECT name FROM sqlite_master").fetchone() is None
            for statement in self._schema if is_new else ():
                writer.execute(statement)
            for query in self._checks:
                writer.execute(query).fetchone()
            return writer, is_new
        except BaseException:
            writer.close()
            raise


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        with suppress(sqlite3.OperationalError):  # somebody is busy with it, and has set it
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_busy(exc: sqlite3.Error) -> bool:
    return _code(exc) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(exc: sqlite3.Error) -> int:
    # Errors of the module itself have none.
    return getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def packed_key(key: str) -> bytes:
    """A key as it is kept: names of files need not be UTF-8."""
    return key.encode("utf-8", "surrogatepass")


def whole_key(data: bytes) -> str:
    """A kept key as it was."""
    return data.decode("utf-8", "surrogatepass")


def sound(text: str) -> str:
    """A text that can be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
