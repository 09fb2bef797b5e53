"""The real `satchel ui` in a process of its own, and the real Chromium that looks at it.

with UiServer(project, home) as server, browser() as chromium:
    page = chromium.new_page()
    page.goto(server.link())
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from satchel.testing import make_skill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from playwright.sync_api import Browser, ViewportSize

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATIENCE = 25.0
"""Seconds till a server must have printed its link, on a busy machine."""
WINDOW: ViewportSize = {"width": 1280, "height": 800}


class UiServer:
    """`satchel ui` for one project; each link that it prints opens one session."""

    def __init__(self, project: Any, home: Any, **env: str) -> None:
        """Start it.

        Args:
            project: The folder it is started in.
            home: `HOME` and, in it, `SATCHEL_HOME`.
            env: What else its environment has.
        """
        self.project, self.home = str(project), str(home)
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": self.home,
            "VIRTUAL_ENV": os.path.join(self.home, "none"),  # no packages with skills
            "SATCHEL_HOME": os.path.join(self.home, ".satchel"),
            "PYTHONPATH": os.path.join(ROOT, "src"),
            "PYTHONUTF8": "1",
            "SATCHEL_LANG": "en",
            "SATCHEL_BUILTIN": "true",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **env,
        }
        self._links: queue.Queue[str] = queue.Queue()
        self._said: list[str] = []
        self._process = self.start("ui", "--no-browser", "--port", "0")
        for stream, heard in (
            (self._process.stdout, self._links.put),
            (self._process.stderr, self._said.append),
        ):
            threading.Thread(target=_listen, args=(stream, heard), daemon=True).start()
        self._next = self.link()
        parts = urlsplit(self._next)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self._links.put(self._next)

    def link(self) -> str:
        """A link that opens one session; the server prints another once it is used."""
        try:
            return self._links.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no link; stderr: {self.said}") from None

    @property
    def said(self) -> str:
        """What it wrote for people."""
        return "\n".join(self._said)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command in the same project, as the same person."""
        return subprocess.Popen(
            [sys.executable, "-m", "satchel", *words],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def run(self, *words: str) -> str:
        """What a command prints; it must end well."""
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"satchel {' '.join(words)}: {err}"
        return out

    def close(self) -> None:
        """End it as a person would."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def browser(program: str | None = None) -> Iterator[Browser]:
    """Debian's Chromium; nothing is fetched.

    Without its toolbar, where that package is there: each window then costs a quarter. In its
    thread no loop of asyncio can be run meanwhile: use another thread for that.
    """
    program = program or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        raise RuntimeError("there is no `chromium` here")
    options = [
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--force-color-profile=srgb",
        "--enable-features=OverlayScrollbar",  # the same pictures with and without much to scroll
    ]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # its sandbox refuses to run as root
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=options)
        try:
            yield chromium
        finally:
            chromium.close()


class House(NamedTuple):
    """A project with a server of its own."""

    server: UiServer
    project: Any
    home: Any

    @property
    def base(self) -> str:
        return self.server.base

    def skill(self, name: str, description: str = "Does things. Use when asked.", **more: Any):
        """Write a skill of the user's into the project, behind the server's back."""
        more.setdefault("body", "# Do it\n\nDo it well.\n")
        return make_skill(self.skills, name, description=description, **more)

    @property
    def skills(self) -> Any:
        """Where the project's skills live."""
        return self.project / ".agents" / "skills"


def open_house(base: Any, **env: str) -> House:
    """A server in a new project below `base`; what is in `base` already stays."""
    project, home = base / "project", base / "home"
    project.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    return House(UiServer(project, home, **env), project, home)


def _listen(stream: Any, heard: Any) -> None:
    try:
        for line in stream:
            heard(line.rstrip("\n"))
    except ValueError:  # closed
        pass
