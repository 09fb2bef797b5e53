"""Background jobs with progress: one thread per run, one run at a time.

Results are data, not text: readers may use different languages.
"""

from __future__ import annotations

import sys
import threading
import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from satchel.errors import SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable

    ReportProgress = Callable[[int, int], None]
    """Reports done and total. Raises `JobStopped` when the server shuts down."""

T = TypeVar("T")
QUICK_RUN_S = 2.0
"""A run that took less is repeated on every request."""
SWITCH_INTERVAL_S = 0.0005
"""A request waits this long for a thread that computes, each time it needs the interpreter."""
START_WAIT_S = 0.4
"""A page waits this long, so that a quick run is never shown as running."""


class JobStopped(Exception):
    """The server shuts down, and the result is not needed."""


class JobState(NamedTuple):
    """The progress of a run."""

    running: bool = False
    completed: int = 0
    total: int = 0
    """0 while unknown."""
    ran: bool = False
    """Whether there is a result, of this run or of a previous one."""
    when: float = 0.0
    """When the last run ended, in seconds since the epoch."""
    took: float = 0.0
    trouble: str = ""


class BackgroundJob(Generic[T]):
    """One kind of work and its last result."""

    def __init__(
        self, work: Callable[[ReportProgress], T], mark: Callable[[], object] = object
    ) -> None:
        """Create the job without starting it.

        Args:
            work: Does the work and reports its progress.
            mark: Returns the input; another object means that the result may be outdated.
        """
        self._work = work
        self._mark = mark
        self._seen: object = None
        """The input at the end of the last run, which may have changed it."""
        self._stopped = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ended.set()
        self._state = JobState()
        self.result: T | None = None

    @property
    def state(self) -> JobState:
        """The progress of the current or last run."""
        return self._state

    @property
    def stale(self) -> bool:
        """Whether the input changed since the last result."""
        return self._state.ran and self._mark() is not self._seen

    def start(self) -> bool:
        """Start a run; False when it runs already or was stopped."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with self._lock:
            if self._state.running or self._stopped:
                return False
            self._state = self._state._replace(running=True, completed=0, total=0, trouble="")
            self._ended.clear()
        context = copy_context()  # errors are in the language of the request
        thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        thread.start()
        return True

    def refresh(self) -> JobState:
        """Return the state after a short wait; a new job is started, a quick one runs again."""
        last = self._state
        old = time.time() - last.when > QUICK_RUN_S or self.stale
        due = not (last.ran or last.trouble) or (last.took < QUICK_RUN_S and old)
        if due and not last.running and self.start():
            self.wait(START_WAIT_S)
        return self._state

    def stop(self) -> None:
        """Stop the run at the next progress report, and start no other. Does not wait."""
        self._stopped = True

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the run; False on timeout."""
        return self._ended.wait(seconds)

    def _run(self) -> None:
        began = time.monotonic()
        trouble = ""
        ran = False
        try:
            self.result = self._work(self._report)
            self._seen, ran = self._mark(), True
        except JobStopped:
            pass  # the result is not needed
        except SatchelError as exc:
            trouble = exc.message
        except Exception as exc:  # noqa: BLE001 - the thread must not end silently
            trouble = say(
                "Something went wrong here: {reason}", reason=f"{type(exc).__name__}: {exc}"
            )
        finally:
            took = time.monotonic() - began
            with self._lock:
                self._state = JobState(
                    ran=self._state.ran or ran,
                    when=time.time(),
                    took=took,
                    trouble=trouble,
                )
            self._ended.set()

    def _report(self, completed: int, total: int) -> None:
        if self._stopped:
            raise JobStopped
        self._state = self._state._replace(completed=completed, total=total)
