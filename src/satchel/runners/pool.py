"""The runner: takes calls from any thread, gives each its turn, and a process in one of two ways.

    cold   a process for this call alone; it starts, answers, is gone
    warm   a process that was kept from an earlier call (`workers`), where the skill declares it

Nothing of a call that may write to the workspace outlives it: such a call is always cold, and the
workspace is checked after its last process is gone.

A worker belongs to one program with the same powers and limits: when any of these changes (a file,
a secret), it is ended. Workers are ended after `IDLE` seconds without a call, and there are never
more than `KEPT` times the slots of them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from satchel._language import Message
from satchel.runners.base import RunResult
from satchel.runners.exchange import exchange, result_of
from satchel.runners.guards import put_right, settle
from satchel.runners.launcher import CannotStart, launcher
from satchel.runners.queue import CallQueue, Ticket
from satchel.runners.reply import request_line
from satchel.runners.sandbox import dress
from satchel.runners.workers import Gone, Worker

if TYPE_CHECKING:
    from satchel.runners.base import Process, RunRequest, Tier
    from satchel.runners.exchange import Exchanged
    from satchel.settings import Settings
    from satchel.trace import Trace

IDLE = 60.0
"""Seconds that a worker is kept without a call."""
KEPT = 4
"""Idle workers that are kept for each slot."""
_TICK = 5.0
_HOSTS = {"timeout": 0.0, "reply": 0, "output": 0, "stderr": 0}
_REFUSED = {
    "cancelled": Message("the call was taken back before its turn came"),
    "closed": Message("the pool is closed"),
}


class _Shelf:
    """The workers of one skill, and what they were made from."""

    __slots__ = ("idle", "limits", "powers", "program", "retired", "tier")

    def __init__(self, request: RunRequest, tier: Tier) -> None:
        self.program = request.program
        self.powers = request.powers
        self.limits = request.limits
        self.tier: Tier = tier
        self.idle: list[Worker] = []
        """The one used last is used next."""
        self.retired = False

    def fits(self, request: RunRequest, tier: Tier) -> bool:
        """Whether its processes serve a request. Bounds that only the host looks at may differ."""
        mine, its = self.limits, request.limits
        return (
            self.tier == tier
            and self.program == request.program
            and self.powers == request.powers
            and (mine is its or mine._replace(**_HOSTS) == its._replace(**_HOSTS))
        )


class Pool:
    """Runs calls. Made once for a host, used by all its threads."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tier: Tier | None = None,
        processes: int = 0,
        trace: Trace | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: `tool_processes` and those of the sandbox.
            tier: hold every program this way, whatever the settings say.
            processes: calls at once, instead of the setting.
            trace: records when a worker has ended by itself.
        """
        slots = processes or (settings.tool_processes if settings is not None else 0)
        self.slots = slots or max(4, 2 * (os.cpu_count() or 1))
        self._settings = settings
        self._trace = trace
        self._tiers: dict[bool, Tier] = {} if tier is None else {True: tier, False: tier}
        self.forget()
        _pools.add(self)

    def forget(self) -> None:
        """Begin anew, without any process."""
        self._queue = CallQueue(self.slots)
        self._lock = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}
        self._idle = 0
        """How many processes are idle on all shelves."""
        self._live: set[Process] = set()
        """Every process there is, for closing."""
        self._keeper = False
        self._closed = False

    # --- the front ------------------------------------------------------------------------

    def run(self, request: RunRequest) -> RunResult:
        """Run one call. Never raises for what the program does.

        Raises:
            Unsandboxed: there is no sandbox, and the user did not agree to go without.
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
        before, told = None, ()
        try:
            if request.powers.writable and tier != "none":
                request, before = settle(request)
            if request.workers and not request.powers.writable:
                result = self._warm(request, line, tier, waited)
            else:
                result = self._cold(request, line, tier, waited)
        except CannotStart as exc:
            return RunResult(fault="cannot-start", detail=exc.args[0], tier=tier, waited_ms=waited)
        finally:
            try:
                told = put_right(before) if before is not None else ()
            finally:
                self._queue.leave(ticket)
        if result.fault is None and not (result.error or result.stderr or told):
            return result  # the usual case: nothing was complained of
        from satchel.runners.denials import with_denials

        result = with_denials(request, result)
        return result._replace(denied=(*result.denied, *told)) if told else result

    def close(self) -> None:
        """End every process. Calls that run end with a fault, calls that wait are sent away."""
        with self._lock:
            self._closed = True
            idle = [kept for shelf in self._shelves.values() for kept in shelf.idle]
            for shelf in self._shelves.values():
                shelf.retired = True
            self._shelves.clear()
            self._idle = 0
        self._queue.close()
        for kept in idle:
            self._end(kept)
        for process in list(self._live):
            process.kill()

    def counts(self) -> dict[str, int]:
        """How many calls run and wait, and how many workers are idle."""
        running, waiting = self._queue.counts()
        return {"running": running, "waiting": waiting, "kept": self._idle}

    def kept(self) -> tuple[Worker, ...]:
        """The workers that are idle, the one that was used last at the end."""
        with self._lock:
            found = [kept for shelf in self._shelves.values() for kept in shelf.idle]
        return tuple(sorted(found, key=lambda kept: kept.idle_since))

    # --- the two ways ---------------------------------------------------------------------

    def _cold(self, request: RunRequest, line: bytes, tier: Tier, waited: float) -> RunResult:
        began = time.monotonic()
        process = self._start(request, tier)
        got = self._exchange(process, request, line, began + request.limits.timeout)
        ran = (time.monotonic() - began) * 1000
        return result_of(got, request.limits, tier, "cold")._replace(waited_ms=waited, ran_ms=ran)

    def _warm(self, request: RunRequest, line: bytes, tier: Tier, waited: float) -> RunResult:
        shelf = self._shelf(request, tier)
        while True:
            worker = self._take(shelf)
            if worker is None:
                worker = Worker(self._admit(self._start(request, tier)), tier)
            spent = True
            try:
                result = worker.ask(line, request.limits, request.cancel, waited)
                spent = result.fault is not None or worker.is_spent(request.limits)
                return result
            except Gone as exc:
                # Nothing was handed over, so another one may do it.
                if self._trace is not None:
                    self._trace.record("failed", (request.skill,), what="worker", reason=str(exc))
            finally:
                self._put(shelf, worker, spent=spent)

    # --- processes ------------------------------------------------------------------------

    def _start(self, request: RunRequest, tier: Tier) -> Process:
        return launcher().start(dress(request.program, request.powers, request.limits, tier))

    def _exchange(
        self, process: Process, request: RunRequest, line: bytes, deadline: float
    ) -> Exchanged:
        """Talk to a process that is for this call alone, and let go of it."""
        try:
            self._admit(process)
            return exchange(process, line, request.limits, deadline, request.cancel)
        finally:
            if request.powers.writable:
                # The workspace is checked next. What is killed writes nothing more once it is gone.
                process.kill()
                while process.wait(_TICK) is None:
                    pass
            self._live.discard(process)
            process.close()

    def _admit(self, process: Process) -> Process:
        """Know about a process; it is ended at once when the pool is closed already."""
        self._live.add(process)
        if self._closed:
            process.kill()
        return process

    def _choose(self, *, own: bool) -> Tier:
        from satchel.runners.sandbox import choose
        from satchel.settings import load_settings

        tier = choose(self._settings or load_settings(), own=own)
        self._tiers[own] = tier
        return tier

    # --- what is kept ---------------------------------------------------------------------

    def _shelf(self, request: RunRequest, tier: Tier) -> _Shelf:
        """Where the processes of this skill are kept; those made from something else are ended."""
        shelf = self._shelves.get(request.skill)
        if shelf is not None and shelf.fits(request, tier):
            return shelf
        old: list[Worker] = []
        with self._lock:
            shelf = self._shelves.get(request.skill)
            if shelf is None or not shelf.fits(request, tier):
                if shelf is not None:
                    shelf.retired = True
                    old = shelf.idle
                    self._idle -= len(old)
                shelf = _Shelf(request, tier)
                if not self._closed:
                    self._shelves[request.skill] = shelf
        for kept in old:
            self._end(kept)
        return shelf

    def _take(self, shelf: _Shelf) -> Worker | None:
        with self._lock:
            if shelf.retired or not shelf.idle:
                return None
            self._idle -= 1
            return shelf.idle.pop()

    def _put(self, shelf: _Shelf, kept: Worker, *, spent: bool) -> None:
        """Take a process back, or end it when it is of no use any more."""
        if not spent:
            with self._lock:
                if not (shelf.retired or self._closed):
                    shelf.idle.append(kept)
                    self._idle += 1
                    if not self._keeper:
                        self._keeper = True
                        _keep_watch(weakref.ref(self))
                    if self._idle <= KEPT * self.slots:
                        return
                    kept = self._oldest()
        self._end(kept)

    def _oldest(self) -> Worker:
        """Take away the one that was idle longest."""
        shelves = (shelf for shelf in self._shelves.values() if shelf.idle)
        shelf = min(shelves, key=lambda shelf: shelf.idle[0].idle_since)
        self._idle -= 1
        return shelf.idle.pop(0)

    def _end(self, kept: Worker) -> None:
        self._live.discard(kept.process)
        kept.close()

    def sweep(self) -> bool:
        """End what was idle for too long or has died; whether anything is left to look after."""
        due = time.monotonic() - IDLE
        ended: list[Worker] = []
        with self._lock:
            for shelf in self._shelves.values():
                gone = [kept for kept in shelf.idle if kept.idle_since < due or not kept.is_well()]
                shelf.idle = [kept for kept in shelf.idle if kept not in gone]
                ended += gone
            self._idle -= len(ended)
            self._keeper = bool(self._idle)
        for kept in ended:
            self._end(kept)
        return self._keeper

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _keep_watch(pool: weakref.ref[Pool]) -> None:
    """Have idle processes of a pool looked after; the thread ends with the last of them."""

    def watch() -> None:
        going = True
        while going:
            time.sleep(_TICK)
            alive = pool()
            going = alive is not None and alive.sweep()
            del alive

    threading.Thread(target=watch, name="satchel-pool", daemon=True).start()


def _after_fork() -> None:
    """In a child of the host: the processes are the parent's."""
    for pool in list(_pools):
        pool.forget()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
