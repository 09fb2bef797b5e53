"""How is a fork server started and asked? The host's side of `_forkserver_main`.

One server per process slot, inside the skill's sandbox, serving one call at a time. So a call has
the sandbox to itself, as a cold one has, and the launcher's watch over memory and processes holds
for it unchanged. `Forked` looks like any other process to `exchange`: every fault is the same.

The server is not trusted: when it does not say that all is clean, it is ended from outside.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING

from satchel.runners import _forkserver_main as far
from satchel.runners.base import Exit
from satchel.runners.launcher import is_supported
from satchel.runners.workers import AGE, CALLS, Gone

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, Process, Program, RunRequest, Tier
    from satchel.runners.launcher import Starter

_MAIN = os.path.abspath(far.__file__)
_NEVER_LOADED = frozenset(("test", "venv", "this", "idlelib", "tkinter"))
_OWN_MEMORY = 32 * 1024 * 1024
"""What the server itself may hold beside its program."""
_SETTLE = 0.25
"""Seconds for a killed program to be gone before its whole sandbox is ended."""


def can_fork(program: Program) -> bool:
    """Whether a program can be started by a fork: a Python script, on Linux."""
    return bool(
        program.runtime == "python"
        and program.script
        and program.script in program.argv[1:]
        and is_supported()
    )


def _hides(program: Program) -> str:
    """What lies beside the script and has the name of a standard module: it would come first."""
    folder = os.path.dirname(os.path.realpath(program.script))
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, _, rest = entry.name.partition(".")
                if stem in sys.stdlib_module_names and stem not in _NEVER_LOADED:
                    package = os.path.join(entry.path, "__init__.py")
                    if rest or os.path.exists(package):
                        return entry.name
    except OSError:
        pass
    return ""


class NotReady(Exception):
    """A fork server did not start in time: nothing is known against it."""


class ForkServer:
    """A Python that has started, and forks a program for each call."""

    __slots__ = ("_calls", "_reports", "born", "calls", "idle_since", "process", "spent", "tier")

    def __init__(
        self, process: Process, calls: socket.socket, reports: socket.socket, tier: Tier
    ) -> None:
        self.process = process
        self.tier: Tier = tier
        self.born = self.idle_since = time.monotonic()
        self.calls = 0
        self.spent = False
        self._calls = calls
        self._reports = reports

    @classmethod
    def start(
        cls, launcher: Starter, request: RunRequest, tier: Tier, deadline: float
    ) -> ForkServer:
        """Start one and wait until it can serve.

        Args:
            launcher: starts it.
            request: says which program, with which powers and limits.
            tier: how it is held.
            deadline: when to give up waiting, by `time.monotonic`.

        Raises:
            Gone: it does not start; the text says why.
            NotReady: time was up, or nobody waits any more.
            CannotStart: no process can be started at all.
        """
        from satchel.runners.sandbox import dress

        program, limits = request.program, request.limits
        if hiding := _hides(program):
            raise Gone(f"`{hiding}` in its folder hides a module that the fork server has loaded")
        at = program.argv.index(program.script, 1)
        program = program._replace(
            argv=(*program.argv[:at], _MAIN, *program.argv[at:]), read=(*program.read, _MAIN)
        )
        limits = limits._replace(
            memory=limits.memory and limits.memory + _OWN_MEMORY,
            processes=limits.processes and limits.processes + 1,
        )
        ends: list[socket.socket] = []
        for _ in range(2):
            ends += socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        calls, their_calls, reports, their_reports = ends
        try:
            launch = dress(program, request.powers, limits, tier)
            process = launcher.start(launch, (their_calls.fileno(), their_reports.fileno()))
        except BaseException:
            calls.close()
            reports.close()
            raise
        finally:
            their_calls.close()
            their_reports.close()
        server = cls(process, calls, reports, tier)
        try:
            server.await_ready(deadline, request.cancel)
        except BaseException:
            server.close()
            raise
        return server

    def await_ready(self, deadline: float, cancel: Cancel | None) -> None:
        """Wait until it can serve.

        Raises:
            Gone: it ended; the text says why.
            NotReady: time was up, or nobody waits any more.
        """
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        if cancel is not None:
            poll.register(cancel.fileno(), select.POLLIN)
        ready = [end for end, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
        if self._reports.fileno() not in ready:
            raise NotReady
        if self._reports.recv(64) != far.READY:
            raise Gone(self.last_words())

    def run(self) -> Forked:
        """Have a program started.

        Raises:
            Gone: the server had ended before.
        """
        if not self.is_well():
            raise Gone("it ended while it was idle")
        self.calls += 1
        near: list[int] = []
        far_ends: list[int] = []
        try:
            for output in (False, True, True):
                reading, writing = os.pipe()
                near.append(reading if output else writing)
                far_ends.append(writing if output else reading)
            socket.send_fds(self._calls, [b"c"], far_ends, socket.MSG_NOSIGNAL)
        except OSError as error:
            for end in near:
                os.close(end)
            raise Gone(f"it cannot be asked: {error.strerror}") from None
        finally:
            for end in far_ends:
                os.close(end)
        return Forked(self, self._reports, (near[0], near[1], near[2]))

    def is_well(self) -> bool:
        """Whether it waits for a call."""
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        return not poll.poll(0)

    def is_spent(self) -> bool:
        """Whether it should be replaced after a call, which has just ended."""
        self.idle_since = time.monotonic()
        return self.spent or self.calls >= CALLS or self.idle_since - self.born >= AGE

    def close(self) -> None:
        """End it and its program."""
        self.spent = True
        self.process.close()
        self._calls.close()
        self._reports.close()

    def last_words(self) -> str:
        """Why it ended.

        Not what it wrote: that is a stranger's text, perhaps with a secret in it, and this goes
        into the trace. The call that follows in a process of its own has it.
        """
        end = self.process.wait(1.0)
        if end is not None and end.reason == "cannot-start" and end.detail:
            return end.detail
        status = f" with status {end.code}" if end is not None and not end.reason else ""
        return f"it ended{status} before it was ready"


class Forked:
    """One program of a fork server: what `base.Process` asks for."""

    __slots__ = ("_asked", "_exit", "_reports", "_server", "pid", "stderr", "stdin", "stdout")

    def __init__(
        self, server: ForkServer, reports: socket.socket, ends: tuple[int, int, int]
    ) -> None:
        self.stdin, self.stdout, self.stderr = ends
        self.pid = server.process.pid
        self._server = server
        self._reports = reports
        self._exit: Exit | None = None
        self._asked = False

    def kill(self) -> None:
        """End it and every descendant at once; safe to call twice."""
        if not self._asked and self._exit is None:
            self._asked = True
            try:
                self._reports.send(b"k", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            except OSError:
                self._server.process.kill()

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, when it has and no descendant is left; None when time is up."""
        if self._exit is not None:
            return self._exit
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        if not poll.poll(max(0.0, timeout) * 1000):
            return None
        try:
            packet = self._reports.recv(64)
        except OSError:
            packet = b""
        if len(packet) == far.EXIT.size:
            self._exit = self._judge(*far.EXIT.unpack(packet))
        else:
            # The server is gone, and whoever ended it knows why.
            self._server.spent = True
            self._exit = self._server.process.wait(_SETTLE) or Exit(-9, reason="lost")
            if not self._exit.reason:
                self._exit = self._exit._replace(reason="lost")
        return self._exit

    def close(self) -> None:
        """Kill it, and give back every descriptor."""
        ends = (self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = -1
        for end in ends:
            if end >= 0:
                os.close(end)
        if self._exit is None:
            self.kill()
            if self.wait(_SETTLE) is None:
                self._server.spent = True

    def _judge(self, code: int, peak: int, told: int) -> Exit:
        if told == far.LEFTOVER or (self._asked and told != far.KILLED):
            # Something may still run, or the word `kill` is still under way to the next program.
            self._server.spent = True
            self._server.process.kill()
            self._server.process.wait(_SETTLE)  # until nothing is left
        return Exit(code, peak, "killed" if self._asked else "")
