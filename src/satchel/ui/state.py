"""AppState: the objects shared by all routes of one server."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import NotFound
from satchel.i18n import say
from satchel.presentation.health import Health
from satchel.presentation.jobs import BackgroundJob
from satchel.presentation.skill_index import LibraryLoader, index_of
from satchel.ui.events import LiveEvents
from satchel.ui.flash import FlashMessages
from satchel.ui.goal_service import GoalService
from satchel.ui.imports import PendingImports

if TYPE_CHECKING:
    from satchel.satchel import Satchel
    from satchel.store.plan import ChangePlan
    from satchel.store.store import Store
    from satchel.ui.auth import UiAccess
    from satchel.ui.imports import PendingImport


PLAN_LIFETIME_S = 1_800.0
MAX_PENDING_PLANS = 32
"""The oldest is dropped first."""
MAX_FINISHED_PLANS = 128
"""Finished plans whose result can be shown again."""

SWEEP_INTERVAL_S = 60.0


class PendingPlan(NamedTuple):
    """A plan that waits for confirmation."""

    key: str
    store: Store
    plan: ChangePlan
    since: float
    label: str = ""
    import_key: str = ""
    """The key of its import, while that is open."""

    @property
    def is_over(self) -> bool:
        """Whether its time has passed."""
        return time.monotonic() - self.since > PLAN_LIFETIME_S


class PendingPlans:
    """Plans that wait for confirmation. An expired plan is dropped with its staged files."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingPlan] = {}
        self._result_urls: dict[str, str] = {}
        self.confirming = threading.Lock()
        """Held by a confirmation, so that a second click waits for the result of the first."""
        self._hold = threading.Lock()

    def set_result_url(self, key: str, address: str) -> None:
        """Remember the URL that shows the result of a plan."""
        with self._hold:
            self._result_urls[key] = address
            while len(self._result_urls) > MAX_FINISHED_PLANS:
                del self._result_urls[next(iter(self._result_urls))]

    def result_url(self, key: str) -> str:
        """Return the URL of the result of a finished plan; empty when unknown."""
        return self._result_urls.get(key, "")

    def add(
        self,
        store: Store,
        plan: ChangePlan,
        *,
        label: str = "",
        import_key: str = "",
    ) -> PendingPlan:
        """Store a plan under an unguessable key.

        Args:
            store: The store it changes.
            plan: The plan.
            label: Name of its source.
            import_key: The key of its import.
        """
        key = secrets.token_urlsafe(18)
        return self.restore(PendingPlan(key, store, plan, 0.0, label, import_key))

    def restore(self, pending: PendingPlan) -> PendingPlan:
        """Store a plan again under its key."""
        found = pending._replace(since=time.monotonic())
        with self._hold:
            self._pending[found.key] = found
        self.sweep()
        return found

    def sweep(self) -> None:
        """Drop plans that are too old or too many."""
        with self._hold:
            every = list(self._pending.values())
            # The latest are kept, in their order.
            old = every[:-MAX_PENDING_PLANS]
            old += [one for one in every[-MAX_PENDING_PLANS:] if one.is_over]
            for one in old:
                self._pending.pop(one.key, None)
        for one in old:
            self.release(one)

    def get(self, key: str) -> PendingPlan:
        """Return a pending plan.

        Raises:
            NotFound: it was applied, dropped, or has expired.
        """
        with self._hold:
            found = self._pending.get(key)
        if found is None or found.is_over:
            raise plan_expired()
        return found

    def pop(self, key: str) -> PendingPlan:
        """Remove a pending plan and return it; the caller must `release` it.

        Raises:
            NotFound: as `get`.
        """
        found = self.get(key)
        with self._hold:
            if self._pending.pop(key, None) is None:  # a concurrent request was faster
                raise plan_expired()
        return found

    def drop(self, key: str) -> None:
        """Drop a plan, if it is still pending."""
        with self._hold:
            found = self._pending.pop(key, None)
        if found is not None:
            self.release(found)

    def release(self, pending: PendingPlan) -> None:
        """Remove the staged files of a plan."""
        with suppress(OSError):  # the folder is gone already
            pending.plan.close()

    def close(self) -> None:
        """Drop all plans."""
        with self._hold:
            every, self._pending = list(self._pending.values()), {}
        for one in every:
            self.release(one)


def plan_expired() -> NotFound:
    """Return the error for a plan that is no longer pending."""
    return NotFound(say("This preview has expired"))


class AppState:
    """The skills of a project, its goals, and all pending changes."""

    def __init__(self, satchel: Satchel, access: UiAccess) -> None:
        self.satchel = satchel
        self.access = access
        self.live = LiveEvents(satchel)
        self.plans = PendingPlans()
        self.goals = GoalService(satchel, self.live)
        self.flash = FlashMessages()
        self.review = BackgroundJob(satchel.review, satchel.library.snapshot)
        """Scans the skills of an untrusted folder."""
        self.loading = LibraryLoader(satchel)
        self._making = threading.Lock()
        self._health: Health | None = None
        self.imports = PendingImports(self._wait, self.plans.drop)

    def library_changed(self) -> None:
        """Refresh the library after a change, and notify every page."""
        self.satchel.refresh()
        index_of(self.satchel, wait=True)
        self.live.publish("library")

    def health(self) -> Health:
        """Return the health checks; created on first use."""
        with self._making:
            if self._health is None:
                self._health = Health(self.satchel)
            return self._health

    async def close(self) -> None:
        """Stop everything that runs for the pages; the library is closed by its owner.

        A failure is recorded and does not prevent the other steps.
        """
        self.review.stop()
        self.loading.stop()
        if self._health is not None:
            self._health.stop()
        try:
            await self.goals.close()
        except Exception as exc:  # noqa: BLE001 - recorded
            self._failed(exc)
        finally:  # also when the engine is not waited for
            for close in (self.live.close, self.plans.close, self.imports.close):
                try:
                    close()
                except Exception as exc:  # noqa: BLE001 - recorded
                    self._failed(exc)

    async def sweep_regularly(self) -> None:
        """Drop expired plans and imports once a minute, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            try:
                await asyncio.to_thread(self.sweep)
            except Exception as exc:  # noqa: BLE001 - recorded, and tried again
                self._failed(exc)

    def _failed(self, exc: Exception) -> None:
        reason = f"{type(exc).__name__}: {exc}"
        self.satchel.trace.record("failed", (), what="ui", reason=reason)

    def sweep(self) -> None:
        """Drop expired plans and imports."""
        self.plans.sweep()
        self.imports.sweep()

    def _wait(self, store: Store, plan: ChangePlan, source: PendingImport) -> str:
        """Store the plan of an import."""
        return self.plans.add(store, plan, label=source.label, import_key=source.key).key
