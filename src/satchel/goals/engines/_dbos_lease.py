"""Who takes over from a worker that is gone? DBOS leaves that open; each worker has a lease for it.

Every worker renews its lease. The others put the runs of one whose lease has run out back into the
queue, at once when they see that its process is gone. Whoever was only frozen finds that out when
it wakes, and what it writes then is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from satchel.goals.engines._dbos_process import surely_dead

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.goals.engines._dbos_runs import Runs
    from satchel.goals.engines._dbos_store import Store

_ORPHANS = 10.0
"""Seconds between two looks for runs of workers that have left no trace."""


class Lease:
    """That of this process, and what it makes of those of others.

    Args:
        store: Where leases are.
        runs: Who has which runs.
        name: This worker's.
        seconds: How long a lease lasts.
        give_back: Puts what these workers have back into the queue, if it can.
        go_on: What else is to be looked after as often.
    """

    def __init__(
        self, store: Store, runs: Runs, name: str, seconds: float,
        give_back: Callable[[list[str]], bool], go_on: Callable[[], None],
    ) -> None:  # fmt: skip
        self.seconds = seconds
        self.doubts = 0
        """How often it was overdue: others may have taken our runs meanwhile."""
        self._store = store
        self._runs = runs
        self._name = name
        self._give_back = give_back
        self._go_on = go_on
        self._renewed = self._steady = time.monotonic()
        """When it was renewed last, and since when it was never overdue. By a clock that goes on
        while the process is frozen."""
        self._orphans = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="satchel-lease", daemon=True)

    def take(self) -> None:
        """From now on this process is a worker."""
        self._renewed = self._steady = time.monotonic()
        self._store.alive(self._name, self.seconds)

    def hold(self) -> None:
        """Keep it, in a thread of its own: a busy loop must not cost it."""
        self._thread.start()

    def let_go(self) -> None:
        """Renew it no more, and judge nobody."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def overdue(self) -> bool:
        """Whether it may have run out: then others may have our runs."""
        return time.monotonic() - self._renewed > self.seconds / 2

    def _beat(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            if self.overdue():
                self.doubts += 1  # before it is renewed: nobody shall take the new one for the old
                self._steady = began
            try:
                self._store.alive(self._name, self.seconds)
                self._renewed = began
                self._take_over(steady=began - self._steady >= self.seconds)
                if began >= self._orphans:
                    self._orphans = began + _ORPHANS
                    self._find_orphans()
                self._go_on()
            except Exception:
                if not self._stop.is_set():
                    logging.getLogger(__name__).exception("renewing the lease failed")
            self._stop.wait(self.seconds / 5)

    def _take_over(self, *, steady: bool) -> None:
        """Put the runs of dead workers back into the queue.

        After the database was away everybody's lease is overdue: who was overdue itself judges
        nobody by it before one lease has passed.
        """
        dead = [
            name
            for name, left in self._store.workers().items()
            if name != self._name and (surely_dead(name) or (left < 0 and steady))
        ]
        if dead and self._give_back(dead):
            self._store.gone(dead)

    def _find_orphans(self) -> None:
        """Workers that have runs and hold no lease: they get one, which runs out."""
        known = self._store.workers()
        for name in self._runs.workers():
            if name not in known:
                self._store.alive(name, self.seconds)
