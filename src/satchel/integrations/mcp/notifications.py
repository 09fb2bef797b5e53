"""Notifies clients of changes within a second.

Clients of the older protocol are notified on their session, those of 2026-07-28 on the stream of
`subscriptions/listen`. None waits for another: each session has a short queue.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from satchel.integrations.mcp.skill_resources import address

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent

    from satchel.integrations.mcp.client_view import ClientView
    from satchel.library import Snapshot
    from satchel.skill.model import Skill

SCAN_INTERVAL_S = 0.5
"""Between two scans of the disk."""
_SCAN_PAUSE_RATIO = 10
"""The pause is at least this many times the duration of the scan."""


class LegacyListener:
    """One session of the older protocol: its subscriptions and its pending messages.

    A pending message is not added again, so the queue never exceeds the number of lists and
    subscribed URIs.
    """

    def __init__(self, session: ServerSession) -> None:
        self.wanted: set[str] = set()
        self._session = session
        self._waiting: dict[str, Any] = {}
        self._more = anyio.Event()

    def enqueue(self, event: ServerEvent) -> None:
        """Queue a notification if the session wants it."""
        note = _notification(event, self.wanted)
        if note is not None:
            self._waiting.setdefault(f"{type(event).__name__} {getattr(event, 'uri', '')}", note)
            self._more.set()

    async def send_pending(self) -> None:
        """Send pending messages continuously, until the session is gone."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._waiting:
                note = self._waiting.pop(next(iter(self._waiting)))
                try:
                    await self._session.send_notification(note)
                except Exception:  # noqa: BLE001 - it went away
                    return


class ChangeNotifier:
    """Watches the library while the server runs, and notifies all listeners."""

    def __init__(self, view: ClientView) -> None:
        self._view = view
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._sessions: dict[int, LegacyListener] = {}
        self._seen = ("", "")
        self._snapshot: Snapshot | None = None
        self._skills: dict[str, Skill] = {}
        self.group: TaskGroup | None = None
        """Runs the senders of sessions; set while the server runs."""

    def changes(self, touched: set[str], *, first: bool = False) -> list[ServerEvent]:
        """The changes since the last check; `touched` are folders of skills."""
        fingerprints = self._view.fingerprints()
        self._snapshot = self._view.library.snapshot()
        now = {skill.base_dir: skill for skill in self._snapshot.skills}
        before, self._skills = self._skills, now
        old, self._seen = self._seen, fingerprints
        if first:
            return []
        touched = {folder for folder in touched if folder in now} | {
            folder
            for folder, skill in now.items()
            if folder in before and before[folder].head is not skill.head
        }
        events: list[ServerEvent] = []
        if fingerprints[0] != old[0]:
            events.append(ToolsListChanged())
        if fingerprints[1] != old[1]:
            events.append(PromptsListChanged())
        if touched or now.keys() != before.keys() or fingerprints[1] != old[1]:
            # The extension defines no notification: its files are resources.
            events.append(ResourcesListChanged())
        events += [ResourceUpdated(address(now[one].name, "SKILL.md")) for one in sorted(touched)]
        return events

    async def publish(self, event: ServerEvent) -> None:
        """Notify all listeners without waiting for any."""
        await self._bus.publish(event)
        for listener in list(self._sessions.values()):
            listener.enqueue(event)

    async def register(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Register the session of a client of the older protocol until it ends."""
        # There is no public access to the connection, which alone reports its end.
        connection: Any = getattr(ctx.session, "_connection", None)
        key = id(connection)
        if key in self._sessions or self.group is None:
            return  # registered already: its subscriptions stay
        listener = self._sessions[key] = LegacyListener(ctx.session)
        scope = anyio.CancelScope()

        def gone() -> None:
            self._sessions.pop(key, None)
            scope.cancel()

        async def send() -> None:
            with scope:
                await listener.send_pending()
                gone()

        if connection is not None:
            connection.exit_stack.callback(gone)
        self.group.start_soon(send)

    def subscriptions(self, ctx: ServerRequestContext[Any, Any]) -> set[str]:
        """The URIs that a client of the older protocol subscribed to."""
        connection: Any = getattr(ctx.session, "_connection", None)
        listener = self._sessions.get(id(connection))
        return listener.wanted if listener is not None else set()

    async def run(self) -> None:
        """Check for changes until cancelled."""
        await anyio.to_thread.run_sync(self._begin)
        while True:
            began = time.monotonic()
            for event in await anyio.to_thread.run_sync(self._checked_changes):
                await self.publish(event)
            took = time.monotonic() - began
            await anyio.sleep(max(SCAN_INTERVAL_S, took * _SCAN_PAUSE_RATIO))

    def _begin(self) -> None:
        self._view.library.refresh()
        self.changes(set(), first=True)

    def _checked_changes(self) -> list[ServerEvent]:
        """Check for changes; an error is logged and must not end the server."""
        try:
            return self._new_changes()
        except Exception as exc:  # noqa: BLE001 - see above
            reason = f"{type(exc).__name__}: {exc}"
            self._view.satchel.trace.record("failed", (), what="mcp", reason=reason)
            return []

    def _new_changes(self) -> list[ServerEvent]:
        self._view.library.refresh()  # includes changes of trust
        touched = self._view.manifests.changed()
        self._view.manifests.forget(touched)
        return self.changes(touched)


def _notification(event: ServerEvent, wanted: set[str]) -> Any:
    """The notification for a session of the older protocol; None when it is not subscribed."""
    if isinstance(event, ToolsListChanged):
        return types.ToolListChangedNotification()
    if isinstance(event, PromptsListChanged):
        return types.PromptListChangedNotification()
    if isinstance(event, ResourcesListChanged):
        return types.ResourceListChangedNotification()
    if event.uri not in wanted:
        return None
    return types.ResourceUpdatedNotification(
        params=types.ResourceUpdatedNotificationParams(uri=event.uri)
    )
