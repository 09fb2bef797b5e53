"""An MCP server as a location of a library: its list, cached while valid, and its files.

A library never waits long. The first look in a process waits up to two seconds for a list that is
due; later ones start a request and use the list when it has come. If the server fails, the cached
list stays in use and a problem is reported. Every request has a connection of its own, in a thread
of its own: files are cached, so that requests are rare.

    remote/docs-1f2e….json      the last list of a server
    remote/contents/9f86…       file contents by SHA-256 digest, shared by all servers

`listed_skills` validates lists. The cache is limited in size. A file's modification time is the
time of its last use.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import read_plain, write_atomic
from satchel._optional import require
from satchel.errors import SatchelError, ServerFailed
from satchel.i18n import Message
from satchel.library.locations import Location
from satchel.library.remote.config import DEPTH, read_servers, without_secrets
from satchel.library.remote.listed_skills import read_entries
from satchel.library.supplier import ServedListing
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.client.client import Client

    from satchel.library.remote.client import ServerListing
    from satchel.library.remote.config import McpServer
    from satchel.library.supplier import ServedFile, ServedSkill
    from satchel.settings import Settings

    ClientWork = Callable[[Client], Awaitable[Any]]

FIRST_WAIT_S = 2.0
"""A library waits this long for a list, once in a process."""
_LIST_TIMEOUT_S = 30.0
"""For all pages together."""
_READ_TIMEOUT_S = 20.0
_CLOSE_TIMEOUT_S = 6.0
"""The SDK closes a program's input, sends SIGTERM after two seconds, SIGKILL after two more."""
_MIN_TTL_S = 30.0
_MAX_TTL_S = 24 * 3600.0
_MIN_INTERVAL_S = 1.0
"""Between two lists, however often files differ from them."""
_RETRY_DELAY_S = 30.0
_MAX_REQUESTED_SKILLS = 100
"""Addresses that a process asks a server for."""
_VERSION = 2
_MAX_LIST_BYTES = 256 << 20
_MAX_CACHE_BYTES = 512 << 20


def served_locations(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """Return a location for each configured server, and problems. No server is asked yet."""
    servers, problems = read_servers(settings)
    if servers and os.environ.get(DEPTH):
        values = {"count": str(len(servers))}
        return [], [*problems, Problem("server-nested", settings.paths.config, values=values)]
    cache = settings.paths.cache
    if servers and not cache:
        values = {"name": servers[0].name, "why": "there is no folder for a cache"}
        return [], [*problems, Problem("server-address", values=values)]
    folders = [os.path.join(cache, "remote", server.key) for server in servers]
    locations = [
        Location(
            folder,
            "server",
            f"mcp:{server.name}",
            trusted=True,  # only the user's own configuration names servers
            writable=False,
            supplier=McpSupplier(server, folder),
        )
        for server, folder in zip(servers, folders, strict=True)
    ]
    return locations, problems


class McpSupplier:
    """One server, as a library uses it."""

    def __init__(self, server: McpServer, folder: str) -> None:
        """Take a server and the base of its skills' paths, beside which its list is cached."""
        self.server = server
        self._cache_file = _list_path(folder)
        self._cache_folder = os.path.dirname(folder)
        self._lock = threading.Lock()
        self._running_tasks: dict[threading.Thread, asyncio.Task[Any]] = {}
        """Requests under way."""
        self._listing: ServedListing | None = None
        self._problems: tuple[Problem, ...] = ()
        """Problems of the list's entries."""
        self.received_at = 0.0
        """When the list was received, in seconds; 0 if never."""
        self._due_at = 0.0
        """When a new list is requested."""
        self._list_request: _ListRequest | None = None
        """The request for a list under way."""
        self._has_waited = False
        """Whether a caller of `listing` waited already."""
        self._table: dict[str, Any] = {"skills": [], "limit": 0, "at": 0.0, "ttl": 0.0}
        """The list in use, as it is cached."""
        self._requested: dict[str, Any] = {}
        """Address -> the entry of a skill that was requested by it; None when there is none."""

    @property
    def label(self) -> str:
        """The user's name for the server."""
        return self.server.name

    def listing(self) -> ServedListing:
        """Return the current list; waits the first time only."""
        request = self._request_list(force=False)
        with self._lock:
            has_waited, self._has_waited = self._has_waited, True
        if request is not None and not has_waited:
            seconds = request.started_at + FIRST_WAIT_S - time.monotonic()
            if not request.finished.wait(max(seconds, 0)):
                self._keep_cached("it took too long", is_running=True)
        return self._listing or ServedListing({})

    def prepare(self) -> None:
        """Request the list if it is due, without waiting."""
        self._request_list(force=False)

    def refresh(self) -> ServedListing:
        """Request the list now, and wait for it."""
        request = self._request_list(force=True)
        self._has_waited = True
        if request is not None:
            request.finished.wait(_LIST_TIMEOUT_S + 5)
        return self.listing()

    def request_skill(self, uri: str) -> None:
        """Ask for a skill by its address, once, and add it to the list if there is one."""
        if uri in self._requested or len(self._requested) >= _MAX_REQUESTED_SKILLS:
            return

        async def get(client: Client) -> Any:
            from satchel.library.remote.client import get_skill

            return await get_skill(client, uri)

        entry: Any = None
        # A server that does not answer, or has no such skill: the address is unknown.
        with suppress(SatchelError, TimeoutError, CancelledError):
            entry = self._start_request(get, _READ_TIMEOUT_S).result(_READ_TIMEOUT_S + 5)
        with self._lock:
            is_valid = _uri_of(entry) == uri
            self._requested[uri] = entry if is_valid else None
            if is_valid:
                self._use(self._table)

    def mark_stale(self) -> None:
        """Make the list due: it may have changed."""
        self._due_at = min(self._due_at, self.received_at + _MIN_INTERVAL_S)

    def fetch(self, file: ServedFile) -> bytes:
        """Return a file's bytes as the server sends them; the caller checks them.

        Raises:
            ServerFailed: they cannot be fetched.
        """

        async def read(client: Client) -> bytes:
            from satchel.library.remote.client import read_file

            return await read_file(client, file.uri)

        try:
            future = self._start_request(read, _READ_TIMEOUT_S)
            return cast("bytes", future.result(_READ_TIMEOUT_S + 5))
        except TimeoutError:
            reason = "it took too long"
        except CancelledError:
            reason = "the connection was closed"
        except SatchelError as exc:
            reason = exc.message
        raise ServerFailed(
            Message(
                "The server `{server}` cannot send `{file}`: {reason}",
                server=self.label,
                file=file.path,
                reason=reason,
            ),
            "Go on without it, or try again later",
        )

    def close(self) -> None:
        """Cancel requests under way, and end their programs."""
        atexit.unregister(self.close)
        # Each is cancelled once: a second time would break off the end of its program.
        tasks, self._running_tasks = self._running_tasks, {}
        for thread, task in tasks.items():
            with suppress(RuntimeError):  # its loop is closed already
                task.get_loop().call_soon_threadsafe(task.cancel)
            thread.join(_CLOSE_TIMEOUT_S)

    # --- requests -------------------------------------------------------------------------

    def _start_request(self, work: ClientWork, timeout_s: float) -> Future[Any]:
        """Run `work` with a client in another thread.

        Returns:
            Its result; a failure is a SatchelError with the reason.
        """
        require("mcp", "mcp")
        from satchel.library.remote.client import ConnectionNotes, connect, reason_of

        async def run_work() -> Any:
            notes = ConnectionNotes()
            try:
                async with asyncio.timeout(timeout_s), connect(self.server, notes) as client:
                    return await work(client)
            except Exception as exc:
                raise ServerFailed(reason_of(exc, self.server, notes)) from exc

        loop = asyncio.new_event_loop()
        task = loop.create_task(run_work())
        result: Future[Any] = Future()

        def run_loop() -> None:
            try:
                result.set_result(loop.run_until_complete(task))
            except asyncio.CancelledError:
                result.set_exception(CancelledError())
            except Exception as exc:  # noqa: BLE001 - raised where the result is waited for
                result.set_exception(exc)
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.close()
                self._running_tasks.pop(thread, None)

        thread = threading.Thread(target=run_loop, name=f"satchel-{self.label}", daemon=True)
        self._running_tasks[thread] = task
        atexit.unregister(self.close)  # registered once
        atexit.register(self.close)
        thread.start()
        return result

    def _request_list(self, *, force: bool) -> _ListRequest | None:
        """Request the list if the cached one is too old.

        Args:
            force: Request it also when the cached one may still be used.

        Returns:
            The request under way; None when there is none.
        """
        with self._lock:
            if self._listing is None:
                self._load()
            if self._list_request is not None:
                return self._list_request
            if not force and time.time() < self._due_at:
                return None
            request = self._list_request = _ListRequest()

        async def work(client: Client) -> ServerListing:
            from satchel.library.remote.client import list_skills

            return await list_skills(client)

        def handle_result(future: Future[Any]) -> None:
            try:
                self._accept(cast("ServerListing", future.result()))
            except CancelledError:
                pass  # the connection was closed here
            except SatchelError as exc:
                self._keep_cached(f"{exc.message}: {exc.hint}" if exc.hint else exc.message)
            finally:
                self._list_request = None
                request.finished.set()

        # Not under the lock: `handle_result` takes it, and may run at once.
        try:
            future = self._start_request(work, _LIST_TIMEOUT_S)
        except SatchelError as exc:  # the SDK is not installed
            future = Future[Any]()
            future.set_exception(exc)
        future.add_done_callback(handle_result)
        return request

    def _accept(self, listing: ServerListing) -> None:
        """Use and cache a list that the server sent."""
        table = {
            "version": _VERSION,
            "target": self.server.target,
            "at": time.time(),
            "ttl": min(max(listing.ttl_s, _MIN_TTL_S), _MAX_TTL_S),
            "skills": listing.entries,
            "limit": listing.exceeded_limit,
        }
        with self._lock:
            self._use(table)
        with suppress(OSError, ValueError):  # what cannot be cached is requested again
            write_atomic(self._cache_file, json.dumps(table).encode(), private=True, durable=False)
        evict(self._cache_folder)

    def _use(self, table: Mapping[str, Any]) -> None:
        """Use a list, from the server or the cache."""
        self._table = dict(table)
        listed = set(map(_uri_of, table["skills"]))
        requested = [
            entry
            for uri, entry in self._requested.items()
            if entry is not None and uri not in listed
        ]
        served, problems = read_entries([*table["skills"], *requested], self.label)
        if limit := table["limit"]:
            why = Message("it is too large: the limit is {part}", part=limit)
            values = {"name": self.label, "why": why, "count": str(len(served))}
            problems.insert(0, Problem("server-limit", self.server.target, values=values))
        self.received_at = float(table["at"])
        self._due_at = min(self.received_at, time.time()) + float(table["ttl"])
        self._problems = tuple(problems)
        self._replace_listing(served, self._problems)

    def _keep_cached(self, reason: str, *, is_running: bool = False) -> None:
        """Keep the cached list in use and report why there is no new one.

        Args:
            reason: Why.
            is_running: The request is still under way.
        """
        reason = without_secrets(self.server, reason)
        with self._lock:
            if not is_running:
                self._due_at = time.time() + _RETRY_DELAY_S
            elif self._list_request is None:
                return  # it came just now
            values = {"name": self.label, "reason": reason}
            code = "server-unreachable"
            if self.received_at:
                code = "server-stale"
                values["when"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.received_at))
            problem = Problem(code, self.server.target, values=values)
            listing = self._listing or ServedListing({})
            self._replace_listing(listing.served, (problem, *self._problems))

    def _replace_listing(
        self, served: Mapping[str, ServedSkill], problems: tuple[Problem, ...]
    ) -> None:
        """Replace the list if it differs: libraries compare by identity."""
        old = self._listing
        if old is None or old.served != served:
            self._listing = ServedListing(served, problems)
        elif old.problems != problems:
            self._listing = ServedListing(old.served, problems)

    def _load(self) -> None:
        """Use the cached list, if there is a valid one."""
        self._listing = ServedListing({})
        with suppress(OSError, ValueError, KeyError, TypeError):
            table = json.loads(read_plain(self._cache_file, _MAX_LIST_BYTES))
            if table["version"] == _VERSION and table["target"] == self.server.target:
                self._use(table)
                os.utime(self._cache_file)


def _uri_of(entry: Any) -> str:
    """The address of an entry; empty for one that is not valid."""
    return str(cast("dict[str, Any]", entry).get("uri", "")) if isinstance(entry, dict) else ""


class _ListRequest:
    """A request for a list under way."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.finished = threading.Event()


def _list_path(folder: str) -> str:
    """The cached list of the server whose skills lie in a folder."""
    return f"{folder}.json"


def evict(cache_folder: str, limit: int = _MAX_CACHE_BYTES) -> None:
    """Delete the least recently used files until the others fit into `limit` bytes."""
    files: list[tuple[float, int, str]] = []
    for folder, _, names in os.walk(cache_folder):
        for name in names:
            with suppress(OSError):
                path = os.path.join(folder, name)
                info = os.lstat(path)
                files.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size


def delete_cache(folder: str) -> None:
    """Delete a server's list, and all contents: those of other servers are fetched again."""
    with suppress(OSError):
        os.unlink(_list_path(folder))
    shutil.rmtree(os.path.join(os.path.dirname(folder), "contents"), ignore_errors=True)
