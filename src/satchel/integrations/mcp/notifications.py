"""Notifications of changes to the clients of the MCP server, for both generations of the protocol.

Clients of the older protocol are notified on their session, those of 2026-07-28 on the stream of
`subscriptions/listen`. No client waits for another: each session has a short queue.
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

from satchel.integrations.mcp.served_manifest import SKILL_FILE
from satchel.integrations.mcp.skill_uri import make_uri

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent

    from satchel.integrations.mcp.client_view import ClientView
    from satchel.skill.model import Skill

SCAN_INTERVAL_S = 0.5
"""Between two scans of the disk."""
_SCAN_PAUSE_RATIO = 10
"""The pause is at least this many times the duration of the scan."""


class LegacyListener:
    """One session of the older protocol: its subscriptions and its pending notifications.

    A pending notification is not added again, so the queue never exceeds the number of lists and
    subscribed URIs.
    """

    def __init__(self, session: ServerSession) -> None:
        self.subscribed_uris: set[str] = set()
        self._session = session
        self._pending: dict[str, Any] = {}
        self._has_pending = anyio.Event()

    def enqueue(self, event: ServerEvent) -> None:
        """Queue a notification if the session receives this event."""
        notification = _notification(event, self.subscribed_uris)
        if notification is not None:
            key = f"{type(event).__name__} {getattr(event, 'uri', '')}"
            self._pending.setdefault(key, notification)
            self._has_pending.set()

    async def send_pending(self) -> None:
        """Send pending notifications continuously, until the session has ended."""
        while True:
            await self._has_pending.wait()
            self._has_pending = anyio.Event()
            while self._pending:
                notification = self._pending.pop(next(iter(self._pending)))
                try:
                    await self._session.send_notification(notification)
                except Exception:  # noqa: BLE001 - the client has disconnected
                    return


class ChangeNotifier:
    """Watches the library while the server runs, and notifies all listeners."""

    def __init__(self, view: ClientView) -> None:
        self._view = view
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._sessions: dict[int, LegacyListener] = {}
        self._fingerprints = ("", "")
        self._skills: dict[str, Skill] = {}
        """The skills at the last check, by folder."""
        self.group: TaskGroup | None = None
        """Runs the senders of sessions; set while the server runs."""

    def find_changes(self, changed_folders: set[str]) -> list[ServerEvent]:
        """Return the events since the last check; `changed_folders` have changed served skills."""
        old_tools, old_prompts = self._fingerprints
        old_skills = self._skills
        self._remember_state()
        tools, prompts = self._fingerprints
        skills = self._skills
        updated = {folder for folder in changed_folders if folder in skills} | {
            folder
            for folder, skill in skills.items()
            if folder in old_skills and old_skills[folder].head is not skill.head
        }
        events: list[ServerEvent] = []
        if tools != old_tools:
            events.append(ToolsListChanged())
        if prompts != old_prompts:
            events.append(PromptsListChanged())
        if updated or skills.keys() != old_skills.keys() or prompts != old_prompts:
            # The extension defines no notification: its files are resources.
            events.append(ResourcesListChanged())
        uris = [make_uri(skills[folder].name, SKILL_FILE) for folder in sorted(updated)]
        return [*events, *(ResourceUpdated(uri) for uri in uris)]

    def _remember_state(self) -> None:
        self._fingerprints = self._view.fingerprints()
        skills = self._view.library.snapshot().skills
        self._skills = {skill.base_dir: skill for skill in skills}

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

        def unregister() -> None:
            self._sessions.pop(key, None)
            scope.cancel()

        async def send() -> None:
            with scope:
                await listener.send_pending()
                unregister()

        if connection is not None:
            connection.exit_stack.callback(unregister)
        self.group.start_soon(send)

    def subscriptions(self, ctx: ServerRequestContext[Any, Any]) -> set[str]:
        """Return the URIs that a client of the older protocol subscribed to."""
        connection: Any = getattr(ctx.session, "_connection", None)
        listener = self._sessions.get(id(connection))
        return listener.subscribed_uris if listener is not None else set()

    async def run(self) -> None:
        """Check for changes until cancelled."""
        await anyio.to_thread.run_sync(self._scan_first)
        while True:
            started_at = time.monotonic()
            for event in await anyio.to_thread.run_sync(self._scan):
                await self.publish(event)
            scan_s = time.monotonic() - started_at
            await anyio.sleep(max(SCAN_INTERVAL_S, scan_s * _SCAN_PAUSE_RATIO))

    def _scan_first(self) -> None:
        self._view.library.refresh()
        self._remember_state()

    def _scan(self) -> list[ServerEvent]:
        """Refresh the library and return the changes; an error is recorded in the trace."""
        try:
            self._view.library.refresh()  # includes changes of trust
            changed_folders = self._view.manifests.find_changed()
            self._view.manifests.forget(changed_folders)
            return self.find_changes(changed_folders)
        except Exception as exc:  # noqa: BLE001 - an error must not end the server
            reason = f"{type(exc).__name__}: {exc}"
            self._view.satchel.trace.record("failed", (), what="mcp", reason=reason)
            return []


def _notification(event: ServerEvent, subscriptions: set[str]) -> Any:
    """Return the notification for a session of the older protocol, if it is subscribed."""
    if isinstance(event, ToolsListChanged):
        return types.ToolListChangedNotification()
    if isinstance(event, PromptsListChanged):
        return types.PromptListChangedNotification()
    if isinstance(event, ResourcesListChanged):
        return types.ResourceListChangedNotification()
    if event.uri not in subscriptions:
        return None
    return types.ResourceUpdatedNotification(
        params=types.ResourceUpdatedNotificationParams(uri=event.uri)
    )
