"""What pages stand on: one object per server, handed to every route."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.errors import NotFound
from satchel.ui.arrivals import Arrivals
from satchel.ui.keeping import Keeper
from satchel.ui.live import Live
from satchel.ui.views.health import Health
from satchel.ui.views.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from satchel.facade import Satchel
    from satchel.store.plan import Plan
    from satchel.store.store import Store
    from satchel.ui.access import Access
    from satchel.ui.arrivals import Arrival

# --- notes --------------------------------------------------------------------------------
# A page that changes something sends the reader on to another one. So the sentence waits here
# under a key, the address has the key (`?told=…`), and the frame shows it.

MOST = 64
"""Notes that wait at a time; the oldest gives way."""
Tone = Literal["good", "warn", "bad", "info"]


class Note(NamedTuple):
    """Something that was done."""

    words: str
    more: tuple[str, ...] = ()
    """What else is worth knowing, a line each."""
    tone: Tone = "good"
    scope: str = ""
    """Whose change it was: `project` or `global`."""
    number: int = 0
    """Its place in the history, for the button that takes it back; 0: there is none."""
    undone: bool = False
    """It was an undoing: the button does it again."""
    links: tuple[tuple[str, str], ...] = ()
    """Words and address of where to go on."""


class Notes:
    """Notes that wait to be shown. A page that is loaded again shows its note again."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._hold = threading.Lock()

    def put(self, note: Note) -> str:
        """Keep a note; returns its key."""
        key = secrets.token_urlsafe(9)
        with self._hold:
            self._notes[key] = note
            while len(self._notes) > MOST:
                del self._notes[next(iter(self._notes))]
        return key

    def look(self, key: str) -> Note | None:
        """The note of that key, if it still waits."""
        return self._notes.get(key)


PATIENCE = 1_800.0
"""Seconds that a plan waits for somebody's yes."""
MOST_PLANS = 32
"""Plans that wait at a time; the oldest gives way."""
MOST_OVER = 128
"""Plans of which is known what became of them."""
_TURNS = 16

MINUTE = 60.0
"""Seconds between two looks at what waits."""


class Waiting(NamedTuple):
    """A change that was made ready and waits for a yes."""

    key: str
    store: Store
    plan: Plan
    since: float
    label: str = ""
    """How people call what it comes from."""
    arrival: str = ""
    """The key of the source that it was made of, while that is open."""
    ids: tuple[str, ...] = ()
    """What is removed, so that it can be made ready anew."""

    @property
    def is_over(self) -> bool:
        """It waited too long."""
        return time.monotonic() - self.since > PATIENCE


class Desk:
    """Plans that wait. What is never confirmed is thrown away, with what was staged for it."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._became: dict[str, str] = {}
        self._turns = tuple(threading.Lock() for _ in range(_TURNS))
        self._hold = threading.Lock()

    def turn(self, key: str) -> AbstractContextManager[object]:
        """One yes at a time to a plan: who clicks twice waits for what the first click does."""
        return self._turns[hash(key) % _TURNS]

    def becomes(self, key: str, address: str) -> None:
        """Remember where to see what became of a plan."""
        with self._hold:
            self._became[key] = address
            while len(self._became) > MOST_OVER:
                del self._became[next(iter(self._became))]

    def became(self, key: str) -> str:
        """Where to see what became of a plan that waits no more; empty when that is not known."""
        return self._became.get(key, "")

    def put(
        self,
        store: Store,
        plan: Plan,
        *,
        label: str = "",
        arrival: str = "",
        ids: Sequence[str] = (),
    ) -> Waiting:
        """Keep a plan till somebody says yes or no; its key is not to be guessed.

        Args:
            store: Whose skills it changes.
            plan: What would be done.
            label: How people call what it comes from.
            arrival: The key of the source that it was made of.
            ids: What is removed.
        """
        key = secrets.token_urlsafe(18)
        return self.put_back(Waiting(key, store, plan, 0.0, label, arrival, tuple(ids)))

    def put_back(self, waiting: Waiting) -> Waiting:
        """Let one wait that was taken, under the key that it had."""
        found = waiting._replace(since=time.monotonic())
        with self._hold:
            self._waiting[found.key] = found
        self.sweep()
        return found

    def sweep(self) -> None:
        """Throw away what waited too long, and what is too much."""
        with self._hold:
            every = list(self._waiting.values())
            # The latest stay, in the order in which they came.
            old = every[:-MOST_PLANS]
            old += [one for one in every[-MOST_PLANS:] if one.is_over]
            for one in old:
                self._waiting.pop(one.key, None)
        for one in old:
            self.end(one)

    def look(self, key: str) -> Waiting:
        """A plan that waits.

        Raises:
            NotFound: it was carried out, thrown away, or waited too long.
        """
        with self._hold:
            found = self._waiting.get(key)
        if found is None or found.is_over:
            raise waits_no_more()
        return found

    def take(self, key: str) -> Waiting:
        """The same, and it waits no more: who takes it ends it.

        Raises:
            NotFound: as `look`.
        """
        found = self.look(key)
        with self._hold:
            if self._waiting.pop(key, None) is None:  # somebody else was quicker
                raise NotFound(say("This change was made already"), say("Begin again"))
        return found

    def drop(self, key: str) -> None:
        """Throw one away, if it still waits."""
        with self._hold:
            found = self._waiting.pop(key, None)
        if found is not None:
            self.end(found)

    def end(self, waiting: Waiting) -> None:
        """Let go of what was staged for one that was taken."""
        with suppress(OSError):  # a folder that is gone is what we wanted
            waiting.plan.close()

    def close(self) -> None:
        """Throw everything away."""
        with self._hold:
            every, self._waiting = list(self._waiting.values()), {}
        for one in every:
            self.end(one)


def waits_no_more() -> NotFound:
    """What is said of a change that is over."""
    return NotFound(
        say("This change waits no more: it was made, refused, or waited too long"),
        say("Begin again"),
    )


class House:
    """The skills of a project, its goals, and who looks at them."""

    def __init__(self, satchel: Satchel, access: Access) -> None:
        self.satchel = satchel
        self.access = access
        self.live = Live(satchel)
        self.desk = Desk()
        self.goals = Keeper(satchel, self.live)
        self.notes = Notes()
        self.review = Job(satchel.review, satchel.library.snapshot)
        """Scans the skills of a folder that is not trusted yet."""
        self._making = threading.Lock()
        self._health: Health | None = None
        self.arrivals = Arrivals(self._wait, self.desk.drop)

    def changed(self) -> None:
        """The skills are others than they were: look at them anew, and tell every page."""
        self.satchel.refresh()
        self.live.tell("library")

    def health(self) -> Health:
        """How the skills are; made when somebody first looks. Its work ends with the server."""
        with self._making:
            if self._health is None:
                self._health = Health(self.satchel)
            return self._health

    async def leave(self) -> None:
        """End what runs for the pages; the library is its owner's to close.

        What cannot be ended is recorded, and keeps nothing else from its end.
        """
        self.review.stop()
        if self._health is not None:
            self._health.stop()
        try:
            await self.goals.close()
        except Exception as exc:  # noqa: BLE001 - recorded
            self._failed(exc)
        finally:  # also when nobody waits for the engine any more
            for close in (self.live.close, self.desk.close, self.arrivals.close):
                try:
                    close()
                except Exception as exc:  # noqa: BLE001 - recorded
                    self._failed(exc)

    async def keep_clean(self) -> None:
        """Throw away, once a minute, what waited too long; till it is cancelled."""
        while True:
            await asyncio.sleep(MINUTE)
            try:
                await asyncio.to_thread(self.sweep)
            except Exception as exc:  # noqa: BLE001 - recorded, and tried again
                self._failed(exc)

    def _failed(self, exc: Exception) -> None:
        reason = f"{type(exc).__name__}: {exc}"
        self.satchel.trace.record("failed", (), what="ui", reason=reason)

    def sweep(self) -> None:
        """Let go of what waited too long: call it now and then."""
        self.desk.sweep()
        self.arrivals.sweep()

    def _wait(self, store: Store, plan: Plan, arrival: Arrival) -> str:
        """Let a plan wait that was made of a source somebody brought."""
        return self.desk.put(store, plan, label=arrival.label, arrival=arrival.key).key
