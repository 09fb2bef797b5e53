"""A program that fails on purpose, built once, and a launcher."""

from __future__ import annotations

import os
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from needs import needs
from prepared import write_skill
from satchel.runners.launcher import Launcher
from satchel.tools.base import CancelToken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FAULTY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faulty")


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the faulty program."""
    program = str(tmp_path_factory.mktemp("faulty") / "program")
    source = os.path.join(FAULTY, "program.c")
    subprocess.run([needs("cc"), "-O1", "-o", program, source], check=True, timeout=60)
    return program


@pytest.fixture(scope="session")
def starter() -> Iterator[Launcher]:
    """One launcher for all tests that do not harm it."""
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(params=["bwrap", "landlock"])
def tier(request: pytest.FixtureRequest) -> str:
    """Each tier of the sandbox in turn."""
    if request.param == "bwrap":
        needs("bwrap")
    return request.param


@pytest.fixture
def skill(tmp_path: Path) -> Callable[..., str]:
    """Write a skill's folder; give its path."""
    return partial(write_skill, str(tmp_path / "thing"))


@pytest.fixture
def cancel() -> Iterator[CancelToken]:
    """Takes a call back."""
    made = CancelToken()
    yield made
    made.close()


class Web(ThreadingHTTPServer):
    """Serves a folder on the loopback, and records what is asked for."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):  # noqa: A002 - the base class names it so
        assert isinstance(self.server, Web)
        self.server.asked.append(self.path)


@pytest.fixture
def web(tmp_path):
    """A server: `folder`, `address`, and what was `asked`."""
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "hello").write_text("")
    server = Web(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
