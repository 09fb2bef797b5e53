"""How long may a scan take? A skill that would hold it up is `incomplete`, not waited for."""

from __future__ import annotations

import time

SECONDS = 10.0
"""For one skill."""


class OutOfTime(Exception):
    """The scan of a skill has taken long enough."""


class Budget:
    """A deadline that is looked at between two pieces of work."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Go on, or raise `OutOfTime`."""
        if time.monotonic() > self._end:
            raise OutOfTime
