"""Rate limits of model providers: requests per second and concurrent requests, for all workers.

    limiter = SharedLimiter({"anthropic": Limit(per_second=5, at_once=3)}, "limits.db")
    async with limiter.slot("anthropic"):
        ...  # one request

Each request is a row of a shared table: when it began, and until when its slot is leased, so that
a killed process loses the slot soon. A request begins when there is a slot (`at_once`) and enough
time has passed since earlier starts (`per_second`). In each process one request tries at a time;
its other requests wait in line.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from satchel.errors import InvalidInput, ServerFailed
from satchel.goals.database import Database
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

ANY_PROVIDER = "*"
"""The key of the limit for providers without one of their own."""
WINDOW_MARGIN_S = 0.25
"""How much longer a window is than its second. Two requests that leave a second apart may arrive
closer together, by as much as the first one took longer."""


class Limit(NamedTuple):
    """Limits of a provider. None means no limit."""

    per_second: float | None = None
    """Requests that begin within any one second. Fractions of a request do not count: 2.5 is 2, and
    0.5 is one in two seconds."""
    at_once: int | None = None

    @property
    def window(self) -> tuple[int, float]:
        """Maximum number of starts, and within how many seconds; `(0, 0)` without a limit."""
        if self.per_second is None:
            return 0, 0.0
        if self.per_second >= 1:
            return int(self.per_second), 1.0
        return 1, 1.0 / self.per_second


def _limit_for(limits: Mapping[str, Limit], provider: str) -> Limit | None:
    """The limit of a provider; None when there is none.

    Raises:
        InvalidInput: it would allow no request at all.
    """
    limit = limits.get(provider) or limits.get(ANY_PROVIDER)
    if limit is None or limit == Limit():
        return None
    if (limit.per_second is not None and not limit.per_second > 0) or (
        limit.at_once is not None and limit.at_once < 1
    ):
        raise InvalidInput(
            say("The limit of `{provider}` allows no request", provider=provider),
            say("Give `per_second` and `at_once` values above 0"),
        )
    return limit


_TABLE = """
CREATE TABLE IF NOT EXISTS satchel_turns (turn TEXT PRIMARY KEY, provider TEXT NOT NULL,
    start_at DOUBLE PRECISION NOT NULL, begun INTEGER NOT NULL, leased DOUBLE PRECISION NOT NULL)
"""
_MAX_ROW_AGE_S = 3600.0
"""Rows older than this are deleted; rows as far in the future come from a clock that was set back.
"""
_PAUSE_S = 0.1
"""Delay before another try when all slots are taken."""
_MAX_START_DELAY_S = 0.05
"""Of a request after its recorded start; a later one is recorded again."""


class SharedLimiter:
    """Enforces limits across all processes that share a database.

    Args:
        limits: Provider -> limit; `*` is for providers without one.
        database: `postgresql://…`, or the path of an SQLite file.
        margin: Seconds by which a window is longer than one second.
        lease: Seconds after which the slot of a silent process is free.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        database: str,
        *,
        margin: float = WINDOW_MARGIN_S,
        lease: float = 15.0,
    ) -> None:
        self._limits = dict(limits)
        self._database = Database(database)
        self._created = False
        self._margin = margin
        self._lease = lease
        self._thread: ThreadPoolExecutor | None = None
        self._turns: dict[str, asyncio.Lock] = {}
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._renewing: threading.Thread

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the database."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
            await asyncio.to_thread(self._renewing.join)  # it would connect again
        self._database.close()

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncGenerator[None]:
        """Wait for a slot.

        Args:
            provider: The name of the provider, such as `anthropic`.
        """
        limit = _limit_for(self._limits, provider)
        if limit is None:
            yield
            return
        turn = secrets.token_hex(12)
        try:
            async with self._turns.setdefault(provider, asyncio.Lock()):
                self._held.add(turn)
                late = 0
                while True:
                    asked = time.monotonic()
                    wait = await self._in_thread(self._begin, provider, turn, limit)
                    if not wait and (time.monotonic() - asked < _MAX_START_DELAY_S or late > 2):
                        break
                    late += not wait  # the event loop was busy: the start is recorded again
                    await asyncio.sleep(wait * random.uniform(1.0, 1.2))  # noqa: S311
            yield
        finally:
            if turn in self._held:
                self._held.discard(turn)
                with suppress(ServerFailed):  # its lease ends in any case
                    await asyncio.shield(self._in_thread(self._release, turn))

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        if self._thread is None:
            self._stop.clear()
            self._thread = ThreadPoolExecutor(1, "satchel-limits")
            self._renewing = threading.Thread(
                target=self._renew, name="satchel-limits-lease", daemon=True
            )
            self._renewing.start()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _begin(self, provider: str, turn: str, limit: Limit) -> float:
        """Begin a request if its limit allows it: 0, or seconds until the next try."""

        def work(execute: Callable[..., Any]) -> float:
            now = execute("SELECT {now}").fetchone()[0]
            count, window = limit.window
            execute(
                "DELETE FROM satchel_turns WHERE provider = ? AND leased < ?"
                " AND (start_at < ? OR start_at > ?)",
                provider, now, now - max(_MAX_ROW_AGE_S, 2 * window), now + _MAX_ROW_AGE_S,
            )  # fmt: skip
            if limit.at_once is not None:
                sql = (
                    "SELECT count(*) FROM satchel_turns"
                    " WHERE provider = ? AND leased >= ? AND turn <> ?"
                )
                if execute(sql, provider, now, turn).fetchone()[0] >= limit.at_once:
                    return _PAUSE_S
            if count:
                sql = (
                    "SELECT start_at FROM satchel_turns WHERE provider = ? AND turn <> ?"
                    " ORDER BY start_at DESC LIMIT 1 OFFSET ?"
                )
                row = execute(sql, provider, turn, count - 1).fetchone()
                if row and row[0] + window + self._margin > now:
                    return row[0] + window + self._margin - now
            execute(  # twice when the connection was lost at the end of the first time
                "INSERT INTO satchel_turns VALUES (?, ?, ?, 1, ?) ON CONFLICT (turn)"
                " DO UPDATE SET start_at = excluded.start_at, leased = excluded.leased",
                turn, provider, now, now + self._lease,
            )  # fmt: skip
            return 0.0

        if not self._created:
            self._database.create(_TABLE)
            self._created = True
        return self._database.in_exclusive_transaction(work)

    def _release(self, turn: str) -> None:
        """Free the slot of a request."""
        self._database.execute("UPDATE satchel_turns SET leased = 0 WHERE turn = ?", turn)

    def _renew(self) -> None:
        """Renew leases in a separate thread, so that a busy event loop does not lose a slot."""
        while not self._stop.wait(self._lease / 4):
            sql = "UPDATE satchel_turns SET leased = {now} + ? WHERE turn = ?"
            try:
                for turn in list(self._held):
                    self._database.execute(sql, self._lease, turn)
            except Exception:
                logging.getLogger(__name__).exception("renewing the places failed")
