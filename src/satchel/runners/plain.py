"""How a program is started where the launcher cannot be: an ordinary child in a group of its own.

For systems that are not Linux. Only tier `none` exists here. What ends is the process group: a
descendant that left it (`setsid`) lives on, which is why the tier says so in every result. Memory
and the number of processes are not watched, and a killed host leaves the program behind, until
that finds its pipes closed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from satchel._language import Message
from satchel.runners.base import CannotStart, Exit

if TYPE_CHECKING:
    from satchel.runners.base import Launch, Limits


class PlainProcess:
    """A program in a process group of its own: what `base.Process` asks for."""

    def __init__(self, process: subprocess.Popen[bytes], scratch: str) -> None:
        pipes = (process.stdin, process.stdout, process.stderr)
        self.stdin, self.stdout, self.stderr = (
            os.dup(pipe.fileno()) if pipe is not None else -1 for pipe in pipes
        )
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        self.pid = process.pid
        self._process = process
        self._scratch = scratch
        self._killed = False
        self._exit: Exit | None = None

    def kill(self) -> None:
        """End it and its group at once; safe to call twice."""
        self._killed = self._killed or self._process.poll() is None
        self._end_group()

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, when it has; None when time is up."""
        if self._exit is None:
            try:
                code = self._process.wait(max(timeout, 0.0))
            except subprocess.TimeoutExpired:
                return None
            self._end_group()
            if self._scratch:
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._exit = Exit(code, reason="killed" if self._killed else "")
        return self._exit

    def close(self) -> None:
        """Kill it, and give back every descriptor."""
        self.kill()
        self.wait(5)
        ends = (self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = -1
        for end in ends:
            if end >= 0:
                os.close(end)

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class PlainLauncher:
    """Starts programs as children of the host."""

    def start(self, launch: Launch) -> PlainProcess:
        """Start a program.

        Raises:
            CannotStart: When it is to be held in a sandbox, or cannot be run.
        """
        if launch.tier != "none":
            launch.give_up()
            raise CannotStart(Message("there is no sandbox on this system"))
        try:
            process = subprocess.Popen(  # noqa: S603
                _limited(launch.argv, launch.limits),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=launch.cwd,
                env=dict(launch.env),
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            launch.give_up()
            raise CannotStart(
                Message("the program cannot be started: {reason}", reason=str(error))
            ) from error
        return PlainProcess(process, launch.scratch)

    def close(self) -> None:
        """Nothing is kept."""


def _limited(argv: tuple[str, ...], limits: Limits) -> list[str]:
    """The command with limits set by a shell, since Python between fork and exec is unsafe."""
    blocks = limits.file_size // 512  # the unit that POSIX gives `ulimit -f`
    settings = f"ulimit -c 0; ulimit -f {blocks}; ulimit -n {limits.open_files}; "
    return ["/bin/sh", "-c", settings + 'exec "$@"', "sh", *argv]
