"""How is a call taken back that runs in another thread? By a pipe that becomes readable."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.runners.base import Cancel


class TakenBack:
    """A `Cancel` that a host sets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        """Readable once it is set."""
        return self._read

    def set(self) -> None:
        """Take the call back."""
        with self._lock:
            write, self._write = self._write, -1
            if write >= 0:
                os.close(write)  # the end of a pipe is readable, for as many as look

    def close(self) -> None:
        """Nobody looks any more."""
        self.set()
        with self._lock:
            read, self._read = self._read, -1
            if read >= 0:
                os.close(read)

    def follow(self, other: Cancel) -> None:
        """Be taken back when another one is, too; until this one is set or closed."""
        with self._lock:
            if self._read < 0:
                return
            mine = os.dup(self._read)
        try:
            theirs = os.dup(other.fileno())
        except (OSError, ValueError):
            os.close(mine)  # it was closed: nobody takes anything back with it
            return
        watch = threading.Thread(target=self._watch, args=(mine, theirs), daemon=True)
        watch.start()

    def _watch(self, mine: int, theirs: int) -> None:
        import select

        poll = select.poll()
        poll.register(mine, select.POLLIN)
        poll.register(theirs, select.POLLIN)
        try:
            poll.poll()
            self.set()
        finally:
            os.close(mine)
            os.close(theirs)
