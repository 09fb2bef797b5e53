"""An MCP server as a location of a library: its list, cached while valid, and its files.

A library never waits long. The first look in a process waits up to two seconds for a list that is
due; later ones start a request and use the list when it has come. If the server fails, the cached
list stays in use and a problem is reported. Every request has a connection of its own, in a thread
of its own: files are cached, so that requests are rare.

    remote/docs-1f2e….json      the last list of a server
    remote/contents/9f86…       file contents by SHA-256 digest, shared by all servers

Nothing in a list is trusted: an entry is refused as a whole unless every file has one name below
the skill's own folder, a SHA-256 digest and a size within the limits of the extension. The cache is
limited in size. A file's modification time is the time of its last use.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import shutil
import threading
import time
import unicodedata
from collections import Counter
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from satchel._fs import read_plain, write_atomic
from satchel._optional import require
from satchel._unicode import replace_unprintable
from satchel.errors import SatchelError, ServerFailed
from satchel.i18n import Message
from satchel.library.locations import Location
from satchel.library.remote.config import DEPTH, servers_of, without_secrets
from satchel.library.supplier import SKILL_FILE, ServedFile, ServedListing, ServedSkill
from satchel.skill.file_tree import digest_of
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Mapping

    from mcp.client.client import Client

    from satchel.library.remote.client import ServerListing
    from satchel.library.remote.config import McpServer
    from satchel.settings import Settings

    Work = Callable[[Client], Awaitable[Any]]

MAX_FILES = 512
"""Files of one skill, a limit of the extension."""
MAX_SKILL_BYTES = 16 << 20
"""Bytes of one skill, a limit of the extension."""
_MAX_FRONTMATTER_BYTES = 64 * 1024
_MAX_URI_CHARS = 1024
_MAX_PART_BYTES = 200
_MAX_PARTS = 16
_MAX_PROBLEMS = 100
_MAX_NAME_CHARS_SHOWN = 80
_NAME = re.compile(r"(?=.{1,64}\Z)[^\W_]+(?:-[^\W_]+)*")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#]+)", re.DOTALL)
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


class Unusable(ValueError):
    """Why an entry is refused, as a phrase."""


def read_entries(rows: Iterable[Any], label: str) -> tuple[dict[str, ServedSkill], list[Problem]]:
    """Return the skills of a list by id, and problems."""
    taken: dict[str, ServedSkill] = {}
    problems: list[Problem] = []
    for row in rows:
        try:
            served = _entry(row, taken)
            taken[served.id.casefold()] = served
        except Unusable as exc:
            values = {"server": label, "name": _shown(row), "why": exc.args[0]}
            problems.append(Problem("served-refused", values=values))
    found = _with_names(list(taken.values()), label, problems)
    return found, problems[:_MAX_PROBLEMS]


def _entry(row: Any, taken: Container[str]) -> ServedSkill:
    if not isinstance(row, dict):
        raise Unusable("it is not valid")
    entry = cast("dict[str, Any]", row)
    uri, frontmatter, resources = (entry.get(key) for key in ("uri", "frontmatter", "resources"))
    if not isinstance(uri, str) or not isinstance(frontmatter, dict):
        raise Unusable("it is not valid")
    if resources == "dynamic":
        raise Unusable("its content changes from read to read")
    if not isinstance(resources, list):
        raise _bad_files("resources")
    fields = cast("dict[str, Any]", frontmatter)
    name = _name(fields)
    scheme, parts = _parts(uri)
    if parts[-2:] != [name, SKILL_FILE]:
        raise _bad_address(uri)
    base = parts[:-1]
    skill_id = "~".join(base) if scheme == "skill" else "~".join((scheme, *base))
    if (
        any("~" in part for part in base)
        or len(skill_id.encode()) > _MAX_PART_BYTES
        or skill_id.casefold() in taken
    ):
        raise _bad_address(uri)
    files = _files(cast("list[Any]", resources), scheme, base)
    if SKILL_FILE not in files or files[SKILL_FILE].uri != uri:
        raise _bad_files(SKILL_FILE)
    return ServedSkill(skill_id, name, uri, fields, files, _served_digest(uri, fields, files))


def _served_digest(
    uri: str, frontmatter: Mapping[str, Any], files: Mapping[str, ServedFile]
) -> str:
    """The digest over everything that is listed for a skill."""
    rows = {path: f"sha256:{file.digest} {file.size} {file.uri}" for path, file in files.items()}
    # Paths contain no NUL, so these two rows cannot collide with a file.
    rows["\0uri"] = uri
    text = json.dumps(frontmatter, sort_keys=True, default=str)
    rows["\0frontmatter"] = sha256(text.encode()).hexdigest()
    return digest_of(rows)


def _name(fields: dict[str, Any]) -> str:
    """Check the frontmatter, and return the name in it."""
    from satchel.security.text_rules import mixes_scripts

    name, description = fields.get("name"), fields.get("description")
    if (
        not isinstance(name, str)
        or not _NAME.fullmatch(name)
        or name != unicodedata.normalize("NFKC", name.lower())
    ):
        raise Unusable("its name is not valid")
    if not name.isascii() and mixes_scripts(name):
        raise Unusable("its name mixes letters of two alphabets that look alike")
    if not isinstance(description, str) or not description.strip():
        raise Unusable(Message("its frontmatter is not valid: {part}", part="description"))
    try:
        size = len(json.dumps(fields).encode("utf-8"))
    except (ValueError, RecursionError):
        size = _MAX_FRONTMATTER_BYTES + 1
    if size > _MAX_FRONTMATTER_BYTES:
        limit = f"> {_MAX_FRONTMATTER_BYTES} B"
        raise Unusable(Message("its frontmatter is not valid: {part}", part=limit))
    return name


def _bad_files(part: str) -> Unusable:
    return Unusable(Message("its list of files is not valid: {part}", part=_shown(part)))


def _bad_address(uri: str) -> Unusable:
    return Unusable(Message("its address is not valid: {part}", part=_shown(uri)))


def _files(rows: list[Any], scheme: str, base: list[str]) -> dict[str, ServedFile]:
    if len(rows) > MAX_FILES:
        raise Unusable(Message("it is too large: the limit is {part}", part=MAX_FILES))
    files: dict[str, ServedFile] = {}
    seen: set[str] = set()
    for row in rows:
        file = _file(row, scheme, base)
        alike = unicodedata.normalize("NFC", file.path).casefold()
        if alike in seen:
            raise _bad_files(file.path)
        seen.add(alike)
        files[file.path] = file
    if sum(file.size for file in files.values()) > MAX_SKILL_BYTES:
        raise Unusable(Message("it is too large: the limit is {part}", part=MAX_SKILL_BYTES))
    folders = {one[:at] for one in seen for at, sign in enumerate(one) if sign == "/"}
    if folders & seen:
        raise _bad_files(min(folders & seen))
    return files


def _file(row: Any, scheme: str, base: list[str]) -> ServedFile:
    entry = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    uri, digest, size = (entry.get(key) for key in ("uri", "digest", "size"))
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if (
        not isinstance(uri, str)
        or found is None
        or not isinstance(size, int)
        or isinstance(size, bool)
        or size < 0
    ):
        raise _bad_files(str(uri))
    own, parts = _parts(uri)
    if own != scheme or parts[: len(base)] != base or len(parts) <= len(base):
        raise _bad_files(uri)
    return ServedFile("/".join(parts[len(base) :]), uri, found[1], size)


def _parts(uri: str) -> tuple[str, list[str]]:
    """Split an address into its scheme and names, each of which is one name in one folder."""
    found = _SCHEME.fullmatch(uri) if len(uri) <= _MAX_URI_CHARS else None
    if found is None:
        raise _bad_address(uri)
    # A byte sequence that is not UTF-8 becomes a character that no name may have.
    parts = [unquote(part, errors="surrogateescape") for part in found[2].split("/")]
    if len(parts) > _MAX_PARTS or not all(map(_is_part, parts)):
        raise _bad_address(uri)
    return found[1], parts


def _is_part(part: str) -> bool:
    """Whether a text is the name of one file or folder on every system."""
    return (
        part.isprintable()
        and 0 < len(part.encode()) <= _MAX_PART_BYTES
        and not part.endswith((".", " "))
        and part[0] != " "
        and not any(sign in '/\\:*?"<>|%' for sign in part)
        and not _RESERVED.fullmatch(part)
    )


def _with_names(
    found: list[ServedSkill], label: str, problems: list[Problem]
) -> dict[str, ServedSkill]:
    """Name skills of the same name by their paths: the extension forbids preferring one."""
    names = Counter(served.name for served in found)
    named: dict[str, ServedSkill] = {}
    for served in found:
        longer = served.id.replace("~", "-")
        if names[served.name] > 1 and longer not in names:
            values = {"server": label, "name": served.name, "offered": longer}
            problems.append(Problem("served-renamed", served.uri, values=values))
            named[served.id] = served._replace(name=longer)
        else:
            named[served.id] = served
    return named


def _shown(row: Any) -> str:
    """Return how an entry is called in a problem."""
    uri = cast("dict[str, Any]", row).get("uri") if isinstance(row, dict) else row
    text = str(uri)[: _MAX_NAME_CHARS_SHOWN + 1]
    plain = replace_unprintable(text, "?").replace("`", "?")
    short = len(plain) <= _MAX_NAME_CHARS_SHOWN
    return plain if short else plain[:_MAX_NAME_CHARS_SHOWN] + "…"


FIRST_WAIT_S = 2.0
"""A library waits this long for a list, once in a process."""
_LIST_TIMEOUT_S = 30.0
"""For all pages together."""
_READ_TIMEOUT_S = 20.0
_CLOSE_TIMEOUT_S = 6.0
"""The SDK closes a program's input, sends SIGTERM after two seconds, SIGKILL after two more."""
_MIN_TTL_S = 30.0
_MAX_TTL_S = 24 * 3600.0
_MIN_INTERVAL_S = 1.0  # between two lists, however often files differ
_RETRY_DELAY_S = 30.0
_VERSION = 2
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

    def __init__(self, server: McpServer, folder: str) -> None:
        """Take a server and the base of its skills' paths, beside which its list is cached."""
        self.server = server
        self._cache_file = folder + ".json"
        self._home = os.path.dirname(folder)
        self._lock = threading.Lock()
        self._running: dict[threading.Thread, asyncio.Task[Any]] = {}
        """Requests under way."""
        self._listing: ServedListing | None = None
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

    def listing(self) -> ServedListing:
        """Return the current list; waits the first time only."""
        asked = self._request_list(due=False)
        with self._lock:
            wait, self._waited = asked is not None and not self._waited, True
        if wait and asked is not None:
            left = self._began + FIRST_WAIT_S - time.monotonic()
            if not asked.wait(max(left, 0)):
                self._keep_cached("it took too long", still_running=True)
        return self._listing or ServedListing({})

    def prepare(self) -> None:
        """Request the list if it is due, without waiting."""
        self._request_list(due=False)

    def refresh(self) -> ServedListing:
        """Request the list now, and wait for it."""
        asked = self._request_list(due=True)
        self._waited = True
        if asked is not None:
            asked.wait(_LIST_TIMEOUT_S + 5)
        return self.listing()

    def mark_stale(self) -> None:
        """Make the list due: it may have changed."""
        self._due = min(self._due, self.at + _MIN_INTERVAL_S)

    def fetch(self, file: ServedFile) -> bytes:
        """Return a file's bytes as the server sends them; the caller checks them.

        Raises:
            ServerFailed: they cannot be fetched.
        """

        async def work(client: Client) -> bytes:
            from satchel.library.remote.client import read_file

            return await read_file(client, file.uri)

        try:
            return cast("bytes", self._ask(work, _READ_TIMEOUT_S).result(_READ_TIMEOUT_S + 5))
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
        running, self._running = self._running, {}
        for thread, task in running.items():
            with suppress(RuntimeError):  # its loop is closed already
                task.get_loop().call_soon_threadsafe(task.cancel)
            thread.join(_CLOSE_TIMEOUT_S)

    # --- requests -------------------------------------------------------------------------

    def _ask(self, work: Work, seconds: float) -> Future[Any]:
        """Run `work` with a client in another thread; a failure is a SatchelError with the reason.

        It may take `seconds`, connecting included.
        """
        require("mcp", "mcp")
        from satchel.library.remote.client import ConnectionNotes, connect, reason_of

        async def connected() -> Any:
            notes = ConnectionNotes()
            try:
                async with asyncio.timeout(seconds), connect(self.server, notes) as client:
                    return await work(client)
            except Exception as exc:
                raise ServerFailed(reason_of(exc, self.server, notes)) from exc

        loop = asyncio.new_event_loop()
        task = loop.create_task(connected())
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(loop.run_until_complete(task))
            except asyncio.CancelledError:
                answer.set_exception(CancelledError())
            except Exception as exc:  # noqa: BLE001 - raised where the answer is waited for
                answer.set_exception(exc)
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.close()
                self._running.pop(thread, None)

        thread = threading.Thread(target=run, name=f"satchel-{self.label}", daemon=True)
        self._running[thread] = task
        atexit.unregister(self.close)  # registered once
        atexit.register(self.close)
        thread.start()
        return answer

    def _request_list(self, *, due: bool) -> threading.Event | None:
        """Request a list if the cached one is too old or `due`; the event is set when it came."""
        with self._lock:
            if self._listing is None:
                self._load()
            if self._asked is not None:
                return self._asked
            if not due and time.time() < self._due:
                return None
            asked = self._asked = threading.Event()

        async def work(client: Client) -> ServerListing:
            from satchel.library.remote.client import list_skills

            return await list_skills(client)

        def done(future: Future[Any]) -> None:
            try:
                self._accept(cast("ServerListing", future.result()))
            except CancelledError:
                pass  # the connection was closed here
            except SatchelError as exc:
                self._keep_cached(f"{exc.message}: {exc.hint}" if exc.hint else exc.message)
            finally:
                self._asked = None
                asked.set()

        # Not under the lock: the answer takes it, and may be there at once.
        try:
            answer = self._ask(work, _LIST_TIMEOUT_S)
        except SatchelError as exc:  # the SDK is not installed
            answer = Future[Any]()
            answer.set_exception(exc)
        self._began = time.monotonic()
        answer.add_done_callback(done)
        return asked

    def _accept(self, listed: ServerListing) -> None:
        now = time.time()
        ttl = min(max(listed.ttl, _MIN_TTL_S), _MAX_TTL_S)
        table = {"version": _VERSION, "target": self.server.target, "at": now, "ttl": ttl}
        table |= {"skills": listed.rows, "limit": listed.limit}
        with self._lock:
            self._use(table)
        with suppress(OSError, ValueError):  # what cannot be cached is requested again
            write_atomic(self._cache_file, json.dumps(table).encode(), private=True, durable=False)
        evict(self._home)

    def _use(self, table: Mapping[str, Any]) -> None:
        """Take over a list, from the server or the cache."""
        served, problems = read_entries(table["skills"], self.label)
        if limit := table["limit"]:
            why = Message("it is too large: the limit is {part}", part=limit)
            values = {"name": self.label, "why": why, "count": str(len(served))}
            problems.insert(0, Problem("server-limit", self.server.target, values=values))
        self.at = float(table["at"])
        self._due = min(self.at, time.time()) + float(table["ttl"])
        self._problems = tuple(problems)
        self._replace_listing(served, self._problems)

    def _keep_cached(self, reason: str, *, still_running: bool = False) -> None:
        reason = without_secrets(self.server, reason)
        with self._lock:
            if not still_running:
                self._due = time.time() + _RETRY_DELAY_S
            elif self._asked is None:
                return  # it came just now
            values = {"name": self.label, "reason": reason}
            code = "server-unreachable"
            if self.at:
                code = "server-stale"
                values["when"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.at))
            problem = Problem(code, self.server.target, values=values)
            known = self._listing or ServedListing({})
            self._replace_listing(known.served, (problem, *self._problems))

    def _replace_listing(
        self, served: Mapping[str, ServedSkill], problems: tuple[Problem, ...]
    ) -> None:
        """Replace the list if it differs: libraries compare by identity."""
        old = self._listing
        if old is None or old.served != served or old.problems != problems:
            same = old is not None and old.served == served
            self._listing = ServedListing(
                old.served if old is not None and same else served, problems
            )

    def _load(self) -> None:
        self._listing = ServedListing({})
        with suppress(OSError, ValueError, KeyError, TypeError):
            table = json.loads(read_plain(self._cache_file, _MAX_LIST_BYTES))
            if table["version"] == _VERSION and table["target"] == self.server.target:
                self._use(table)
                os.utime(self._cache_file)


def evict(home: str, limit: int = _MAX_CACHE_BYTES) -> None:
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


def delete_cache(folder: str) -> None:
    """Delete a server's list, and all contents: those of other servers are fetched again."""
    with suppress(OSError):
        os.unlink(folder + ".json")
    shutil.rmtree(os.path.join(os.path.dirname(folder), "contents"), ignore_errors=True)
