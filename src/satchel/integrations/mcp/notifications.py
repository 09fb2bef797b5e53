"""Notifies clients of changes within a second.

Clients of the older protocol are notified on their session, those of 2026-07-28 on the stream of
`subscriptions/listen`. Each is notified of changes in its own part only, and never waits for
another: each session has a short queue, and one that does not read is ended.
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

from satchel.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent

    from satchel.integrations.mcp.client_view import ClientView, ClientViews
    from satchel.library import Snapshot
    from satchel.library.watcher import Watcher
    from satchel.skill.model import Skill

WATCHER_POLL_S = 0.1
"""Between two polls of the watcher, which answers at once."""
SCAN_INTERVAL_S = 0.5
"""Between two scans of the disk without a watcher."""
_SCAN_PAUSE_RATIO = 2
"""Without a watcher the pause is at least this many times the duration of the scan."""
SEND_TIMEOUT_S = 10.0
"""Time for one message to a session over HTTP, which is then ended."""


class LegacyListener:
    """One session of the older protocol: its subscriptions and its pending messages.

    A pending message is not added again, so the queue never exceeds the number of lists and
    subscribed URIs.
    """

    def __init__(self, session: ServerSession, key: str) -> None:
        self.key = key
        """The id of a session over HTTP; empty on stdio, which has a single session."""
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

    async def send_pending(self) -> bool:
        """Send pending messages continuously; returns whether the session must be ended."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._waiting:
                note = self._waiting.pop(next(iter(self._waiting)))
                try:
                    with anyio.fail_after(SEND_TIMEOUT_S if self.key else None):
                        await self._session.send_notification(note)
                except TimeoutError:
                    return True
                except Exception:  # noqa: BLE001 - it went away
                    return False


class Listeners:
    """The listeners of one view."""

    def __init__(self, view: ClientView) -> None:
        self.view = view
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)
        self.sessions: dict[int, LegacyListener] = {}
        self._seen = ("", "")
        self._snapshot: Snapshot | None = None
        self._skills: dict[str, Skill] = {}

    def is_outdated(self) -> bool:
        """Whether the library changed since the last check."""
        return self.view.library.snapshot() is not self._snapshot

    def changes(self, touched: set[str], *, first: bool = False) -> list[ServerEvent]:
        """The changes of this view since the last check; `touched` are folders of skills."""
        fingerprints = self.view.fingerprints()
        self._snapshot = self.view.library.snapshot()
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
        events += [ResourceUpdated(self.view.served.uri(now[one])) for one in sorted(touched)]
        return events

    async def publish(self, event: ServerEvent) -> None:
        """Notify all listeners without waiting for any."""
        await self.bus.publish(event)
        for listener in list(self.sessions.values()):
            listener.enqueue(event)


class ChangeNotifier:
    """Watches the library while the server runs."""

    def __init__(self, views: ClientViews) -> None:
        self._views = views
        self._listeners = {id(view): Listeners(view) for view in views.all()}
        self._watcher: Watcher | None = None
        self.group: TaskGroup | None = None
        """Runs the senders of sessions; set while the server runs."""
        self.end: Callable[[str], Awaitable[None]] | None = None
        """Ends a session over HTTP by its id."""

    def listeners(self, view: ClientView) -> Listeners:
        """The listeners of a view."""
        return self._listeners[id(view)]

    async def register(self, ctx: ServerRequestContext[Any, Any], view: ClientView) -> None:
        """Register the session of a client of the older protocol until it ends."""
        # There is no public access to the connection, which alone reports its end.
        connection: Any = getattr(ctx.session, "_connection", None)
        sessions = self.listeners(view).sessions
        key = id(connection)
        if key in sessions or self.group is None:
            return  # registered already: its subscriptions stay
        listener = sessions[key] = LegacyListener(
            ctx.session, getattr(connection, "session_id", None) or ""
        )
        scope = anyio.CancelScope()

        def gone() -> None:
            sessions.pop(key, None)
            scope.cancel()

        if connection is not None:
            connection.exit_stack.callback(gone)
        self.group.start_soon(self._send, listener, scope, gone)

    async def _send(
        self, listener: LegacyListener, scope: anyio.CancelScope, gone: Callable[[], None]
    ) -> None:
        """Send to one session until it ends; one that does not read is ended, and may reconnect."""
        with scope:
            stalled = await listener.send_pending()
            with anyio.CancelScope(shield=True):
                gone()
                if stalled and self.end is not None:
                    reason = f"a client did not read for {SEND_TIMEOUT_S:g} s"
                    self._views.satchel.trace.record("failed", (), what="mcp", reason=reason)
                    await self.end(listener.key)

    def subscriptions(self, ctx: ServerRequestContext[Any, Any], view: ClientView) -> set[str]:
        """The URIs that a client of the older protocol subscribed to."""
        connection: Any = getattr(ctx.session, "_connection", None)
        listener = self.listeners(view).sessions.get(id(connection))
        return listener.wanted if listener is not None else set()

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Check for changes until cancelled."""
        await anyio.to_thread.run_sync(self._begin)
        if ready is not None:
            ready()
        try:
            while True:
                began = time.monotonic()
                changes = await anyio.to_thread.run_sync(self._checked_changes)
                for listeners, events in changes:
                    for event in events:
                        await listeners.publish(event)
                took = time.monotonic() - began
                watched = self._watcher is not None
                await anyio.sleep(
                    WATCHER_POLL_S if watched else max(SCAN_INTERVAL_S, took * _SCAN_PAUSE_RATIO)
                )
        finally:
            if self._watcher is not None:
                self._watcher.close()

    def _begin(self) -> None:
        library = self._views.satchel.library
        try:
            library.watch()  # so that requests get the current state without a scan
            self._watcher = library.new_watcher()
        except MissingExtra:
            self._watcher = None
        library.refresh()
        for listeners in self._listeners.values():
            listeners.changes(set(), first=True)

    def _checked_changes(self) -> list[tuple[Listeners, list[ServerEvent]]]:
        """Check for changes; an error is logged and must not end the server."""
        try:
            return self._changes()
        except Exception as exc:  # noqa: BLE001 - see above
            reason = f"{type(exc).__name__}: {exc}"
            self._views.satchel.trace.record("failed", (), what="mcp", reason=reason)
            return []

    def _changes(self) -> list[tuple[Listeners, list[ServerEvent]]]:
        library = self._views.satchel.library
        still = self._watcher is not None and not self._watcher.changed()
        library.refresh()  # includes changes of trust
        if still and not any(listeners.is_outdated() for listeners in self._listeners.values()):
            return []
        paths = self._watcher.touched() if self._watcher is not None else None
        touched = self._views.manifests.changed(paths)
        self._views.manifests.forget(touched)
        return [(listeners, listeners.changes(touched)) for listeners in self._listeners.values()]


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
