"""Builds and runs the programs of tool skills; created at the first call."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from satchel.errors import BuildFailed, Unsandboxed
from satchel.library.readiness import save_build_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.runners.base import Cancel, LiveOutput, Program, RunRequest, RunResult, Tier
    from satchel.runners.pool import Pool
    from satchel.runners.runtimes import Runtimes
    from satchel.runners.scripts import ScriptPlan
    from satchel.settings import Settings
    from satchel.skill.manifest import ToolManifest


_NO_NETWORK = re.compile(
    r"dial tcp|i/o timeout|no such host|connection (?:refused|reset)|proxyconnect tcp|TLS handshake"
)
"""What the downloader of Go says; a compile error may well be about a `proxy` or a `lookup`."""


class ProgramRunner:
    """Runs the programs of tool skills on this machine, in a sandbox."""

    def __init__(
        self,
        settings: Settings,
        progress: Callable[[str], None] | None = None,
        tier: Tier | None = None,
    ) -> None:
        self.progress = progress
        self.live: LiveOutput | None = None
        """Gets the output of scripts without secrets while they run."""
        self.tried: set[str] = set()
        """Digests of the skills whose first build was tried."""
        self._settings = settings
        self._tier: Tier | None = tier
        self._lock = threading.Lock()
        self._runtimes: Runtimes | None = None
        self._runner: Pool | None = None

    @property
    def runtimes(self) -> Runtimes:
        """What builds programs; created at the first use."""
        runtimes = self._runtimes
        if runtimes is None:
            with self._lock:
                from satchel.runners.runtimes import Runtimes

                runtimes = self._runtimes = self._runtimes or Runtimes(
                    self._settings.paths.cache, settings=self._settings, tier=self._tier
                )
        return runtimes

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
        cache = self._settings.paths.cache if digest else ""
        try:
            program = self.runtimes.prepare(
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

    def writes_directly(self, is_own: Callable[[], bool]) -> bool:
        """Whether a program that may write does so at once, because it runs without a sandbox.

        Args:
            is_own: Whether the skill is the user's own; called only where that matters.
        """
        if self._tier is not None or self._settings.sandbox != "own":
            return self._tier == "none" or self._settings.sandbox == "off"
        from satchel.runners.tiers import choose_tier

        try:
            return choose_tier(self._settings, own=is_own()) == "none"
        except Unsandboxed:
            return False  # it will be refused

    def prepare_script(
        self,
        folder: str,
        plan: ScriptPlan,
        digest: str = "",
        *,
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
        own: bool = False,
    ) -> Program:
        """Install the packages of a script's plan; see `Runtimes.prepare`."""
        return self.runtimes.prepare(
            folder,
            plan,
            digest=digest,
            progress=self.progress,
            confirm=confirm,
            cancel=cancel,
            seconds=seconds,
            own=own,
        )

    def is_built(self, folder: str, plan: ScriptPlan) -> bool:
        """Whether a script runs without installing anything first."""
        return self.runtimes.is_built(folder, plan)

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

                runner = self._runner = self._runner or Pool(self._settings, tier=self._tier)
        return runner.run(request)

    def close(self) -> None:
        """End all processes; a later call starts new ones."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
