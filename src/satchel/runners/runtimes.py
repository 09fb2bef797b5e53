"""Turns a skill's folder into a program that can be started.

`Runtimes.prepare` is called before every run. With the same digest of the folder it returns the
same program; otherwise the runtime builds what is missing. Builds are in the
cache, not in the skill's folder, which must not change.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import BuildFailed, Changed, MissingRuntime
from satchel.i18n import say
from satchel.runners import go, npm_packages, python
from satchel.runners.base import Program
from satchel.runners.build import BuildCache, digest_files, list_files, read_inside, stamp
from satchel.runners.build import digest as _digest
from satchel.runners.node import find_node
from satchel.runners.node_program import copy_typescript, make_program
from satchel.runners.script_packages import node_dependencies
from satchel.runners.scripts import ScriptPlan, check_executable, plan_script
from satchel.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.runners.base import Cancel, Tier
    from satchel.settings import Settings
    from satchel.skill.manifest import ToolManifest


def _prepare_binary(folder: str, entry: str) -> Program:
    """Make the program of a prebuilt binary.

    Raises:
        BuildFailed: it is not executable.
    """
    return Program(argv=(check_executable(folder, entry),), folder=folder, runtime="binary")


class _PreparedProgram(NamedTuple):
    """A program, and what must be unchanged for it to be valid."""

    program: Program
    digest: str
    """Of the skill's folder."""
    stamps: tuple[tuple[str, tuple[int, int, int, int]], ...]
    """Of the files that it depends on, by path."""

    def is_valid(self, digest: str) -> bool:
        """Whether the folder has this digest, and the files have not changed."""
        if self.digest != digest:
            return False
        return all(stamp(path) == known_stamp for path, known_stamp in self.stamps)


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
        self._prepared: dict[tuple[object, ...], _PreparedProgram] = {}

    def prepare(
        self,
        folder: str,
        source: ToolManifest | ScriptPlan,
        *,
        digest: str = "",
        progress: Callable[[str], None] | None = None,
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
        own: bool = False,
    ) -> Program:
        """Make the program of a tool skill or of a script, and build what is necessary.

        Args:
            folder: The skill's folder.
            source: Its `skill.yaml`, or the plan of a script: exactly the packages that this names,
                and that the user has seen, are installed.
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
            Changed: a script or its packages are no longer what the plan states.
        """
        folder = os.path.abspath(folder)
        if isinstance(source, ScriptPlan):
            cache_key = (folder, *source)
        else:
            cache_key = (folder, source.runtime, source.entry)
        try:
            digest = digest or digest_files(folder, list_files(folder))
        except OSError as exc:
            raise BuildFailed(
                say("`{path}` cannot be read: {reason}", path=folder, reason=exc.strerror)
            ) from exc
        prepared = self._prepared.get(cache_key)
        if prepared is not None and prepared.is_valid(digest):
            return prepared.program
        builds = BuildCache(
            self._folder,
            self._env,
            choose=partial(self._choose_tier, own=own),
            confirm=confirm,
            cancel=cancel,
            seconds=seconds,
        )
        try:
            show: Callable[[str], None] = progress or (lambda _line: None)
            if isinstance(source, ScriptPlan):
                program, depends_on = _prepare_script(builds, folder, source, show)
            else:
                program, depends_on = _prepare_tool(builds, folder, source, show)
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
        stamps = tuple((path, stamp(path)) for path in depends_on)
        self._prepared[cache_key] = _PreparedProgram(program, digest, stamps)
        return program

    def is_built(self, folder: str, plan: ScriptPlan) -> bool:
        """Whether everything that a plan would install is in the cache."""
        if not plan.packages:
            return True
        builds = BuildCache(self._folder, self._env, choose=self._choose_tier)
        if plan.interpreter == "node":
            return npm_packages.is_built(
                builds, *node_dependencies(folder, plan.packages, plan.file)
            )
        return python.is_built(builds, "\n".join(plan.packages))

    def _choose_tier(self, *, own: bool = False) -> Tier:
        from satchel.runners.tiers import choose_tier

        return self._tier or choose_tier(self._settings or load_settings(), own=own)


def _prepare_tool(
    builds: BuildCache, folder: str, manifest: ToolManifest, progress: Callable[[str], None]
) -> tuple[Program, tuple[str, ...]]:
    """Make the program of a tool skill; return it with the files that it depends on."""
    if read_inside(folder, manifest.entry, first_bytes=0) is None:
        raise BuildFailed(
            say("There is no `{path}`", path=manifest.entry),
            say("Add the file, or correct the path"),
        )
    if manifest.runtime == "python":
        return python.prepare(builds, folder, manifest.entry, progress)
    if manifest.runtime == "node":
        node_runtime = find_node(builds, manifest.entry)
        packages = npm_packages.install_packages(builds, node_runtime, folder, progress)
        copy = copy_typescript(builds, node_runtime, folder, manifest.entry, packages=packages)
        return make_program(node_runtime, folder, manifest.entry, packages=packages, copy=copy)
    if manifest.runtime == "go":
        return go.prepare(builds, folder, manifest.entry, progress)
    return _prepare_binary(folder, manifest.entry), ()


def _prepare_script(
    builds: BuildCache, folder: str, plan: ScriptPlan, progress: Callable[[str], None]
) -> tuple[Program, tuple[str, ...]]:
    """Make the program of a script; return it with the files that it depends on."""
    if plan_script(folder, plan.path) != plan:
        raise Changed(
            say("`{path}` or its packages have changed", path=plan.path), say("Try again")
        )
    name = os.path.basename(folder)
    if plan.interpreter == "executable":
        return _prepare_binary(folder, plan.path), ()
    if plan.interpreter == "node":
        node_runtime = find_node(builds, plan.path)
        package, lock = node_dependencies(folder, plan.packages, plan.file)
        packages = npm_packages.npm_install(
            builds, node_runtime, name, package=package, lock=lock, progress=progress
        )
        copy = copy_typescript(builds, node_runtime, folder, plan.path, packages=packages)
        program, depends_on = make_program(
            node_runtime, folder, plan.path, packages=packages, copy=copy
        )
        return program._replace(path=(os.path.dirname(node_runtime.path),)), depends_on
    home = python.environment(builds, "\n".join(plan.packages), name, progress)
    command = plan.interpreter
    if command != "python":
        command = builds.which(command) or ""
    if not command:
        raise MissingRuntime(
            say("`{name}` is not installed", name=plan.interpreter),
            say("Install it, or run the skill on another machine"),
        )
    script = os.path.join(folder, *plan.path.split("/"))
    program = python.script_program(folder, home, (command, *plan.flags, script))
    return program, (program.argv[0],)
