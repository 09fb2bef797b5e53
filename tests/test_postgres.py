"""The server for tests ends with those who use it, however they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from postgres import NoPostgres, programs

TESTS = os.path.dirname(os.path.abspath(__file__))
TEST = """
import os, threading
from postgres import Postgres

def test_it():
    server = Postgres(fsync=False)
    again = threading.Thread(target=server.restart)
    again.start()
    again.join()  # a server that a thread began, which is over
    assert server.answers()
    line = f"{server.folder} {server._process.pid}\\n"
    os.write(int(os.environ["TELL"]), line.encode())
    threading.Event().wait()
"""


def runs(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.soak
@pytest.mark.timeout(60)
def test_it_ends_when_pytest_is_killed(tmp_path):
    try:
        programs()
    except NoPostgres as exc:
        pytest.skip(str(exc))
    (tmp_path / "test_it.py").write_text(TEST)
    reading, writing = os.pipe()
    pytest_run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": TESTS, "TELL": str(writing)},
        cwd=tmp_path, pass_fds=[writing], stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        folder, pid = told.readline().split()
    assert runs(int(pid))
    pytest_run.kill()
    pytest_run.wait()
    deadline = time.monotonic() + 20
    while (runs(int(pid)) or os.path.exists(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not runs(int(pid))
    assert not os.path.exists(folder)
