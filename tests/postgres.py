"""A real PostgreSQL on a free loopback port, for tests and benchmarks of what shares a database.

The server refuses to run as root; then an ordinary user runs it. It writes to the disk as it does
in earnest, unless it is told not to wait for it (`fsync=False`): only a machine that loses its
power would lose something by that, and no test takes its power.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Self

import pytest

from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = ("postgres", "nobody")
"""Who runs it when we are root."""
_WATCH = """
read -r word
[ "$word" = over ] && exit
number=$(head -n 1 "$1/data/postmaster.pid")
for signal in INT QUIT KILL; do
    for moment in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(cat "/proc/$number/comm")" = postgres ] || break 2
        [ "$moment" = 1 ] && kill -s "$signal" "$number"
        sleep 0.5
    done
done
rm -rf "$1"
"""
"""What a small process does that reads from us. It reads to the end when we are killed: then it
ends the server and removes its folder. No death signal: that comes when a thread of ours ends."""


class NoPostgres(Exception):
    """PostgreSQL is not installed here."""


def programs() -> str:
    """The folder that holds `initdb` and `postgres`.

    Raises:
        NoPostgres: there is none.
    """
    named = shutil.which("initdb")
    if named:
        return os.path.dirname(os.path.realpath(named))
    found = [
        folder
        for folder in glob.glob("/usr/lib/postgresql/*/bin")
        if os.path.exists(os.path.join(folder, "initdb"))
    ]
    if not found:
        raise NoPostgres("PostgreSQL is not installed: `apt-get install postgresql`")
    return max(found, key=lambda folder: float(folder.split("/")[-2]))


class Postgres:
    """A server with an empty cluster of its own; gone with everything in it when closed."""

    def __init__(self, *, fsync: bool = True) -> None:
        self._programs = programs()
        self._user: str | None = None
        if os.geteuid() == 0:
            known = {entry.pw_name for entry in pwd.getpwall()}
            self._user = next(user for user in USERS if user in known)
        # Beside the usual temporary files and not below a folder of root's: another user enters it.
        self.folder = tempfile.mkdtemp(prefix="satchel-pg-", dir=tempfile.gettempdir())
        self.data = os.path.join(self.folder, "data")
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", self.folder],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        try:
            self._run("initdb", "-D", self.data, "-U", "satchel", "-A", "trust", "-E", "UTF8",
                      "--locale=C", "--no-sync")  # fmt: skip
            with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as file:
                file.write(
                    f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nmax_connections = 200\n"
                    f"unix_socket_directories = ''\nfsync = {'on' if fsync else 'off'}\n"
                    "shared_buffers = 64MB\nlogging_collector = off\n"
                )
            self.start()
        except BaseException:
            self.close()
            raise

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [os.path.join(self._programs, program), *arguments],
            user=self._user, group=self._group(), extra_groups=[] if self._user else None,
            cwd=self.folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr or done.stdout}")

    def _group(self) -> int | None:
        return pwd.getpwnam(self._user).pw_gid if self._user else None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self._process = subprocess.Popen(
                [os.path.join(self._programs, "postgres"), "-D", self.data],
                user=self._user, group=self._group(), extra_groups=[] if self._user else None,
                cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self.folder, "log"), encoding="utf-8") as log_file:
                    raise RuntimeError(f"PostgreSQL does not start: {log_file.read()[-2000:]}")
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether it takes queries, and not only connections."""
        import psycopg

        try:
            with psycopg.connect(self.url("postgres"), connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def stop(self, *, kill: bool = False) -> None:
        """End it: at once but orderly, or as a power cut would."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        if kill:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(signal.SIGINT)  # fast: open sessions are ended
        process.wait(30)

    def restart(self, *, away: float = 0.0, kill: bool = False) -> None:
        """End it, be away for some seconds, and come back with the same data."""
        self.stop(kill=kill)
        time.sleep(away)
        self.start()

    def url(self, database: str) -> str:
        """How to reach a database of it."""
        return f"postgresql://satchel@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The address of a new, empty database."""
        import psycopg

        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def close(self) -> None:
        """End it and remove everything."""
        try:
            self.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            self._watcher.communicate(b"over\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests of a run; give every test a database of its own."""
    try:
        with Postgres(fsync=False) as running:
            yield running
    except NoPostgres as exc:
        pytest.skip(str(exc))
