"""An MCP server as a location of a library: its list, cached while valid, and its files.

A library never waits long. The first look in a process waits up to two seconds for a list that is
due; later ones start a request and use the list when it has come. If the server fails, the cached
list stays in use and a problem says so.

    remote/docs-1f2e….json      the last list of a server
    remote/contents/9f86…       file contents by SHA-256 digest, shared by all servers

The cache is limited in size. A file's modification time is the time of its last use.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import read_plain, write_atomic
from satchel._language import Message
from satchel.errors import SatchelError, ServerFailed
from satchel.library.locations import Location
from satchel.library.supplier import Listing
from satchel.remote.entries import read_entries
from satchel.remote.line import Line
from satchel.remote.servers import DEPTH, servers_of, without_secrets
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from mcp.client.client import Client

    from satchel.library.supplier import Served, ServedFile
    from satchel.remote.servers import Server
    from satchel.remote.wire import Listed
    from satchel.settings import Settings

FIRST_WAIT_S = 2.0
"""A library waits this long for a list, once in a process."""
_IMPORT_TIMEOUT_S = 30.0
"""The first contact waits this long for the SDK to be imported."""
_LIST_TIMEOUT_S = 30.0
"""For all pages together."""
_READ_TIMEOUT_S = 20.0
_MIN_TTL_S = 30.0
_MAX_TTL_S = 24 * 3600.0
_MIN_INTERVAL_S = 1.0  # between two lists, however often a server reports changes
_RETRY_S = 30.0  # after a failure
_VERSION = 1
_MAX_LIST_BYTES = 256 << 20
_MAX_CACHE_BYTES = 512 << 20


def served_locations(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """Return a location for each configured server, and problems. No server is asked yet."""
    servers, problems = servers_of(settings)
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

    def __init__(self, server: Server, folder: str) -> None:
        """Take a server and the base of its skills' paths, beside which its list is cached."""
        self.server = server
        self._kept = folder + ".json"
        self._home = os.path.dirname(folder)
        self._line = Line(server, self.suspect)
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._problems: tuple[Problem, ...] = ()
        """Problems of the list's entries."""
        self.at = 0.0
        """When the list was received, in seconds; 0 if never."""
        self._due = 0.0
        self._asked: threading.Event | None = None
        self._began = 0.0
        self._waited = False

    @property
    def label(self) -> str:
        """The user's name for the server."""
        return self.server.name

    def listing(self) -> Listing:
        """Return the current list; waits the first time only."""
        asked = self._asking(due=False)
        with self._lock:
            wait, self._waited = asked is not None and not self._waited, True
        if wait and asked is not None:
            began = self._began
            if not self.at:
                self._line.ready.wait(_IMPORT_TIMEOUT_S)
                began = max(began, self._line.ready_at)
            if not asked.wait(max(began + FIRST_WAIT_S - time.monotonic(), 0)):
                self._settle_without("it took too long", keep_asking=True)
        return self._listing or Listing({})

    def prepare(self) -> None:
        """Request the list if it is due, without waiting."""
        self._asking(due=False)

    def refresh(self) -> Listing:
        """Request the list now, and wait for it."""
        asked = self._asking(due=True)
        self._waited = True
        self._line.ready.wait(_IMPORT_TIMEOUT_S)
        if asked is not None:
            asked.wait(_LIST_TIMEOUT_S + 5)
        return self.listing()

    def suspect(self) -> None:
        """Make the list due: it may have changed."""
        self._due = min(self._due, self.at + _MIN_INTERVAL_S)

    def fetch(self, served: Served, file: ServedFile) -> bytes:
        """Return a file's bytes as the server sends them; the caller checks them.

        Raises:
            ServerFailed: they cannot be fetched.
        """

        async def work(client: Client) -> bytes:
            from satchel.remote.wire import read_file

            return await read_file(client, file.uri)

        try:
            answer = self._line.ask(work, _READ_TIMEOUT_S)
            self._line.ready.wait(_IMPORT_TIMEOUT_S)
            return cast("bytes", answer.result(_READ_TIMEOUT_S + 5))
        except TimeoutError:
            reason = "it took too long"
        except CancelledError:
            reason = "the connection was closed"
        except SatchelError as exc:
            reason = exc.message
        raise ServerFailed(
            Message(
                "`{file}` of the skill `{name}` cannot be had from the server `{server}`: {reason}",
                file=file.path,
                name=served.name,
                server=self.label,
                reason=reason,
            ),
            "Go on without it, or try again later",
        )

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    # --- requests -------------------------------------------------------------------------

    def _asking(self, *, due: bool) -> threading.Event | None:
        """Request a list if the cached one is too old or `due`; the event is set when it came."""
        with self._lock:
            if self._listing is None:
                self._load()
            if self._asked is not None:
                return self._asked
            if not due and time.time() < self._due:
                return None
            asked = self._asked = threading.Event()

        async def work(client: Client) -> Listed:
            from satchel.remote.wire import list_skills

            return await list_skills(client, self.server)

        def done(future: Future[Any]) -> None:
            try:
                self._settle(cast("Listed", future.result()))
            except CancelledError:
                pass  # the connection was closed here
            except SatchelError as exc:
                self._settle_without(f"{exc.message}: {exc.hint}" if exc.hint else exc.message)
            finally:
                self._asked = None
                asked.set()

        # Not under the lock: the answer takes it, and may be there at once.
        answer = self._line.ask(work, _LIST_TIMEOUT_S)
        self._began = time.monotonic()
        answer.add_done_callback(done)
        return asked

    def _settle(self, listed: Listed) -> None:
        served, problems, rows = read_entries(listed.rows, self.label)
        if listed.why:
            values = {"name": self.label, "why": listed.why, "count": str(len(served))}
            problems.insert(0, Problem("server-limit", self.server.target, values=values))
        now = time.time()
        ttl = min(max(listed.ttl, _MIN_TTL_S), _MAX_TTL_S)
        with self._lock:
            self.at, self._due = now, now + ttl
            self._problems = tuple(problems)
            self._put(served, self._problems)
        table = {
            "version": _VERSION, "target": self.server.target, "at": now, "ttl": ttl,
            "skills": rows, "problems": [list(problem) for problem in problems],
        }  # fmt: skip
        with suppress(OSError, ValueError):  # what cannot be cached is requested again
            write_atomic(self._kept, json.dumps(table).encode(), private=True, durable=False)
        sweep(self._home)

    def _settle_without(self, reason: str, *, keep_asking: bool = False) -> None:
        """Keep the cached list after a failure."""
        reason = without_secrets(self.server, reason)
        with self._lock:
            if not keep_asking:
                self._due = time.time() + _RETRY_S
            elif self._asked is None:
                return  # it came just now
            values = {"name": self.label, "reason": reason}
            code = "server-unreachable"
            if self.at:
                code = "server-stale"
                values["when"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.at))
            problem = Problem(code, self.server.target, values=values)
            known = self._listing or Listing({})
            self._put(known.served, (problem, *self._problems))

    def _put(self, served: Mapping[str, Served], problems: tuple[Problem, ...]) -> None:
        """Replace the list if it differs: libraries compare by identity."""
        old = self._listing
        if old is None or old.served != served or old.problems != problems:
            same = old is not None and old.served == served
            self._listing = Listing(old.served if old is not None and same else served, problems)

    def _load(self) -> None:
        """Load the cached list."""
        self._listing = Listing({})
        with suppress(OSError, ValueError, KeyError, TypeError):
            table = json.loads(read_plain(self._kept, _MAX_LIST_BYTES))
            if table["version"] == _VERSION and table["target"] == self.server.target:
                served, _, _ = read_entries(table["skills"], self.label)
                told = tuple(Problem(*row) for row in table["problems"])
                self.at = float(table["at"])
                self._due = min(self.at, time.time()) + float(table["ttl"])
                self._problems, self._listing = told, Listing(served, told)
                os.utime(self._kept)


def sweep(home: str, limit: int = _MAX_CACHE_BYTES) -> None:
    """Delete the least recently used files until the rest fits into `limit` bytes."""
    found: list[tuple[float, int, str]] = []
    for folder, _, names in os.walk(home):
        for name in names:
            with suppress(OSError):
                path = os.path.join(folder, name)
                info = os.lstat(path)
                found.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size


def forget(folder: str) -> None:
    """Delete a server's list, and all contents: those of other servers are fetched again."""
    with suppress(OSError):
        os.unlink(folder + ".json")
    shutil.rmtree(os.path.join(os.path.dirname(folder), "contents"), ignore_errors=True)
