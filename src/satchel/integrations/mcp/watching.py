"""Who is told that something changed? Everybody who listens, within a second.

Clients of the older protocol hear of it on their session, those of 2026-07-28 on the stream that
they opened with `subscriptions/listen`. Each hears only what concerns its own part, and nobody
waits for another: a session that does not read has a short queue of its own, and is ended.
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

    from satchel.integrations.mcp.views import View, Views
    from satchel.library import Snapshot
    from satchel.library.watch import Watcher
    from satchel.skill.model import Skill

PERIOD = 0.1
"""Seconds between two questions to a watcher; it answers at once."""
POLL = 0.5
"""Seconds between two looks at the disk where nothing watches it."""
_SHARE = 2
"""Without a watcher a look may take a third of the time: after a long one the next waits longer."""
PATIENCE = 10.0
"""Seconds that a session over HTTP may take for one message before it is ended."""


class Ear:
    """One session of the older protocol: what it asked for, and what waits to be told it.

    A message that waits already is not put there again, so what waits never grows beyond the
    lists and the addresses that there are.
    """

    def __init__(self, session: ServerSession, key: str) -> None:
        self.key = key
        """The name of the session over HTTP; empty on stdio, where there is only one."""
        self.wanted: set[str] = set()
        self._session = session
        self._waiting: dict[str, Any] = {}
        self._more = anyio.Event()

    def put(self, event: ServerEvent) -> None:
        """Let it be told, if it wants to hear of it."""
        note = _note(event, self.wanted)
        if note is not None:
            self._waiting.setdefault(f"{type(event).__name__} {getattr(event, 'uri', '')}", note)
            self._more.set()

    async def speak(self) -> bool:
        """Tell it what waits, again and again; ends with whether it is to be ended."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._waiting:
                note = self._waiting.pop(next(iter(self._waiting)))
                try:
                    with anyio.fail_after(PATIENCE if self.key else None):
                        await self._session.send_notification(note)
                except TimeoutError:
                    return True
                except Exception:  # noqa: BLE001 - it went away
                    return False


class Told:
    """Who listens to one view."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)
        self.sessions: dict[int, Ear] = {}
        self._seen = ("", "")
        self._snapshot: Snapshot | None = None
        self._skills: dict[str, Skill] = {}

    def stale(self) -> bool:
        """Whether the library moved on since the last look."""
        return self.view.library.snapshot() is not self._snapshot

    def look(self, touched: set[str], *, first: bool = False) -> list[ServerEvent]:
        """What changed in this view since the last look; `touched` are folders of skills."""
        marks = self.view.marks()
        self._snapshot = self.view.library.snapshot()
        now = {skill.base_dir: skill for skill in self._snapshot.skills}
        before, self._skills = self._skills, now
        old, self._seen = self._seen, marks
        if first:
            return []
        touched = {folder for folder in touched if folder in now} | {
            folder
            for folder, skill in now.items()
            if folder in before and before[folder].head is not skill.head
        }
        events: list[ServerEvent] = []
        if marks[0] != old[0]:
            events.append(ToolsListChanged())
        if marks[1] != old[1]:
            events.append(PromptsListChanged())
        if touched or now.keys() != before.keys() or marks[1] != old[1]:
            # The extension has no word of its own: its files are resources.
            events.append(ResourcesListChanged())
        events += [ResourceUpdated(self.view.served.uri(now[one])) for one in sorted(touched)]
        return events

    async def tell(self, event: ServerEvent) -> None:
        """Tell all who listen; none of them is waited for."""
        await self.bus.publish(event)
        for ear in list(self.sessions.values()):
            ear.put(event)


class Watching:
    """Looks at the library while the server runs."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._told = {id(view): Told(view) for view in views.all()}
        self._watcher: Watcher | None = None
        self.group: TaskGroup | None = None
        """Where those speak who tell a session; set while the server runs."""
        self.end: Callable[[str], Awaitable[None]] | None = None
        """Ends a session over HTTP by its name."""

    def told(self, view: View) -> Told:
        """Who listens to a view."""
        return self._told[id(view)]

    async def greet(self, ctx: ServerRequestContext[Any, Any], view: View) -> None:
        """A client of the older protocol is there: its session hears of changes till it ends."""
        # There is no public way to the connection, and only it knows when it ends.
        connection: Any = getattr(ctx.session, "_connection", None)
        sessions = self.told(view).sessions
        key = id(connection)
        if key in sessions or self.group is None:
            return  # said twice: what it subscribed to stays
        ear = sessions[key] = Ear(ctx.session, getattr(connection, "session_id", None) or "")
        scope = anyio.CancelScope()

        def gone() -> None:
            sessions.pop(key, None)
            scope.cancel()

        if connection is not None:
            connection.exit_stack.callback(gone)
        self.group.start_soon(self._speak, ear, scope, gone)

    async def _speak(self, ear: Ear, scope: anyio.CancelScope, gone: Callable[[], None]) -> None:
        """Tell one session till it ends; whoever does not read is ended, and connects again."""
        with scope:
            stalled = await ear.speak()
            with anyio.CancelScope(shield=True):
                gone()
                if stalled and self.end is not None:
                    reason = f"a client did not read for {PATIENCE:g} s"
                    self._views.satchel.trace.record("failed", (), what="mcp", reason=reason)
                    await self.end(ear.key)

    def subscriptions(self, ctx: ServerRequestContext[Any, Any], view: View) -> set[str]:
        """The addresses that a client of the older protocol subscribed to."""
        connection: Any = getattr(ctx.session, "_connection", None)
        ear = self.told(view).sessions.get(id(connection))
        return ear.wanted if ear is not None else set()

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Look again and again, until cancelled."""
        await anyio.to_thread.run_sync(self._begin)
        if ready is not None:
            ready()
        try:
            while True:
                began = time.monotonic()
                changes = await anyio.to_thread.run_sync(self._looked)
                for told, events in changes:
                    for event in events:
                        await told.tell(event)
                took = time.monotonic() - began
                watched = self._watcher is not None
                await anyio.sleep(PERIOD if watched else max(POLL, took * _SHARE))
        finally:
            if self._watcher is not None:
                self._watcher.close()

    def _begin(self) -> None:
        library = self._views.satchel.library
        try:
            library.watch()  # so that whoever asks for the newest state has it for nothing
            self._watcher = library.new_watcher()
        except MissingExtra:
            self._watcher = None
        library.tools(refresh=True)
        for told in self._told.values():
            told.look(set(), first=True)

    def _looked(self) -> list[tuple[Told, list[ServerEvent]]]:
        """A look that goes wrong is said, and made again: it must not end the server."""
        try:
            return self._look()
        except Exception as exc:  # noqa: BLE001 - see above
            reason = f"{type(exc).__name__}: {exc}"
            self._views.satchel.trace.record("failed", (), what="mcp", reason=reason)
            return []

    def _look(self) -> list[tuple[Told, list[ServerEvent]]]:
        library = self._views.satchel.library
        still = self._watcher is not None and not self._watcher.changed()
        library.refresh()  # also sees what was trusted meanwhile
        if still and not any(told.stale() for told in self._told.values()):
            return []
        library.tools(refresh=True)
        paths = self._watcher.touched() if self._watcher is not None else None
        touched = self._views.manifests.changed(paths)
        self._views.manifests.forget(touched)
        return [(told, told.look(touched)) for told in self._told.values()]


def _note(event: ServerEvent, wanted: set[str]) -> Any:
    """The notification for a session of the older protocol; None when it does not want it."""
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
