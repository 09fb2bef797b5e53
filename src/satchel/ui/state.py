"""The objects that all routes of one server share."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel.errors import Refused
from satchel.i18n import say
from satchel.presentation.health import Health
from satchel.presentation.jobs import BackgroundJob
from satchel.presentation.skill_index import LibraryLoader, index_of
from satchel.store.setting_files import change_setting
from satchel.ui.events import LiveEvents
from satchel.ui.flash import Flash
from satchel.ui.goal_service import GoalService
from satchel.ui.imports import SourceFetch
from satchel.ui.pending import PendingItems, PendingPlan

if TYPE_CHECKING:
    from satchel.satchel import Satchel
    from satchel.settings import Setting
    from satchel.ui.auth import UiAccess

MAX_PENDING_PLANS = 32
MAX_FINISHED_PLANS = 128
MAX_FETCHES_STORED = 16
FETCH_END_S = 2.0
MAX_FLASH_MESSAGES = 64
PLAN_LIFETIME_S = 1_800.0
"""A release may be revoked while its plan waits."""


class AppState:
    """The skills of a project, its goals, and all pending changes."""

    def __init__(self, satchel: Satchel, access: UiAccess) -> None:
        self.satchel = satchel
        self.access = access
        self.live = LiveEvents(satchel)
        self.goals = GoalService(satchel, self.live)
        self.flash = PendingItems[Flash](MAX_FLASH_MESSAGES)
        self.plans = PendingItems[PendingPlan](MAX_PENDING_PLANS, release, PLAN_LIFETIME_S)
        self.results = PendingItems[str](MAX_FINISHED_PLANS)
        """Key of a plan that was applied -> URL that shows the result."""
        self.confirming = threading.Lock()
        """Held by a confirmation, so that a second click waits for the result of the first."""
        self.fetches = PendingItems[SourceFetch](MAX_FETCHES_STORED, SourceFetch.cancel)
        self.review = BackgroundJob(satchel.review, satchel.library.snapshot)
        """Scans the skills of an untrusted folder."""
        self.loading = LibraryLoader(satchel)
        self._health_lock = threading.Lock()
        self._health: Health | None = None

    def library_changed(self) -> None:
        """Refresh the library after a change, and notify every page."""
        self.satchel.refresh()
        index_of(self.satchel, wait=True)
        self.live.publish("library")

    def change_setting(self, setting: Setting, text: str, scope: str) -> str:
        """Write a setting, apply it, and return what the file had."""
        satchel = self.satchel
        previous, satchel.settings = change_setting(
            satchel.settings, satchel.library, setting, text, scope
        )
        self.library_changed()
        return previous

    def require_local_user(self, message: str, command: str) -> None:
        """Refuse what reaches beyond the skills, such as the owner's git, keys and settings.

        Raises:
            Refused: clients may be on other machines.
        """
        if self.access.has_remote_users:
            raise Refused(message, say("Run `{command}`", command=command))

    def health(self) -> Health:
        """Return the health checks; created on first use."""
        with self._health_lock:
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
            self._record_failure(exc)
        finally:  # also when the engine is not waited for
            for close in (self.live.close, self._end_fetches, self.plans.clear):
                try:
                    close()
                except Exception as exc:  # noqa: BLE001 - recorded
                    self._record_failure(exc)

    def _end_fetches(self) -> None:
        fetches = self.fetches.values()
        self.fetches.clear()
        for fetch in fetches:  # its temporary folder is removed
            fetch.wait(FETCH_END_S)

    def _record_failure(self, exc: Exception) -> None:
        reason = f"{type(exc).__name__}: {exc}"
        self.satchel.trace.record("failed", (), what="ui", reason=reason)


def release(pending: PendingPlan) -> None:
    """Remove the staged files of a plan."""
    with suppress(OSError):  # the folder is gone already
        pending.plan.close()
