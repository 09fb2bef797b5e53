"""How late is the machine itself? A bound on lateness must not blame the program for it.

    with Lag() as lag:
        result = runner.run(request)
    assert late < 0.25 + lag.lost

On a machine that has time for everybody `lost` is next to nothing, so the bound stays what it says.
"""

from __future__ import annotations

import threading
import time
from typing import Self

_NAP = 0.02
_USUAL = 0.005
"""Seconds that a nap is too long on a quiet machine."""


class Lag:
    """Naps beside what is measured, and adds up by how much they were too long."""

    def __init__(self) -> None:
        self.lost = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._nap, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _nap(self) -> None:
        over = False
        while not over:
            began = time.monotonic()
            over = self._done.wait(_NAP)
            self.lost += max(0.0, time.monotonic() - began - _NAP - _USUAL)
