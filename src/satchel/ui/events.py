"""Server-sent events: notifies every open page of changes within a second.

A thread checks the library every half second, a large one less often. An event names what changed,
and the page loads it again. Each change has a number. A page sends the number it was
made at, so that changes between its making and its stream are sent at once, also after a restart of
the server.
"""

from __future__ import annotations

import asyncio
import threading
import time
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
_MAX_NAMES = 256
"""Besides those of open pages."""


class LiveEvents:
    """Open streams and the changes they are sent."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._streams: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        # Higher than every number of a previous server: its pages load everything again.
        self._number = self._floor = time.time_ns() // 1_000_000
        self._numbers: dict[str, int] = {}
        """Name -> number of its last change, the latest last."""
        self._subscribers: dict[str, int] = {}
        """Name -> number of streams that asked for it."""
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

    def publish(self, what: str) -> None:
        """Publish a change of `library`, `goals` or `goal:ID`. Thread-safe."""
        with self._lock:
            self._number += 1
            self._numbers.pop(what, None)
            self._numbers[what] = self._number
            if len(self._numbers) > _MAX_NAMES + len(self._subscribers) + len(COMMON_EVENTS):
                self._drop_oldest()
            for loop, event in list(self._streams):
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:  # that event loop has ended
                    self._streams.discard((loop, event))

    def _drop_oldest(self) -> None:
        """Drop the oldest name without subscribers; pages older than its number load everything."""
        for name in self._numbers:
            if name not in self._subscribers and name not in COMMON_EVENTS:
                self._floor = max(self._floor, self._numbers.pop(name))
                return

    def has_subscribers(self, name: str) -> bool:
        """Whether an open page subscribed to a name."""
        return self._subscribers.get(name, 0) > 0

    async def stream(
        self, wanted: frozenset[str] = frozenset(), seen: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the events of one page as `text/event-stream`, until it is closed.

        Args:
            wanted: Names that this page shows, such as `goal:ID`, besides `COMMON_EVENTS`.
            seen: The number that the page was made at; None for the current one.
        """
        names = sorted(COMMON_EVENTS | wanted)
        event = asyncio.Event()
        mine = (asyncio.get_running_loop(), event)
        with self._lock:
            self._streams.add(mine)
            for name in wanted:
                self._subscribers[name] = self._subscribers.get(name, 0) + 1
            for name in names:
                self._numbers.setdefault(name, self._floor)
            if seen is None:
                seen = self._number
            elif not self._floor <= seen <= self._number:
                seen = -1  # of another server, or too old: everything may have changed
        try:
            for name in wanted:
                if self.on_subscribe is not None:
                    self.on_subscribe(name)
            yield b"retry: 1000\nevent: hello\ndata: 1\n\n"
            event.set()  # changes before the subscription
            while not self._stop.is_set():
                try:
                    await asyncio.wait_for(event.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                event.clear()
                with self._lock:
                    now = self._number
                    changed = [name for name in names if self._numbers[name] > seen]
                # A connection that breaks between two events must not lose the second.
                for name in changed:
                    id_ = now if name == changed[-1] else max(seen, 0)
                    yield f"id: {id_}\nevent: {name}\ndata: {id_}\n\n".encode()
                seen = now
        finally:
            with self._lock:
                self._streams.discard(mine)
                for name in wanted:
                    self._subscribers[name] -= 1
                    if not self._subscribers[name]:
                        del self._subscribers[name]

    def _run(self) -> None:
        library = self._satchel.library
        trouble = ""
        seen: object = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                # The first check compares with what pages have been shown.
                seen = seen or library.snapshot()
                now = library.refresh()
                if now is not seen:
                    index_of(self._satchel, wait=True)  # so that pages show the change
            except Exception as exc:  # noqa: BLE001 - said, and made again: pages say "live on"
                trouble = self._record_once(trouble, _words(exc))
                self._stop.wait(max(DISK_POLL_S, (time.monotonic() - began) * _PAUSE_RATIO))
                continue
            trouble = ""
            if now is not seen:
                self.publish("library")
            seen = now
            self._stop.wait(max(DISK_POLL_S, (time.monotonic() - began) * _PAUSE_RATIO))

    def _record_once(self, last: str, reason: str) -> str:
        """Record a failure, unless the previous check had the same."""
        if reason != last:
            self._satchel.trace.record("failed", (), what="ui", reason=reason)
        return reason


def _words(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"
