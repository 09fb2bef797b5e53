"""What changed, told to every open page within a second. Server-sent events, one stream a page.

A thread looks at the library: at a watcher's word where there is one, else every half second. The
events say that something changed, not what: a page asks again for what it shows, and gets it as it
is now. Each change has a number. A page says up to which it has seen everything, so that what
happened between its making and its stream is told at once, also by a server that began anew.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from satchel.facade import Satchel
    from satchel.library.watch import Watcher

PERIOD = 0.2
"""Seconds between two questions to a watcher; it answers at once."""
POLL = 0.5
"""Seconds between two looks at the disk where nothing watches it."""
_SHARE = 2
"""Without a watcher a look may take a third of the time: after a long one the next waits longer."""
BEAT = 15.0
"""Seconds between two signs of life, so that a browser and a proxy keep the line open."""
ALWAYS = frozenset(("library", "goals"))
"""What every page is told of."""
_MOST = 256
"""Changes that are remembered by name, besides those of what somebody looks at."""


class Live:
    """Who listens, and what they are told."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._ears: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._hold = threading.Lock()
        # Later than every number of a server before this one: its pages ask for everything anew.
        self._number = self._floor = time.time_ns() // 1_000_000
        self._marks: dict[str, int] = {}
        """What changed -> the number of its last change, the latest at the end."""
        self._wanted: dict[str, int] = {}
        """What pages asked for by name -> how many did."""
        self.asked: Callable[[str], None] | None = None
        """Told what a page begins to listen to, in the loop of its stream."""
        self._unwatched = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="satchel-ui-live", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """End all streams, and the look after the one that is under way. It waits for nothing."""
        self._stop.set()
        self.tell("end")

    def close(self) -> None:
        """End all streams and the look."""
        self.end()
        if self._thread is not None:
            self._thread.join(5)

    @property
    def number(self) -> int:
        """The number of the last change: whoever reads after this has seen it."""
        return self._number

    def tell(self, what: str) -> None:
        """Something changed: `library`, `goals`, `goal:ID`. Callable from every thread."""
        with self._hold:
            self._number += 1
            self._marks.pop(what, None)
            self._marks[what] = self._number
            if len(self._marks) > _MOST + len(self._wanted) + len(ALWAYS):
                self._forget()
            for loop, event in list(self._ears):
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:  # that loop is over
                    self._ears.discard((loop, event))

    def _forget(self) -> None:
        """Drop the oldest name that nobody looks at: up to its number, any may have changed."""
        for name in self._marks:
            if name not in self._wanted and name not in ALWAYS:
                self._floor = max(self._floor, self._marks.pop(name))
                return

    def is_wanted(self, name: str) -> bool:
        """Whether an open page asked for this by its name."""
        return self._wanted.get(name, 0) > 0

    async def stream(
        self, wanted: frozenset[str] = frozenset(), seen: int | None = None
    ) -> AsyncGenerator[bytes]:
        """The events of one page, as `text/event-stream`, till it goes away.

        Args:
            wanted: What this page shows, such as `goal:ID`; `library` and `goals` are told anyway.
            seen: The number that the page was made at. None means now.
        """
        names = sorted(ALWAYS | wanted)
        event = asyncio.Event()
        ear = (asyncio.get_running_loop(), event)
        with self._hold:
            self._ears.add(ear)
            for name in wanted:
                self._wanted[name] = self._wanted.get(name, 0) + 1
            for name in names:
                self._marks.setdefault(name, self._floor)
            if seen is None:
                seen = self._number
            elif not self._floor <= seen <= self._number:
                seen = -1  # of another server, or too old: everything may have changed
        try:
            for name in wanted:
                if self.asked is not None:
                    self.asked(name)
            yield b"retry: 1000\nevent: hello\ndata: 1\n\n"
            event.set()  # what happened before it listened
            while not self._stop.is_set():
                try:
                    await asyncio.wait_for(event.wait(), BEAT)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                event.clear()
                with self._hold:
                    now = self._number
                    changed = [name for name in names if self._marks[name] > seen]
                # A line that breaks between two of them must not lose the second.
                for name in changed:
                    id_ = now if name == changed[-1] else max(seen, 0)
                    yield f"id: {id_}\nevent: {name}\ndata: {id_}\n\n".encode()
                seen = now
        finally:
            with self._hold:
                self._ears.discard(ear)
                for name in wanted:
                    self._wanted[name] -= 1
                    if not self._wanted[name]:
                        del self._wanted[name]

    def _run(self) -> None:
        library = self._satchel.library
        watcher: Watcher | None = None
        trouble = ""
        try:
            watcher = library.watch()
        except MissingExtra:
            pass  # every look is a whole one
        except Exception as exc:  # noqa: BLE001 - a thread has nobody else to tell
            trouble = self._say_once(trouble, _words(exc))
        seen: tuple[object, object] | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                # The first look is compared with what pages show since before it.
                seen = seen or (library.snapshot(), library.tools())
                now = (library.refresh(), library.tools(refresh=True))
            except Exception as exc:  # noqa: BLE001 - said, and made again: pages say "live on"
                trouble = self._say_once(trouble, _words(exc))
                self._stop.wait(max(POLL, (time.monotonic() - began) * _SHARE))
                continue
            trouble = ""
            if now[0] is not seen[0] or now[1] is not seen[1]:
                self.tell("library")
            seen = now
            watched = watcher is not None and watcher.is_alive
            if watcher is not None and not self._stop.is_set():
                self._say_of_watcher(alive=watched)
            took = time.monotonic() - began
            # A watcher that died makes each look a long one.
            self._stop.wait(max(PERIOD if watched else POLL, took * _SHARE))

    def _say_once(self, last: str, reason: str) -> str:
        """Record what went wrong, unless the look before said the same."""
        if reason != last:
            self._satchel.trace.record("failed", (), what="ui", reason=reason)
        return reason

    def _say_of_watcher(self, *, alive: bool) -> None:
        """Record once that nothing watches the folders any more."""
        if not alive and not self._unwatched:
            self._satchel.trace.record(
                "failed", (), what="watch",
                reason=say("Nothing watches the folders of skills any more; they are looked at "
                           "again and again, which is slower"),
                hint=say("Allow more watches (`fs.inotify.max_user_watches`), and start "
                         "`satchel ui` again"),
            )  # fmt: skip
        self._unwatched = not alive


def _words(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"
