"""A terminal for tests: the program runs in a pty, and a person types into it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Self

from warm_start import warm_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warm_start import Started

_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
WHERE = b"\x1b[6n"
"""A program asks where the cursor is; a terminal answers."""


class Typing:
    """A program in a terminal of 88 columns."""

    def __init__(self, command: Sequence[str], folder: object, env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 88, 0, 0))

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal

        self.program: subprocess.Popen[bytes] | Started
        words = command[command.index("satchel") + 1 :] if "satchel" in command else []
        if words and warm_start().takes(words, env):
            streams = [theirs, theirs, theirs]
            self.program = warm_start().start(words, str(folder), env, streams, terminal=True)
        else:
            self.program = subprocess.Popen(
                command,
                cwd=str(folder),
                env=dict(env),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=take_terminal,  # noqa: PLW1509 - one system call, no lock
            )
        os.close(theirs)
        self.raw = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """Everything that was shown, without what moves a cursor or colours."""
        return _CODES.sub("", self.raw).replace("\r", "")

    def type(self, keys: str) -> None:
        """Press keys; `\\r` is Enter."""
        os.write(self._ours, keys.encode())

    def sees(self, words: str, seconds: float = 90) -> str:
        """Wait for words after those that were waited for before; what was shown until then."""
        end = time.monotonic() + seconds
        while True:
            text = self.text
            at = text.find(words, self._seen)
            if at >= 0:
                shown = text[self._seen : at + len(words)]
                self._seen = at + len(words)
                return shown
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{words!r} was not shown after:\n{text[self._seen :]}")

    def quiet(self, seconds: float = 0.3) -> None:
        """Wait until nothing is written for a while."""
        while select.select([self._ours], [], [], seconds)[0] and self._read():
            pass

    def ends(self, seconds: float = 20) -> int:
        """Wait for the end of the program; its exit code."""
        while self._read(seconds):
            pass
        return self.program.wait(seconds)

    def _read(self, seconds: float = 1) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return self.program.poll() is None
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other side is closed
            return False
        if WHERE in data:
            os.write(self._ours, b"\x1b[1;1R")
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
