"""Builds and runs the programs of tool skills; created at the first call."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from satchel.errors import BuildFailed
from satchel.library.readiness import save_build_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.runners.base import Cancel, Program, RunRequest, RunResult, Tier
    from satchel.runners.pool import Pool
    from satchel.runners.runtimes import Runtimes
    from satchel.settings import Settings
    from satchel.skill.manifest import ToolManifest
    from satchel.trace import Trace


_NO_NETWORK = re.compile(r"dial tcp|i/o timeout|lookup |connection re|TLS|proxy", re.IGNORECASE)


class ProgramRunner:
    """Runs programs on this machine, in a sandbox."""

    def __init__(
        self,
        settings: Settings,
        trace: Trace | None = None,
        progress: Callable[[str], None] | None = None,
        tier: Tier | None = None,
    ) -> None:
        self.progress = progress
        self._settings = settings
        self._trace = trace
        self._tier: Tier | None = tier
        self._lock = threading.Lock()
        self._runtimes: Runtimes | None = None
        self._runner: Pool | None = None

    def prepare(
        self,
        folder: str,
        manifest: ToolManifest,
        digest: str = "",
        *,
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
        own: bool = False,
    ) -> Program:
        """Build the program of a skill with its dependencies; see `Runtimes.prepare`."""
        runtimes = self._runtimes
        if runtimes is None:
            with self._lock:
                from satchel.runners.runtimes import Runtimes

                runtimes = self._runtimes = self._runtimes or Runtimes(
                    self._settings.paths.cache, settings=self._settings, tier=self._tier
                )
        cache = self._settings.paths.cache if digest else ""
        try:
            program = runtimes.prepare(
                folder,
                manifest,
                digest=digest,
                progress=self.progress,
                confirm=confirm,
                cancel=cancel,
                seconds=seconds,
                own=own,
            )
        except BuildFailed as exc:
            if not _NO_NETWORK.search(exc.message):  # it may be there the next time
                save_build_result(manifest, digest, cache, exc.message)
            raise
        save_build_result(manifest, digest, cache)
        return program

    def run(self, request: RunRequest) -> RunResult:
        """Run one call.

        Raises:
            Unsandboxed: there is no sandbox, and the user did not agree to run without.
            Refused: the program would see too much.
        """
        runner = self._runner
        if runner is None:
            with self._lock:
                from satchel.runners.pool import Pool

                runner = self._runner = self._runner or Pool(
                    self._settings, tier=self._tier, trace=self._trace
                )
        return runner.run(request)

    def close(self) -> None:
        """End all processes; a later call starts new ones."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
