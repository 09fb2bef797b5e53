"""Work that takes longer than a page may: a thread of its own, one run at a time, with progress.

A result is kept as it is, not as words: readers of several languages look at it.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextvars import copy_context
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from satchel._language import say
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable

    Tell = Callable[[int, int], None]
    """Told how many of how many are done. It raises `Stopped` when nobody wants the rest."""

T = TypeVar("T")
QUICK = 2.0
"""Seconds: what took less is done again whenever somebody looks."""
MOMENT = 0.4
"""Seconds that a page waits for it, so that a quick run is never seen running."""


class Stopped(Exception):
    """The server ends: nobody wants what this work would find."""


class Standing(NamedTuple):
    """How far a run is."""

    running: bool = False
    done: int = 0
    total: int = 0
    """0 as long as nobody knows."""
    ran: bool = False
    """Whether there is a result, of this run or of one before."""
    when: float = 0.0
    """When that was, in seconds since the epoch."""
    took: float = 0.0
    trouble: str = ""
    """Why there is none."""


class Job(Generic[T]):
    """One kind of work, and what it found last."""

    def __init__(self, work: Callable[[Tell], T], mark: Callable[[], object]) -> None:
        """Make it ready; nothing runs yet.

        Args:
            work: Does it, and tells how far it is.
            mark: What it looks at: another object as soon as the result may be another.
        """
        self._work = work
        self._mark = mark
        self._seen: Callable[[], object] = lambda: None
        """What it looked at last. It is not kept alive: a large library is much to keep."""
        self._stopped = False
        self._hold = threading.Lock()
        self._over = threading.Event()
        self._over.set()
        self._standing = Standing()
        self.result: T | None = None

    @property
    def standing(self) -> Standing:
        """How far it is."""
        return self._standing

    @property
    def stale(self) -> bool:
        """Whether there is a result, of something that has changed since."""
        return self._standing.ran and self._mark() is not self._seen()

    def start(self) -> bool:
        """Begin, unless it runs already or was stopped; False then."""
        with self._hold:
            if self._standing.running or self._stopped:
                return False
            self._standing = self._standing._replace(running=True, done=0, total=0, trouble="")
            self._over.clear()
        context = copy_context()  # an error's words are for whoever started it
        thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        thread.start()
        return True

    def look(self, *, begin: bool = True, moment: float = MOMENT) -> Standing:
        """How far it is, a moment later; a quick one is done again first.

        Args:
            begin: Start it where it never ran.
            moment: Seconds to wait for its end.
        """
        last = self._standing
        tried = last.ran or last.trouble
        old = time.time() - last.when > QUICK or self.stale
        due = begin if not tried else last.took < QUICK and old
        if due and not last.running and self.start():
            self.wait(moment)
        return self._standing

    def stop(self) -> None:
        """Let it end at the next skill, and never begin again. It waits for nothing."""
        self._stopped = True

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        return self._over.wait(seconds)

    def _run(self) -> None:
        began = time.monotonic()
        trouble = ""
        ran = False
        try:
            seen = weakref.ref(self._mark())
            self.result = self._work(self._tell)
            self._seen, ran = seen, True
        except Stopped:
            pass  # nobody is there to be told
        except SatchelError as exc:
            trouble = exc.message
        except Exception as exc:  # noqa: BLE001 - a thread has nobody else to tell
            trouble = say(
                "Something went wrong here: {reason}", reason=f"{type(exc).__name__}: {exc}"
            )
        finally:
            took = time.monotonic() - began
            with self._hold:
                self._standing = Standing(
                    ran=self._standing.ran or ran,
                    when=time.time(),
                    took=took,
                    trouble=trouble,
                )
            self._over.set()

    def _tell(self, done: int, total: int) -> None:
        if self._stopped:
            raise Stopped
        self._standing = self._standing._replace(done=done, total=total)
