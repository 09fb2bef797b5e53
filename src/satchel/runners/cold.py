"""How one call runs in a process of its own: dressed, started, asked, gone.

The simplest runner, and what the others are measured against. It keeps nothing between calls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from satchel.runners.base import CannotStart, RunResult
from satchel.runners.exchange import exchange, result_of
from satchel.runners.launcher import launcher
from satchel.runners.reply import request_line

if TYPE_CHECKING:
    from satchel.runners.base import Launch, RunRequest, Starter, Tier


class ColdRunner:
    """Runs each call in a fresh process, in one tier."""

    def __init__(self, tier: Tier = "none", starter: Starter | None = None) -> None:
        self._tier: Tier = tier
        self._starter = starter if starter is not None else launcher()

    def run(self, request: RunRequest) -> RunResult:
        """Run one call. Never raises for what the program does."""
        from satchel.runners.sandbox import dress

        if request.powers.writable and self._tier != "none":
            from satchel.runners.guards import after, settle

            request, before = settle(request)
            launch = dress(request.program, request.powers, request.limits, self._tier)
            return after(before, run_once(self._starter, launch, request))
        launch = dress(request.program, request.powers, request.limits, self._tier)
        return run_once(self._starter, launch, request)

    def close(self) -> None:
        """Nothing is kept."""


def run_once(starter: Starter, launch: Launch, request: RunRequest) -> RunResult:
    """Start a program that is dressed already, ask it once, and see it gone."""
    limits = request.limits
    began = time.monotonic()
    failed = RunResult(fault="cannot-start", tier=launch.tier)
    try:
        line = request_line(request)
    except ValueError as error:
        return failed._replace(detail=f"the arguments are not JSON: {error}")
    try:
        process = starter.start(launch)
    except CannotStart as error:
        return failed._replace(detail=str(error))
    try:
        exchanged = exchange(process, line, limits, began + limits.timeout, request.cancel)
    finally:
        process.close()
    result = result_of(exchanged, limits, launch.tier, "cold")
    return result._replace(ran_ms=(time.monotonic() - began) * 1000)
