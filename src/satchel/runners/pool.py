"""The runner: queues calls from any thread and gives each a process, in one of two ways.

    cold   a process for this call only
    warm   a process that was kept from an earlier call (`workers`), where the skill declares it

Nothing of a call that may write to the workspace outlives it: such a call is always cold, and the
workspace is checked after its last process is gone. A call whose arguments name files is cold too:
the next one may not see them.

A worker belongs to one program with the same permissions and limits: when any of these changes (a
file, a secret), it is ended. Workers are ended after `MAX_IDLE_S` without a call, and
at most `MAX_IDLE_PER_SLOT` per slot are kept.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Literal

from satchel.i18n import Message
from satchel.runners.base import RunResult, is_cancelled
from satchel.runners.launcher import CannotStart, launcher
from satchel.runners.protocol import exchange, to_result
from satchel.runners.reply import request_line
from satchel.runners.sandbox import sandboxed_launch
from satchel.runners.workspace_guard import restore_protected, snapshot_protected

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, ProgramLimits, RunRequest, Tier
    from satchel.runners.launcher import LaunchedProcess as Process
    from satchel.runners.protocol import ExchangeResult
    from satchel.settings import Settings
    from satchel.trace import Trace

# --- the queue ----------------------------------------------------------------------------
# At most `slots` calls run; one skill has at most half of them, so that a skill that hangs leaves
# the other half free. A free slot goes to the call that waited longest and whose skill may have
# one more. A call that waits can be cancelled, and waits no longer than it asked to.

Refusal = Literal["timeout", "cancelled", "closed"]


_CANCEL_CHECK_S = 0.05


class Ticket:
    """The place of one call in the queue."""

    def __init__(self, skill: str, most: int) -> None:
        self.skill = skill
        self.most = most
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

    def enter(
        self, skill: str, wait: float, cancel: Cancel | None = None, most: int = 0
    ) -> Ticket | Refusal:
        """Wait for a turn; each ticket must be returned with `leave`."""
        ticket = Ticket(skill, min(most or self._share, self._share))
        came = time.monotonic()
        with self._changed:
            self._waiting.append(ticket)
            self._dispatch()
            try:
                while not ticket.running and not self._closed:
                    left = came + wait - time.monotonic()
                    if left <= 0:
                        return "timeout"
                    if cancel is not None and is_cancelled(cancel):
                        return "cancelled"
                    self._changed.wait(left if cancel is None else min(left, _CANCEL_CHECK_S))
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
            if self._running[ticket.skill] < ticket.most:
                self._waiting.remove(ticket)
                self._running[ticket.skill] += 1
                ticket.running = True
        self._changed.notify_all()


# --- workers ------------------------------------------------------------------------------
# A worker belongs to one call at a time. It is not reused after any fault, or after
# `MAX_CALLS_PER_WORKER` calls or `MAX_WORKER_AGE_S`.

MAX_CALLS_PER_WORKER = 1_000
MAX_WORKER_AGE_S = 600.0


class WorkerGone(Exception):
    """The worker was unusable before the call was sent; the message is the reason."""


class WarmWorker:
    """A program that answers one line after another."""

    __slots__ = ("_poll", "born", "calls", "idle_since", "process", "tier")

    def __init__(self, process: Process, tier: Tier) -> None:
        self.process = process
        self.tier: Tier = tier
        self.born = self.idle_since = time.monotonic()
        self.calls = 0
        self._poll = select.poll()
        os.set_blocking(process.stdin, False)
        for end in (process.stdout, process.stderr):
            os.set_blocking(end, False)
            self._poll.register(end, select.POLLIN)

    def ask(
        self, line: bytes, limits: ProgramLimits, cancel: Cancel | None, waited: float
    ) -> RunResult:
        """Send the line of one call and read its reply.

        Raises:
            WorkerGone: it had ended before, or written without a request.
        """
        began = time.monotonic()
        if self.calls:  # at the first call a program that does not start is its own fault
            self._check_idle()
        self.calls += 1
        got = exchange(self.process, line, limits, began + limits.timeout, cancel, keep=True)
        now = self.idle_since = time.monotonic()
        return to_result(got, limits, self.tier, "warm")._replace(
            waited_ms=waited, ran_ms=(now - began) * 1000
        )

    def is_spent(self) -> bool:
        """Whether it should be replaced after a successful call."""
        return self.calls >= MAX_CALLS_PER_WORKER or self.idle_since - self.born >= MAX_WORKER_AGE_S

    def is_well(self) -> bool:
        """Whether it is alive and has written nothing."""
        return all(end != self.process.stdout for end, _ in self._poll.poll(0))

    def close(self) -> None:
        """Kill it."""
        self.process.close()

    def _check_idle(self) -> None:
        for end, event in self._poll.poll(0):
            if end == self.process.stdout:
                wrote = event & select.POLLIN
                raise WorkerGone(
                    "it wrote more after a reply" if wrote else "it ended while it was idle"
                )


MAX_IDLE_S = 60.0
MAX_IDLE_PER_SLOT = 4
_SWEEP_INTERVAL_S = 5.0
_HOSTS = {"timeout": 0.0, "reply": 0, "output": 0, "stderr": 0}
_REFUSED = {
    "cancelled": Message("the call was taken back"),
    "closed": Message("the call was taken back"),
}


class _WorkerSet:
    """The workers of one skill, and their common origin."""

    __slots__ = ("idle", "limits", "permissions", "program", "retired", "tier")

    def __init__(self, request: RunRequest, tier: Tier) -> None:
        self.program = request.program
        self.permissions = request.permissions
        self.limits = request.limits
        self.tier: Tier = tier
        self.idle: list[WarmWorker] = []
        """The one used last is used next."""
        self.retired = False

    def fits(self, request: RunRequest, tier: Tier) -> bool:
        """Whether its processes can serve a request. Limits applied by the host may differ."""
        mine, its = self.limits, request.limits
        return (
            self.tier == tier
            and self.program == request.program
            and self.permissions == request.permissions
            and (mine is its or mine._replace(**_HOSTS) == its._replace(**_HOSTS))
        )


class Pool:
    """Runs calls. One for a host, used by all its threads."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tier: Tier | None = None,
        processes: int = 0,
        trace: Trace | None = None,
    ) -> None:
        """Set up; nothing is started yet.

        Args:
            settings: `tools.processes` and `sandbox`.
            tier: the sandbox of every program, instead of the settings.
            processes: number of concurrent calls, instead of the setting.
            trace: records workers that ended by themselves.
        """
        slots = processes or (settings.tools.processes if settings is not None else 0)
        self.slots = slots or max(4, 2 * (os.cpu_count() or 1))
        self._settings = settings
        self._trace = trace
        self._tiers: dict[bool, Tier] = {} if tier is None else {True: tier, False: tier}
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Start over, without any process."""
        self._queue = CallQueue(self.slots)
        self._lock = threading.Lock()
        self._workers: dict[str, _WorkerSet] = {}
        self._idle = 0
        """The number of idle workers."""
        self._live: set[Process] = set()
        """Every process, for closing."""
        self._has_sweeper = False
        self._closed = False

    # --- the front ------------------------------------------------------------------------

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
            line = request_line(request)
        except (ValueError, TypeError, RecursionError) as exc:
            detail = Message("the arguments are no JSON: {reason}", reason=str(exc))
            return RunResult(fault="cannot-start", detail=detail)
        wait = request.limits.timeout
        came = time.monotonic()
        ticket = self._queue.enter(request.skill, wait, request.cancel, request.workers)
        if not isinstance(ticket, Ticket):
            fault = "timeout" if ticket == "timeout" else "cancelled"
            detail = _REFUSED.get(ticket) or Message(
                "its turn did not come within {seconds} s: {count} calls were running",
                seconds=f"{wait:g}",
                count=self._queue.counts()[0],
            )
            waited = (time.monotonic() - came) * 1000
            return RunResult(fault=fault, detail=detail, tier=tier, waited_ms=waited)
        waited = ticket.waited * 1000
        before, restored = None, ()
        try:
            if request.permissions.writable and tier != "none":
                request, before = snapshot_protected(request)
            permissions = request.permissions
            if request.workers and not permissions.writable and not permissions.named:
                result = self._warm(request, line, tier, waited)
            else:
                result = self._cold(request, line, tier, waited)
        except CannotStart as exc:
            return RunResult(fault="cannot-start", detail=exc.args[0], tier=tier, waited_ms=waited)
        finally:
            try:
                restored = restore_protected(before) if before is not None else ()
            finally:
                self._queue.leave(ticket)
        return result._replace(denied=restored) if restored else result

    def close(self) -> None:
        """Kill every process. Running calls end with a fault, waiting calls are refused."""
        with self._lock:
            self._closed = True
            idle = [kept for workers in self._workers.values() for kept in workers.idle]
            for workers in self._workers.values():
                workers.retired = True
            self._workers.clear()
            self._idle = 0
        self._queue.close()
        for kept in idle:
            self._end(kept)
        for process in list(self._live):
            process.kill()

    def counts(self) -> dict[str, int]:
        """The number of running and waiting calls, and of idle workers."""
        running, waiting = self._queue.counts()
        return {"running": running, "waiting": waiting, "kept": self._idle}

    def kept(self) -> tuple[WarmWorker, ...]:
        """The idle workers, the one used last at the end."""
        with self._lock:
            found = [kept for workers in self._workers.values() for kept in workers.idle]
        return tuple(sorted(found, key=lambda kept: kept.idle_since))

    # --- cold and warm --------------------------------------------------------------------

    def _cold(self, request: RunRequest, line: bytes, tier: Tier, waited: float) -> RunResult:
        began = time.monotonic()
        process = self._start(request, tier)
        got = self._exchange(process, request, line, began + request.limits.timeout)
        ran = (time.monotonic() - began) * 1000
        return to_result(got, request.limits, tier, "cold")._replace(waited_ms=waited, ran_ms=ran)

    def _warm(self, request: RunRequest, line: bytes, tier: Tier, waited: float) -> RunResult:
        workers = self._worker_set(request, tier)
        while True:
            worker = self._take(workers)
            if worker is None:
                worker = WarmWorker(self._admit(self._start(request, tier)), tier)
            spent = True
            try:
                result = worker.ask(line, request.limits, request.cancel, waited)
                spent = result.fault is not None or worker.is_spent()
                return result
            except WorkerGone as exc:
                # Nothing was sent, so another worker can serve the call.
                if self._trace is not None:
                    self._trace.record("failed", (request.skill,), what="worker", reason=str(exc))
            finally:
                self._give_back(workers, worker, spent=spent)

    # --- processes ------------------------------------------------------------------------

    def _start(self, request: RunRequest, tier: Tier) -> Process:
        return launcher().start(
            sandboxed_launch(request.program, request.permissions, request.limits, tier)
        )

    def _exchange(
        self, process: Process, request: RunRequest, line: bytes, deadline: float
    ) -> ExchangeResult:
        """Exchange with a process that serves this call only, and close it."""
        try:
            self._admit(process)
            return exchange(process, line, request.limits, deadline, request.cancel)
        finally:
            if request.permissions.writable:
                # The workspace is checked next, when no process can write to it any more.
                process.kill()
                while process.wait(_SWEEP_INTERVAL_S) is None:
                    pass
            self._live.discard(process)
            process.close()

    def _admit(self, process: Process) -> Process:
        """Register a process; it is killed at once when the pool is closed."""
        self._live.add(process)
        if self._closed:
            process.kill()
        return process

    def _choose(self, *, own: bool) -> Tier:
        from satchel.runners.tiers import choose_tier
        from satchel.settings import load_settings

        tier = choose_tier(self._settings or load_settings(), own=own)
        self._tiers[own] = tier
        return tier

    # --- workers --------------------------------------------------------------------------

    def _worker_set(self, request: RunRequest, tier: Tier) -> _WorkerSet:
        """The workers of this skill; those with another origin are ended."""
        workers = self._workers.get(request.skill)
        if workers is not None and workers.fits(request, tier):
            return workers
        old: list[WarmWorker] = []
        with self._lock:
            workers = self._workers.get(request.skill)
            if workers is None or not workers.fits(request, tier):
                if workers is not None:
                    workers.retired = True
                    old = workers.idle
                    self._idle -= len(old)
                workers = _WorkerSet(request, tier)
                if not self._closed:
                    self._workers[request.skill] = workers
        for kept in old:
            self._end(kept)
        return workers

    def _take(self, workers: _WorkerSet) -> WarmWorker | None:
        with self._lock:
            if workers.retired or not workers.idle:
                return None
            self._idle -= 1
            return workers.idle.pop()

    def _give_back(self, workers: _WorkerSet, kept: WarmWorker, *, spent: bool) -> None:
        if not spent:
            with self._lock:
                if not (workers.retired or self._closed):
                    workers.idle.append(kept)
                    self._idle += 1
                    if not self._has_sweeper:
                        self._has_sweeper = True
                        _start_sweeper(weakref.ref(self))
                    if self._idle <= MAX_IDLE_PER_SLOT * self.slots:
                        return
                    kept = self._oldest()
        self._end(kept)

    def _oldest(self) -> WarmWorker:
        sets = (workers for workers in self._workers.values() if workers.idle)
        workers = min(sets, key=lambda workers: workers.idle[0].idle_since)
        self._idle -= 1
        return workers.idle.pop(0)

    def _end(self, kept: WarmWorker) -> None:
        self._live.discard(kept.process)
        kept.close()

    def sweep(self) -> bool:
        """End workers that were idle too long or died; whether any idle one is left."""
        due = time.monotonic() - MAX_IDLE_S
        ended: list[WarmWorker] = []
        with self._lock:
            for workers in self._workers.values():
                idle = workers.idle
                gone = [kept for kept in idle if kept.idle_since < due or not kept.is_well()]
                workers.idle = [kept for kept in idle if kept not in gone]
                ended += gone
            self._idle -= len(ended)
            self._has_sweeper = bool(self._idle)
        for kept in ended:
            self._end(kept)
        return self._has_sweeper

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _start_sweeper(pool: weakref.ref[Pool]) -> None:
    """Sweep the idle workers of a pool in a thread, which ends with the last of them."""

    def sweep() -> None:
        going = True
        while going:
            time.sleep(_SWEEP_INTERVAL_S)
            alive = pool()
            going = alive is not None and alive.sweep()
            del alive

    threading.Thread(target=sweep, name="satchel-pool", daemon=True).start()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.reset()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
