"""Which skills were never loaded? The few words of a long trace that a shortlist needs."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.trace import Event, Trace


class Usage:
    """The names of all skills that were ever loaded here: read once, then kept by listening."""

    def __init__(self, trace: Trace) -> None:
        """Read nothing yet."""
        self._trace = trace
        self._loaded: set[str] | None = None
        self._heard: set[str] = set()
        self._reading = Lock()
        self._listens = False

    def never(self, name: str) -> bool:
        """Whether the trace knows of no load. Where nothing is recorded nobody can say: False."""
        if not self._trace.enabled:
            return False
        if self._loaded is None:
            self._read()
        return name not in self._heard and name not in (self._loaded or ())

    def _read(self) -> None:
        """Read the past. Whoever asks meanwhile waits: half of it looks as if nobody was loaded."""
        with self._reading:
            if self._loaded is not None:
                return
            if not self._listens:
                # Listen first: what is loaded while the file is read is not missed.
                self._trace.listen(self._hear)
                self._listens = True
            self._loaded = self._trace.ever("loaded")

    def _hear(self, event: Event) -> None:
        if event.kind == "loaded":
            self._heard.update(event.skills)
