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
import re
import select
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Literal

from satchel._language import Message, say
from satchel.runners.base import RunResult
from satchel.runners.exchange import exchange, result_of
from satchel.runners.guards import put_right, settle
from satchel.runners.launcher import CannotStart, launcher
from satchel.runners.reply import request_line
from satchel.runners.sandbox import dress

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, Limits, Powers, Process, RunRequest, Tier
    from satchel.runners.exchange import Exchanged
    from satchel.settings import Settings
    from satchel.trace import Trace

# --- the queue ----------------------------------------------------------------------------
# At most `slots` calls run; one skill has at most half of them, so that a skill that hangs leaves
# the other half free. A free slot goes to the call that waited longest and whose skill may have
# one more. A call that waits can be cancelled, and waits no longer than it asked to.

Refusal = Literal["timeout", "cancelled", "closed"]


class Ticket:
    """The place of one call."""

    waited = 0.0
    """Seconds."""

    def __init__(self, skill: str, most: int) -> None:
        self.skill = skill
        self.most = most
        self.running = False
        self.wake = -1
        """While it waits: written to when its turn has come or the queue is closed."""


class CallQueue:
    """Hands out turns to the threads of a host."""

    def __init__(self, slots: int) -> None:
        """Let at most `slots` calls run at once."""
        self.slots = max(1, slots)
        self._share = max(1, self.slots // 2)
        """Calls that one skill may have at once."""
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        """Calls of each skill."""
        self._waiting: list[Ticket] = []
        self._closed = False

    def enter(
        self, skill: str, wait: float, cancel: Cancel | None = None, most: int = 0
    ) -> Ticket | Refusal:
        """Wait for a turn; each ticket must be given back to `leave`.

        Args:
            skill: The skill that is called.
            wait: Seconds to wait at most.
            cancel: Becomes readable when the call is taken back.
            most: Calls of this skill at once, where it wants fewer than its share.
        """
        ticket = Ticket(skill, min(most or self._share, self._share))
        came = time.monotonic()
        woken = -1
        try:
            with self._lock:
                if self._closed:
                    return "closed"
                self._waiting.append(ticket)
                self._dispatch()
                if ticket.running:
                    return ticket
                woken, ticket.wake = os.pipe()
            cancelled = _await(woken, wait, cancel)
        except BaseException:  # an interrupt must not keep the place
            self._give_up(ticket)
            raise
        finally:
            if woken >= 0:
                with self._lock:
                    os.close(ticket.wake)
                    ticket.wake = -1
                os.close(woken)
        ticket.waited = time.monotonic() - came
        with self._lock:
            if ticket.running:
                return ticket  # the turn may have come at the last moment
            if self._closed:
                return "closed"
            self._waiting.remove(ticket)
        return "cancelled" if cancelled else "timeout"

    def leave(self, ticket: Ticket) -> None:
        """Give a turn back."""
        with self._lock:
            self._running[ticket.skill] -= 1
            if not self._running[ticket.skill]:
                del self._running[ticket.skill]
            self._dispatch()

    def close(self) -> None:
        """Refuse every call that waits, and every later one."""
        with self._lock:
            self._closed = True
            for ticket in self._waiting:
                _wake(ticket)
            self._waiting.clear()

    def counts(self) -> tuple[int, int]:
        """How many calls run, and how many wait."""
        with self._lock:
            return self._running.total(), len(self._waiting)

    def _give_up(self, ticket: Ticket) -> None:
        with self._lock:
            if not ticket.running:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                return
        self.leave(ticket)

    def _dispatch(self) -> None:
        """Give free slots away; the lock is held."""
        for ticket in list(self._waiting):
            if self._running.total() >= self.slots:
                return
            if self._running[ticket.skill] < ticket.most:
                self._waiting.remove(ticket)
                self._running[ticket.skill] += 1
                ticket.running = True
                _wake(ticket)


def _wake(ticket: Ticket) -> None:
    if ticket.wake >= 0:
        os.write(ticket.wake, b"!")


def _await(woken: int, wait: float, cancel: Cancel | None) -> bool:
    """Wait for the turn, the time or the cancellation; whether it was the last alone."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    if cancel is not None:
        poll.register(cancel.fileno(), select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(max(0.0, wait) * 1000)}
    return bool(ready) and woken not in ready


# --- denials ------------------------------------------------------------------------------
# The kernel refuses silently: a program gets an error number and says what it likes about it. So
# this reads what it said, in `error` and on stderr, and names the refusals that leave a plain mark
# there: `seen`, never "all". Each denial is one line, `kind: what was seen; what would allow it`.

_MOST = 5
_LONGEST = 64 * 1024
"""Characters of each end of the text that are looked at."""
_SIGSYS = -31

_NETWORK = re.compile(
    r"address family not supported|EAFNOSUPPORT|network is unreachable|ENETUNREACH"
    r"|temporary failure in name resolution|EAI_AGAIN|name or service not known"
    r"|failed to resolve|no such host",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"(?P<why>permission denied|read-only file system|EACCES|EROFS)[^\n/'\"]{0,40}"
    r"['\"]?(?P<path>/[^\n'\"]{1,300})",
    re.IGNORECASE,
)
"""Python and Node: the reason, then the path."""
_FILE_FIRST = re.compile(
    r"(?P<path>/[^\n'\":]{1,300})['\"]?: (?P<why>permission denied|read-only file system)",
    re.IGNORECASE,
)
"""Go and the shell: the path, then the reason."""
_READ_ONLY = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
_NO_RIGHT = re.compile(r"permission denied|EACCES", re.IGNORECASE)
_FULL = re.compile(r"no space left on device|ENOSPC|file too large|EFBIG", re.IGNORECASE)
_OPERATION = re.compile(r"operation not permitted|\bEPERM\b", re.IGNORECASE)


def seen_denials(
    text: str, tier: Tier, powers: Powers, folder: str = "", exit_code: int | None = None
) -> tuple[str, ...]:
    """What the sandbox was seen to refuse.

    Args:
        text: The program's own error and what it wrote to stderr.
        tier: How it was held; nothing is refused where it was not.
        powers: What it was allowed.
        folder: The skill's folder.
        exit_code: How it ended, negative for a signal.
    """
    if tier == "none":
        return ()
    if len(text) > 2 * _LONGEST:
        text = text[:_LONGEST] + "\n" + text[-_LONGEST:]
    found: dict[str, None] = {}
    if exit_code == _SIGSYS:
        found[say("system call: it was ended for a call in another architecture's numbers")] = None
    if not powers.network and (match := _NETWORK.search(text)):
        seen = match.group()
        found[say("network: `{seen}`; it is not declared in skill.yaml (`network: true`)",
                  seen=seen)] = None  # fmt: skip
    for pattern in (_FILE, _FILE_FIRST):
        for match in pattern.finditer(text):
            path = match["path"].rstrip(" .,)")
            found[_of_file(path, match["why"], powers, folder, tier)] = None
            if len(found) >= _MOST:
                break
    if not (_FILE.search(text) or _FILE_FIRST.search(text)) and _READ_ONLY.search(text):
        found[say("files: something was written where only reading is allowed")] = None
    elif not found and tier == "landlock" and powers.guard and _NO_RIGHT.search(text):
        found[say("files: something was refused in the workspace; {limit}", limit=_beside())] = None
    if match := _FULL.search(text):
        found[say("size: `{seen}`; the scratch folder and each file have a limit",
                  seen=match.group())] = None  # fmt: skip
    if not found and (match := _OPERATION.search(text)):
        found[say("operation: `{seen}`; the sandbox answers so to calls that no tool needs",
                  seen=match.group())] = None  # fmt: skip
    return tuple(found)[:_MOST]


def with_denials(request: RunRequest, result: RunResult) -> RunResult:
    """The same result, with what its sandbox was seen to refuse."""
    text = f"{result.error}\n{result.stderr}"
    found = seen_denials(
        text, result.tier, request.powers, request.program.folder, result.exit_code
    )
    return result._replace(denied=found) if found else result


def _of_file(path: str, why: str, powers: Powers, folder: str, tier: Tier) -> str:
    # The path is the program's word: it is named, never looked at.
    if folder and _beneath(path, folder):
        return say("files: `{path}`: {why}; the skill's own folder is read-only",
                   path=path, why=why)  # fmt: skip
    workspace = powers.workspace
    if workspace and _beneath(path, os.path.realpath(workspace)):
        if powers.writable and tier == "landlock" and not _is_guarded(path, powers.guard):
            return say("files: `{path}`: {why}; {limit}", path=path, why=why, limit=_beside())
        if powers.writable:
            return say("files: `{path}`: {why}; git, skills and settings in the workspace are "
                       "read-only", path=path, why=why)  # fmt: skip
        return say("files: `{path}`: {why}; skill.yaml declares reading only (`files: write`)",
                   path=path, why=why)  # fmt: skip
    return say("files: `{path}`: {why}; it is outside of what the skill may see",
               path=path, why=why)  # fmt: skip


def _is_guarded(path: str, guard: tuple[str, ...]) -> bool:
    return any(_beneath(path, one) for one in guard)


def _beside() -> str:
    return say("in the tier `landlock` nothing is made, renamed or removed directly in a folder "
               "that holds `.git`, skills or settings: write to a folder beside them, or install "
               "bubblewrap")  # fmt: skip


def _beneath(path: str, root: str) -> bool:
    path = os.path.normpath(path)
    return path == root or path.startswith(root.rstrip("/") + "/")


# --- workers ------------------------------------------------------------------------------
# A worker belongs to one call at a time. It is not used again after any fault, after `CALLS` calls
# or `AGE` seconds, or when it holds more than `FULL` of the memory it may have.

CALLS = 1_000
"""Calls that one process serves."""
AGE = 600.0
"""Seconds that one process lives."""
FULL = 0.8
LOOK = 64
"""Calls between two looks at a worker's memory."""


class Gone(Exception):
    """The process was of no use when it was needed: nothing of the call was handed over.

    The text says why, in one sentence.
    """


class Worker:
    """A program that answers line after line."""

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

    def ask(self, line: bytes, limits: Limits, cancel: Cancel | None, waited: float) -> RunResult:
        """Send the line of one call and read its answer.

        Args:
            line: the request, with its newline.
            limits: bounds of time, answer and standard error.
            cancel: becomes readable when the call is taken back.
            waited: milliseconds in the queue, for the result.

        Raises:
            Gone: it had ended before, or written what nobody asked for.
        """
        began = time.monotonic()
        if self.calls:  # a first call may meet a program that does not start: that is its fault
            self._look()
        self.calls += 1
        got = exchange(self.process, line, limits, began + limits.timeout, cancel, keep=True)
        now = self.idle_since = time.monotonic()
        return result_of(got, limits, self.tier, "warm")._replace(
            waited_ms=waited, ran_ms=(now - began) * 1000
        )

    def is_spent(self, limits: Limits) -> bool:
        """Whether it should be replaced after a call that went well."""
        if self.calls >= CALLS or self.idle_since - self.born >= AGE:
            return True
        return not self.calls % LOOK and bool(limits.memory) and self._is_full(limits.memory)

    def is_well(self) -> bool:
        """Whether it waits for a call, silently."""
        return all(end != self.process.stdout for end, _ in self._poll.poll(0))

    def close(self) -> None:
        """End it."""
        self.process.close()

    def _look(self) -> None:
        for end, event in self._poll.poll(0):
            if end == self.process.stdout:
                wrote = event & select.POLLIN
                raise Gone("it wrote more after a reply" if wrote else "it ended while it was idle")

    def _is_full(self, memory: int) -> bool:
        from satchel.runners import _census

        pids = [self.process.pid, *_census.below(self.process.pid)]
        return _census.held(pids, memory) > memory * FULL


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
