"""Starts programs of tier `none` without a launcher process: on macOS.

A program has a process group of its own, which is killed when the program ends, takes too long or
is cancelled, and when the host exits. Without a supervisor these are missing: limits of memory,
processes and file sizes; the end of a process that left the group; the end of the program when the
host is killed.

`launcher` chooses between this and the `Launcher`, and shares the pipes that are made here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple

from satchel.i18n import Message
from satchel.runners.base import CannotStart, Exit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.runners.base import Launch

_KILL_WAIT_S = 5.0


class Pipe(NamedTuple):
    """A pipe between the host and a program."""

    host_end: int
    program_end: int


def open_pipe(*, is_output: bool) -> Pipe:
    """Open a pipe to a program, or one for its output."""
    reading, writing = os.pipe()
    return Pipe(reading, writing) if is_output else Pipe(writing, reading)


def open_standard_pipes(pipes: list[Pipe]) -> None:
    """Append the pipes of stdin, stdout and stderr; the caller closes them, also after an error."""
    for is_output in (False, True, True):
        pipes.append(open_pipe(is_output=is_output))  # noqa: PERF401 - the list has what was opened


def close_descriptors(descriptors: Iterable[int]) -> None:
    """Close every descriptor; negative numbers stand for closed ones."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def start_error(reason: str) -> CannotStart:
    """The error of a program that was not started."""
    return CannotStart(Message("the program cannot be started: {reason}", reason=reason))


class PlainProcess:
    """A program in a process group of its own; like a `LaunchedProcess`."""

    def __init__(self, launch: Launch) -> None:
        self._exit: Exit | None = None
        self._killed = False
        pipes: list[Pipe] = []
        try:
            open_standard_pipes(pipes)
            # The watcher closes the writing end, so that the other one becomes readable at the end.
            pipes.append(open_pipe(is_output=True))
            stdin, stdout, stderr, ended = pipes
            self._process = subprocess.Popen(  # noqa: S603
                launch.argv,
                stdin=stdin.program_end,
                stdout=stdout.program_end,
                stderr=stderr.program_end,
                cwd=launch.cwd,
                env=dict(launch.env),
                start_new_session=True,
            )
        except BaseException:
            for pipe in pipes:
                close_descriptors(pipe)
            raise
        close_descriptors((stdin.program_end, stdout.program_end, stderr.program_end))
        self.stdin = stdin.host_end
        self.stdout = stdout.host_end
        self.stderr = stderr.host_end
        self._ended_fd = ended.host_end
        self._watcher = threading.Thread(
            target=self._watch, args=(launch.scratch, ended.program_end), daemon=True
        )
        self._watcher.start()
        _plain_processes[self] = os.getpid()

    def fileno(self) -> int:
        """A descriptor, readable when the program has ended."""
        return self._ended_fd

    def kill(self) -> None:
        """Kill its process group; idempotent."""
        if self._exit is None:
            self._killed = True
            self._kill_group()

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, once it has; None at the timeout. What is left of its group is killed."""
        self._watcher.join(timeout)
        return self._exit

    def close(self) -> None:
        """Kill it, and close every descriptor."""
        self.kill()
        self.wait(_KILL_WAIT_S)
        descriptors = (self.stdin, self.stdout, self.stderr, self._ended_fd)
        self.stdin = self.stdout = self.stderr = self._ended_fd = -1
        close_descriptors(descriptors)
        _plain_processes.pop(self, None)

    def _watch(self, scratch: str, ended_fd: int) -> None:
        code = self._process.wait()
        self._kill_group()
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        self._exit = Exit(code, reason="killed" if self._killed else "")
        os.close(ended_fd)

    def _kill_group(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)


_plain_processes: weakref.WeakKeyDictionary[PlainProcess, int] = weakref.WeakKeyDictionary()
"""Running programs and the process that started each: a fork of the host leaves them alone."""


class PlainLauncher:
    """Starts programs of tier `none` without a launcher process."""

    def start(self, launch: Launch) -> PlainProcess:
        """Start a program.

        Raises:
            CannotStart: it needs a sandbox, or its file is missing or unusable.
        """
        try:
            if launch.tier == "none":
                return PlainProcess(launch)
            reason = launch.tier
        except OSError as exc:
            reason = f"{launch.argv[0]}: {exc.strerror}"
        launch.discard()
        raise start_error(reason)

    def close(self) -> None:
        """Kill every program that this host started."""
        for process, host_pid in list(_plain_processes.items()):
            if host_pid == os.getpid():
                process.close()
