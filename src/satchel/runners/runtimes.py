"""Turns a skill's folder into a program that can be started.

`Runtimes.prepare` is called before every run. With the same digest of the folder it returns the
same program; otherwise the runtime of the manifest builds what is missing. Builds are in the cache,
not in the skill's folder, which must not change.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import BuildFailed
from satchel.i18n import say
from satchel.runners import go, node, python
from satchel.runners.base import Program
from satchel.runners.build import BuildCache, digest_files, list_files, read_inside, stamp
from satchel.runners.build import digest as _digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.runners.base import Cancel, Tier
    from satchel.settings import Settings
    from satchel.skill.manifest import ToolManifest


def _prepare_binary(folder: str, entry: str) -> Program:
    """The program of a prebuilt binary.

    Raises:
        BuildFailed: it is not executable.
    """
    path = os.path.join(folder, *entry.split("/"))
    if not os.access(path, os.X_OK):
        raise BuildFailed(
            say("`{entry}` may not be executed", entry=entry),
            say("Run `{command}`", command=f"chmod +x {path}"),
        )
    return Program(argv=(path,), folder=folder, runtime="binary")


class _PreparedProgram(NamedTuple):
    """A program, and what must be unchanged for it to be valid."""

    program: Program
    digest: str
    """Of the skill's folder."""
    depends_on: tuple[tuple[str, tuple[int, int, int, int]], ...]


class Runtimes:
    """Turns tool skills into programs.

    Args:
        cache: Satchel's cache folder; builds are below `runtimes` there.
        env: The environment to find tools in; the process's own when None.
        settings: Settings of the sandbox for builds; loaded when None.
        tier: The sandbox of every build, instead of the settings.
    """

    def __init__(
        self,
        cache: str,
        env: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        tier: Tier | None = None,
    ) -> None:
        self._folder = os.path.join(cache, "runtimes") if cache else ""
        self._env = env
        self._settings = settings
        self._tier: Tier | None = tier
        self._kept: dict[tuple[str, str, str], _PreparedProgram] = {}

    def prepare(
        self,
        folder: str,
        manifest: ToolManifest,
        *,
        digest: str = "",
        progress: Callable[[str], None] | None = None,
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
        own: bool = False,
    ) -> Program:
        """The program of a skill, built when necessary.

        Args:
            folder: The skill's folder.
            manifest: Its `skill.yaml`.
            digest: The verified digest of the folder; computed when empty.
            progress: Called with one line at every stage of a build.
            confirm: Called after the folder was read and before anything of it is kept; raises when
                the folder has changed since it was verified.
            cancel: Becomes readable when the build is cancelled.
            seconds: Maximum duration; 0 for each tool's own limit only.
            own: Whether the skill is the user's own: with the setting `sandbox = own` it may be
                built without a sandbox.

        Raises:
            Unsandboxed: it must be built, and there is no sandbox for that.
            MissingRuntime: a required Python, Node or Go is missing.
            BuildFailed: dependencies are not available, or it does not build.
            BuildStopped: it was cancelled, or took too long.
        """
        folder = os.path.abspath(folder)
        place = (folder, manifest.runtime, manifest.entry)
        try:
            digest = digest or digest_files(folder, list_files(folder))
        except OSError as exc:
            raise BuildFailed(
                say("`{path}` cannot be read: {reason}", path=folder, reason=exc.strerror)
            ) from exc
        kept = self._kept.get(place)
        if (
            kept is not None
            and kept.digest == digest
            and all(stamp(path) == seen for path, seen in kept.depends_on)
        ):
            return kept.program
        builds = BuildCache(
            self._folder,
            self._env,
            choose=partial(self._choose, own=own),
            confirm=confirm,
            cancel=cancel,
            seconds=seconds,
        )
        try:
            program, depends_on = _prepare(
                builds, folder, manifest, progress or (lambda _line: None)
            )
        except OSError as exc:
            raise BuildFailed(
                say(
                    "`{path}` cannot be used: {reason}",
                    path=exc.filename or self._folder,
                    reason=exc.strerror or str(exc),
                ),
                say("Check the permissions"),
            ) from exc
        program = program._replace(key=_digest(*program, digest))
        if confirm is not None:
            confirm()
        seen = tuple((path, stamp(path)) for path in depends_on)
        self._kept[place] = _PreparedProgram(program, digest, seen)
        return program

    def _choose(self, *, own: bool) -> Tier:
        from satchel.runners.tiers import choose_tier
        from satchel.settings import load_settings

        return self._tier or choose_tier(self._settings or load_settings(), own=own)


def _prepare(
    builds: BuildCache, folder: str, manifest: ToolManifest, progress: Callable[[str], None]
) -> tuple[Program, tuple[str, ...]]:
    if read_inside(folder, manifest.entry, only=0) is None:
        raise BuildFailed(
            say("There is no `{path}`", path=manifest.entry),
            say("Add the file, or correct the path"),
        )
    if manifest.runtime == "python":
        return python.prepare(builds, folder, manifest.entry, progress)
    if manifest.runtime == "node":
        found = node.find_node(builds, manifest.entry)
        packages = node.install(builds, found, folder, progress)
        copy = node.adapt(builds, found, folder, manifest.entry, packages)
        return node.prepare(found, folder, manifest.entry, packages, copy)
    if manifest.runtime == "go":
        return go.prepare(builds, folder, manifest.entry, progress)
    return _prepare_binary(folder, manifest.entry), ()
