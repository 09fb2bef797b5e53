"""The runner: queues calls from any thread and gives each a process of its own.

Nothing of a call outlives it. The changes of a call that may write to the workspace are listed when
its last process is gone (`proposal`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Literal

from satchel.i18n import Message
from satchel.runners.base import CannotStart, RunResult, is_cancelled
from satchel.runners.launcher import launcher
from satchel.runners.protocol import (
    exchange,
    run_script,
    script_result,
    to_result,
    too_much_written,
)
from satchel.runners.reply import request_line
from satchel.runners.sandbox import may_write, sandboxed_launch
from satchel.settings import load_settings

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, ProgramLimits, RunRequest, Tier
    from satchel.runners.launcher import RunningProgram
    from satchel.runners.proposal import WritableRun
    from satchel.settings import Settings

# --- the queue ----------------------------------------------------------------------------
# At most `slots` calls run; one skill has at most half of them, so that a skill that hangs leaves
# the other half free. A free slot goes to the call that waited longest and whose skill may have
# one more. A call that waits can be cancelled, and waits no longer than it asked to.

Refusal = Literal["timeout", "cancelled", "closed"]


_CANCEL_CHECK_S = 0.05
_END_WAIT_S = 5.0


class Ticket:
    """The place of one call in the queue."""

    def __init__(self, skill: str) -> None:
        self.skill = skill
        self.running = False
        self.waited = 0.0
        """Seconds."""


class CallQueue:
    """Gives turns to the threads of a host."""

    def __init__(self, slots: int) -> None:
        """Let at most `slots` calls run at once."""
        self.slots = max(1, slots)
        self._share = max(1, self.slots // 2)
        """Concurrent calls that one skill may have."""
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._waiting: list[Ticket] = []
        self._closed = False

    def enter(self, skill: str, wait: float, cancel: Cancel | None = None) -> Ticket | Refusal:
        """Wait for a turn; each ticket must be returned with `leave`."""
        ticket = Ticket(skill)
        came = time.monotonic()
        with self._changed:
            self._waiting.append(ticket)
            self._dispatch()
            try:
                while not ticket.running and not self._closed:
                    remaining = came + wait - time.monotonic()
                    if remaining <= 0:
                        return "timeout"
                    if cancel is not None and is_cancelled(cancel):
                        return "cancelled"
                    self._changed.wait(
                        remaining if cancel is None else min(remaining, _CANCEL_CHECK_S)
                    )
            except BaseException:  # an interrupt must not keep the place
                if ticket.running:
                    self._release(ticket)
                raise
            finally:
                if not ticket.running:
                    self._waiting.remove(ticket)
        ticket.waited = time.monotonic() - came
        return ticket if ticket.running else "closed"

    def leave(self, ticket: Ticket) -> None:
        """Return a turn."""
        with self._changed:
            self._release(ticket)

    def close(self) -> None:
        """Refuse every waiting call, and every later one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def counts(self) -> tuple[int, int]:
        """The number of running and of waiting calls."""
        with self._changed:
            return self._running.total(), len(self._waiting)

    def _release(self, ticket: Ticket) -> None:
        self._running[ticket.skill] -= 1
        if not self._running[ticket.skill]:
            del self._running[ticket.skill]
        self._dispatch()

    def _dispatch(self) -> None:
        """Assign free slots; the lock is held."""
        for ticket in list(self._waiting):
            if self._closed or self._running.total() >= self.slots:
                break
            if self._running[ticket.skill] < self._share:
                self._waiting.remove(ticket)
                self._running[ticket.skill] += 1
                ticket.running = True
        self._changed.notify_all()


class Pool:
    """Runs calls. One for a host, used by all its threads."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tier: Tier | None = None,
        processes: int = 0,
    ) -> None:
        """Set up; nothing is started yet.

        Args:
            settings: `tools.processes` and `sandbox`.
            tier: the sandbox of every program, instead of the settings.
            processes: number of concurrent calls, instead of the setting.
        """
        slots = processes or (settings.tools.processes if settings is not None else 0)
        self.slots = slots or max(4, 2 * (os.cpu_count() or 1))
        self._settings = settings
        self._tiers: dict[bool, Tier] = {} if tier is None else {True: tier, False: tier}
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Start over, without any process."""
        self._queue = CallQueue(self.slots)
        self._live: set[RunningProgram] = set()
        """Every process, for closing."""
        self._closed = False

    def run(self, request: RunRequest) -> RunResult:
        """Run one call. Never raises for what the program does.

        Raises:
            Unsandboxed: there is no sandbox, and the user did not agree to run without.
            Refused: the program would see too much.
        """
        tier = self._tiers.get(request.own)
        if tier is None:
            tier = self._choose(own=request.own)
        try:
            line = b"" if request.script is not None else request_line(request)
        except (ValueError, TypeError, RecursionError) as exc:
            detail = Message("the arguments are no JSON: {reason}", reason=str(exc))
            return RunResult(fault="cannot-start", detail=detail)
        wait = request.limits.timeout
        came = time.monotonic()
        ticket = self._queue.enter(request.skill, wait, request.cancel)
        if not isinstance(ticket, Ticket):
            waited = (time.monotonic() - came) * 1000
            refused = RunResult(tier=tier, waited_ms=waited)
            if ticket != "timeout":
                detail = Message("the call was taken back")
                return refused._replace(fault="cancelled", detail=detail)
            detail = Message(
                "its turn did not come within {seconds} s: {count} calls were running",
                seconds=f"{wait:g}",
                count=self._queue.counts()[0],
            )
            return refused._replace(fault="timeout", detail=detail)
        waited = ticket.waited * 1000
        run: WritableRun | None = None
        try:
            if tier != "none" and may_write(request.program, request.permissions):
                run = self._prepare(request, tier)
            result = self._run(request, line, tier, waited=waited, run=run)
        except CannotStart as exc:
            fault = RunResult(fault="cannot-start", detail=exc.args[0])
            result = fault._replace(tier=tier, waited_ms=waited)
        except BaseException:
            if run is not None:
                run.discard()
            raise
        finally:
            self._queue.leave(ticket)
        return result if run is None else _with_changes(result, run, request.limits)

    def close(self) -> None:
        """Kill every process. Running calls end with a fault, waiting calls are refused."""
        self._closed = True
        self._queue.close()
        for process in list(self._live):
            process.kill()

    def counts(self) -> dict[str, int]:
        """The number of running and waiting calls."""
        running, waiting = self._queue.counts()
        return {"running": running, "waiting": waiting}

    def _prepare(self, request: RunRequest, tier: Tier) -> WritableRun:
        from satchel.runners.proposal import WritableRun  # Linux only

        return WritableRun(request, tier, (self._settings or load_settings()).paths.state)

    def _run(
        self,
        request: RunRequest,
        line: bytes,
        tier: Tier,
        *,
        waited: float,
        run: WritableRun | None,
    ) -> RunResult:
        """Start the program, exchange one line with it or wait for a script, and close it."""
        began = time.monotonic()
        overlay = run.overlay if run is not None else None
        program, script = request.program, request.script
        if script is not None:
            program = program._replace(argv=(*program.argv, *script.args))
        launch = sandboxed_launch(
            program, request.permissions, request.limits, tier=tier, overlay=overlay
        )
        process = launcher().start(launch)
        self._live.add(process)
        try:
            if self._closed:
                process.kill()
            deadline = began + request.limits.timeout
            if script is None:
                exchanged = exchange(
                    process, line, request.limits, deadline=deadline, cancel=request.cancel
                )
                result = to_result(exchanged, request.limits, tier)
            else:
                stdin = script.stdin.encode("utf-8", "replace")
                exchanged = run_script(
                    process,
                    stdin,
                    request.limits,
                    deadline=deadline,
                    cancel=request.cancel,
                    live=script.live,
                )
                result = script_result(exchanged, tier)
        finally:
            if request.permissions.writable:
                # Its changes are listed next, when no process can write any more.
                process.kill()
                while (ended := process.wait(_END_WAIT_S)) is None:
                    pass
                if run is not None and ended.reason == "lost":
                    run.is_lost = True
            self._live.discard(process)
            process.close()
        ran = (time.monotonic() - began) * 1000
        return result._replace(waited_ms=waited, ran_ms=ran)

    def _choose(self, *, own: bool) -> Tier:
        from satchel.runners.tiers import choose_tier

        tier = choose_tier(self._settings or load_settings(), own=own)
        self._tiers[own] = tier
        return tier

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _with_changes(result: RunResult, run: WritableRun, limits: ProgramLimits) -> RunResult:
    """Add the list of changes to the result of a run whose last process is gone."""
    if run.is_lost:
        run.discard()
        lost = Message("its supervisor was killed, so that a process of it may be left")
        return result._replace(fault="crashed", detail=lost)
    try:
        changes = run.proposal(limits)
    except OSError as exc:
        run.discard()
        reason = Message("its changes cannot be read: {reason}", reason=exc.strerror or str(exc))
        return result._replace(fault="written", detail=reason)
    except BaseException:
        run.discard()
        raise
    if changes is None:
        run.discard()
        return result._replace(fault="written", detail=too_much_written(limits))
    return result._replace(changes=changes)


def _after_fork() -> None:
    for pool in list(_pools):
        pool.reset()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
