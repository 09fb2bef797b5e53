"""What a library asks of a server: its list, from the cache while that holds, and files.

No question of a library waits long. The first one in a process waits up to two seconds for a fresh
list; after that a list that is too old is asked for beside, and used when it has come. A server
that does not answer leaves the list that was kept, and that is said.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import read_plain, write_atomic
from satchel.errors import SatchelError, ServerFailed
from satchel.library.supplier import Listing
from satchel.remote.entries import read_entries
from satchel.remote.kept import FAILED, Kept, drop_unlisted, is_due, note_use, sweep
from satchel.remote.line import Line
from satchel.remote.servers import without_secrets
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from mcp.client.client import Client

    from satchel.library.supplier import Served, ServedFile
    from satchel.remote.servers import Server
    from satchel.remote.wire import Listed
    from satchel.trace import Trace

PATIENCE = 2.0
"""Seconds that a look at the library waits, once in a process."""
_IMPORT = 30.0
"""Seconds that the first contact ever waits for packages to be imported."""
_LIST = 30.0
"""Seconds that a list may take, all pages together."""
_READ = 20.0
"""Seconds that a file may take."""
_FLOOR = 30.0
"""Seconds for which a list is good even if the server says it is not."""
_SOONEST = 1.0
"""Seconds between two lists, however often a server says that it changed."""
_CEILING = 24 * 3600.0
_RETRY = 30.0
"""Seconds after which a server that did not answer is asked again."""
_VERSION = 1
_MAX_KEPT = 256 << 20
_MAX_FAILED = 4096


class McpSupplier:
    """One server, as a library sees it."""

    def __init__(self, server: Server, folder: str, trace: Trace | None = None) -> None:
        """Take a server; it is not asked anything yet.

        Args:
            server: Which one.
            folder: Where its files are kept; the list is kept beside it.
            trace: Told of what is dropped.
        """
        self.server = server
        self._folder = folder
        self._trace = trace
        self._kept = folder + ".json"
        self._failed = folder + FAILED
        self._line = Line(server, self.suspect)
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._problems: tuple[Problem, ...] = ()
        """What was wrong with the entries of the list."""
        self._at = 0.0
        self._due = 0.0
        self._asked: threading.Event | None = None
        self._began = 0.0
        self._waited = False
        self._closing = False

    @property
    def label(self) -> str:
        """What the user calls it."""
        return self.server.name

    @property
    def at(self) -> float:
        """When the list was made, in seconds; 0 when there never was one."""
        return self._at

    def listing(self) -> Listing:
        """What there is, without a wait but for the first time."""
        asked = self._asking(due=False)
        with self._lock:
            wait, self._waited = asked is not None and not self._waited, True
        if wait and asked is not None:
            began = self._began
            if not self._at and not self._line.ready.is_set():
                self._line.ready.wait(_IMPORT)
                began = time.monotonic()
            if not asked.wait(max(began + PATIENCE - time.monotonic(), 0)):
                self._settle_without("it took too long", keep_asking=True)
        return self._listing or Listing({})

    def prepare(self) -> None:
        """Ask now if the list is due, and do not wait: others can be asked meanwhile."""
        self._asking(due=False)

    def refresh(self) -> Listing:
        """Ask the server now, and wait until it answered or did not."""
        asked = self._asking(due=True)
        self._waited = True
        self._line.ready.wait(_IMPORT)
        if asked is not None:
            asked.wait(_LIST + 5)
        return self.listing()

    def suspect(self) -> None:
        """The list may be old: the next look asks for it, and the one after that has it."""
        self._due = min(self._due, self._at + _SOONEST)

    def fetch(self, served: Served, file: ServedFile) -> bytes:
        """A file's bytes as the server sends them; the caller compares them.

        Raises:
            ServerFailed: they cannot be had.
        """

        async def work(client: Client) -> bytes:
            from satchel.remote.wire import read_file

            return await read_file(client, file.uri)

        try:
            future = self._line.ask(work, _READ)
            self._line.ready.wait(_IMPORT)
            return cast("bytes", future.result(_READ + 5))
        except TimeoutError:
            reason = "it took too long"
        except ServerFailed as exc:
            reason = exc.message
        raise ServerFailed(
            f"`{file.path}` of the skill `{served.name}` cannot be had from the server "
            f"`{self.label}`: {reason}",
            "Go on without it, or try again later",
        )

    def close(self) -> None:
        """Hang up."""
        self._closing = True  # what fails from here on is not the server's fault
        self._line.close()

    # --- asking ---------------------------------------------------------------------------

    def _asking(self, *, due: bool) -> threading.Event | None:
        """What is set when the list has come; None when nobody was asked.

        Args:
            due: Ask, whether the list is too old or not.
        """
        with self._lock:
            if self._listing is None:
                self._load()
            if self._asked is not None:
                return self._asked
            if not due and time.time() < self._due:
                return None
            self._closing = False
            asked = self._asked = threading.Event()
            self._began = time.monotonic()
        self._ask(asked)  # not under the lock: the answer takes it, and may be there at once
        return asked

    def _ask(self, asked: threading.Event) -> None:
        async def work(client: Client) -> Listed:
            from satchel.remote.wire import list_skills

            return await list_skills(client, self.server)

        def done(future: Future[Any]) -> None:
            came = False
            try:
                self._settle(cast("Listed", future.result()))
                came = True
            except SatchelError as exc:
                if self._closing:
                    return
                self._settle_without(f"{exc.message}: {exc.hint}" if exc.hint else exc.message)
            except Exception as exc:  # noqa: BLE001 - a thread of its own: it must be said here
                self._settle_without(f"{type(exc).__name__}: {exc}"[:200])
            finally:
                self._asked = None
                asked.set()
            if came and not self._closing:
                self.tidy()  # nobody waits for that

        self._line.ask(work, _LIST).add_done_callback(done)

    def _settle(self, listed: Listed) -> None:
        """A list has come."""
        served, problems, rows = read_entries(listed.rows, self.label)
        if listed.why:
            values = {"name": self.label, "why": listed.why, "count": str(len(served))}
            problems.insert(0, Problem("server-limit", self.server.target, values=values))
        now = time.time()
        ttl = min(max(listed.ttl, _FLOOR), _CEILING)
        with self._lock:
            self._at, self._due = now, now + ttl
            self._problems = tuple(problems)
            self._put(served, self._problems)
        self._save(rows, [list(problem) for problem in problems], now, ttl)
        with suppress(OSError):
            os.unlink(self._failed)

    def _settle_without(self, reason: str, *, keep_asking: bool = False) -> None:
        """No list has come: the one that was kept stands."""
        reason = without_secrets(self.server, reason)
        with self._lock:
            if not keep_asking:
                self._due = time.time() + _RETRY
            elif self._asked is None:
                return  # it came just now
            self._tell_failure(reason)
        self._note_failure(reason)

    def _tell_failure(self, reason: str) -> None:
        values = {"name": self.label, "reason": reason}
        code = "server-unreachable"
        if self._at:
            code = "server-stale"
            values["when"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._at))
        problem = Problem(code, self.server.target, values=values)
        known = self._listing or Listing({})
        self._put(known.served, (problem, *self._problems))

    def _put(self, served: Mapping[str, Served], problems: tuple[Problem, ...]) -> None:
        """Another list only when something in it is another."""
        old = self._listing
        if old is None or old.served != served or old.problems != problems:
            same = old is not None and old.served == served
            self._listing = Listing(old.served if old is not None and same else served, problems)

    # --- keeping --------------------------------------------------------------------------

    def tidy(self, *, now: bool = False) -> None:
        """Drop what was kept and is in no list any more; the trace says how much.

        Args:
            now: Look at what other servers sent too, even if somebody did lately.
        """
        dropped = Kept()
        if self._at and not any(one.code == "server-limit" for one in self._problems):
            dropped = drop_unlisted(self._folder, (self._listing or Listing({})).served)
        home = os.path.dirname(self._folder)
        if now or is_due(home):
            dropped = dropped.plus(sweep(home))
        if dropped.files and self._trace is not None:
            self._trace.record(
                "cleaned", (), what="mcp", server=self.label, files=dropped.files,
                bytes=dropped.size,
            )  # fmt: skip

    def _load(self) -> None:
        """What was kept: the list, and whether the server failed a moment ago."""
        self._load_list()
        self._load_failure()

    def _load_failure(self) -> None:
        """A server that just let another process wait is not waited for again."""
        import json

        try:
            table = json.loads(read_plain(self._failed, _MAX_FAILED))
            at, reason = float(table["at"]), str(table["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if 0 <= time.time() - at < _RETRY and self._due < at + _RETRY:
            self._due = at + _RETRY
            self._tell_failure(reason)

    def _note_failure(self, reason: str) -> None:
        import json

        table = {"at": time.time(), "reason": reason}
        with suppress(OSError):
            write_atomic(self._failed, json.dumps(table).encode(), private=True, durable=False)

    def _load_list(self) -> None:
        """The list as it was kept, if it is one of this server."""
        self._listing = Listing({})
        try:
            if os.path.getsize(self._kept) > _MAX_KEPT:
                return
            import json

            with open(self._kept, encoding="utf-8") as stream:
                table = json.load(stream)
            if table["version"] != _VERSION or table["target"] != self.server.target:
                return
            rows, at, ttl = table["skills"], float(table["at"]), float(table["ttl"])
            told = tuple(Problem(*row) for row in table["problems"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        note_use(self._kept)
        served, _, _ = read_entries(rows, self.label)
        self._at, self._due = at, min(at, time.time()) + ttl
        self._problems = told
        self._listing = Listing(served, told)

    def _save(self, rows: list[Any], problems: list[Any], at: float, ttl: float) -> None:
        import json

        table = {
            "version": _VERSION,
            "target": self.server.target,
            "at": at,
            "ttl": ttl,
            "skills": rows,
            "problems": problems,
        }
        try:
            data = json.dumps(table).encode()
            write_atomic(self._kept, data, private=True, durable=False)
        except (OSError, ValueError):
            return  # a cache that cannot be written is asked for again
