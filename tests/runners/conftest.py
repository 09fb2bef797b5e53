"""Programs that fail on purpose, built once, and a look at what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from needs import go_cache, needs
from satchel.runners.launcher import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULTY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faulty")


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """How the faulty program is started, by runtime."""
    folder = tmp_path_factory.mktemp("faulty")
    c, go = str(folder / "in-c"), str(folder / "in-go")
    source = os.path.join(FAULTY, "program.c")
    subprocess.run([needs("cc"), "-O1", "-o", c, source], check=True, timeout=60)
    build = ["build", "-trimpath", "-ldflags=-s -w", "-o", go, os.path.join(FAULTY, "program.go")]
    subprocess.run(
        [needs("go"), *build],
        check=True,
        timeout=280,
        env={**os.environ, "CGO_ENABLED": "0", "GOCACHE": go_cache(), "GOTOOLCHAIN": "local"},
    )
    return {
        "python": (sys.executable, "-I", "-S", os.path.join(FAULTY, "program.py")),
        "node": (needs("node"), os.path.join(FAULTY, "program.js")),
        "go": (go,),
        "c": (c,),
    }


@pytest.fixture(scope="session")
def starter() -> Iterator[Launcher]:
    """One launcher for all tests that do not harm it."""
    launcher = Launcher()
    yield launcher
    launcher.close()


class Web(SimpleHTTPRequestHandler):
    """Serves a folder, and notes what is asked for."""

    def log_message(self, *_):
        self.server.asked.append(self.path)


@pytest.fixture
def web(tmp_path):
    """A server on the loopback: `folder`, `address`, and what was `asked`."""
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "hello").write_text("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Web, directory=str(folder)))
    server.folder, server.asked = folder, []
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
