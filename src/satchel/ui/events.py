"""Server-sent events: notifies every open page of changes within a second.

A thread checks the library every half second, a large one less often. An event names what changed,
and the page loads it again. Each change has a number. A page sends the number it was made at; if
there were changes since, or it is of another server, it gets all its events at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel.presentation.skill_index import index_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from satchel.satchel import Satchel

DISK_POLL_S = 0.5
_PAUSE_RATIO = 10
"""Checks take at most a tenth of the time."""
KEEP_ALIVE_S = 15.0
"""Keep-alive, so that browser and proxy do not close the stream."""
COMMON_EVENTS = frozenset(("library", "goals"))
"""Events that every page gets."""


class PageStream:
    """The stream of one open page, and the changes to be sent."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.pending: set[str] = set()
        self.changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Send what is pending. Thread-safe."""
        with suppress(RuntimeError):  # that event loop has ended
            self._loop.call_soon_threadsafe(self.changed.set)


class LiveEvents:
    """Open streams and the changes they are sent."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._streams: set[PageStream] = set()
        self._lock = threading.Lock()
        # Higher than every number of a previous server: its pages load everything again.
        self._number = time.time_ns() // 1_000_000
        self.on_subscribe: Callable[[str], None] | None = None
        """Called with each name that a page subscribes to, in the event loop of its stream."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that checks the library."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="satchel-ui-live", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """End all streams, and the thread after its current check. Does not wait."""
        self._stop.set()
        self.publish("end")

    def close(self) -> None:
        """End all streams, and wait for the thread."""
        self.end()
        if self._thread is not None:
            self._thread.join(5)

    @property
    def number(self) -> int:
        """The number of the last change."""
        return self._number

    def publish(self, name: str) -> None:
        """Publish a change of `library`, `goals` or `goal:ID`. Thread-safe."""
        with self._lock:
            self._number += 1
            for stream in self._streams:
                stream.pending |= stream.names & {name}
                stream.wake()

    def has_subscribers(self, name: str) -> bool:
        """Whether an open page subscribed to a name."""
        with self._lock:
            return any(name in stream.names for stream in self._streams)

    async def stream(
        self, names: frozenset[str] = frozenset(), last_number: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the events of one page as `text/event-stream`, until it is closed.

        Args:
            names: Names that this page shows, such as `goal:ID`, besides `COMMON_EVENTS`.
            last_number: The number that the page was made at; None for the current one.
        """
        stream = PageStream(COMMON_EVENTS | names)
        with self._lock:
            self._streams.add(stream)
            if last_number not in (None, self._number):
                stream.pending |= stream.names
        try:
            for name in names:
                if self.on_subscribe is not None:
                    self.on_subscribe(name)
            yield b"retry: 1000\nevent: hello\ndata: 1\n\n"
            stream.wake()  # changes before the subscription
            while not self._stop.is_set():
                try:
                    await asyncio.wait_for(stream.changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                stream.changed.clear()
                with self._lock:
                    last_change, changed = self._number, sorted(stream.pending)
                    stream.pending.clear()
                for name in changed:
                    # A connection that breaks between two events must not lose the second.
                    number = f"id: {last_change}\n" if name == changed[-1] else ""
                    yield f"{number}event: {name}\ndata: 1\n\n".encode()
        finally:
            with self._lock:
                self._streams.discard(stream)

    def _run(self) -> None:
        library = self._satchel.library
        trouble = ""
        previous: object = None
        while not self._stop.is_set():
            started_at = time.monotonic()
            try:
                # The first check compares with what pages have been shown.
                previous = previous or library.snapshot()
                snapshot = library.refresh()
                if snapshot is not previous:
                    index_of(self._satchel, wait=True)  # so that pages show the change
                    self.publish("library")
                previous, trouble = snapshot, ""
            except Exception as exc:  # noqa: BLE001 - recorded, and tried again
                reason = f"{type(exc).__name__}: {exc}"
                if reason != trouble:
                    self._satchel.trace.record("failed", (), what="ui", reason=reason)
                trouble = reason
            self._stop.wait(max(DISK_POLL_S, (time.monotonic() - started_at) * _PAUSE_RATIO))
