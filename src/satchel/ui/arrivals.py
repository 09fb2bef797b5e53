"""Sources that somebody brought and has not decided about: uploads, and repositories being fetched.

    fetching   git is at work in a thread; `line` says how far it is
    choosing   it holds several skills, and somebody must say which
    planned    a plan was made of it (`plan` is its key); others can still be chosen
    failed     `error` says why

A source stays open till its plan is carried out, refused, or nobody came back for a while: so ids
can be changed without sending anything again.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import copy_context
from ipaddress import IPv4Address, IPv6Address, ip_address
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from satchel._language import listed, say
from satchel.errors import InternalError, InvalidInput, NotFound, Refused, SatchelError
from satchel.library.lockfile import Place
from satchel.store.archive.rules import Names, check_path, ignored_part, shown
from satchel.store.choose import choose, with_ids
from satchel.store.scope import unchanged
from satchel.store.sources import find_skills, source_of
from satchel.store.sources.base import redacted
from satchel.store.sources.git import GitSource
from satchel.store.sources.words import ENDINGS, ArchiveSource, FolderSource
from satchel.store.stage import remove_tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from starlette.requests import Request

    from satchel.store.choose import Pick
    from satchel.store.plan import Plan
    from satchel.store.sources import Bundle, Source
    from satchel.store.store import Store

# --- uploads ------------------------------------------------------------------------------
# Starlette parses the form. `bodies.Body` counts the bytes while they arrive, and the parser keeps
# at most `MAX_FILES * SPOOL_BYTES` of them in memory.

MAX_FILES = 500
"""Files of one folder; each may hold a file descriptor. A larger folder is sent as a zip."""
SPOOL_BYTES = 64 << 10
"""Bytes of one file that are kept in memory."""
MAX_FIELDS = 32
MAX_FIELD_BYTES = 4_096
Scope = Literal["project", "global"]


class Upload(NamedTuple):
    """An archive or a folder that was uploaded."""

    scope: Scope
    path: str
    name: str
    """As the browser calls it: a label, never a path."""
    programs: tuple[str, ...] = ()
    """Files of a folder that were made executable: browsers do not send that."""
    ignored: tuple[str, ...] = ()
    """Parts of paths that are never part of a skill."""


class _Parser(MultiPartParser):
    """Starlette's parser, with less in memory; a form without its last boundary is refused."""

    spool_max_size = SPOOL_BYTES
    ended = False

    def on_end(self) -> None:
        self.ended = True

    async def until_end(self, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            yield piece
        if not self.ended:  # raised in the parser, so that it closes its files
            raise MultiPartException("")


@asynccontextmanager
async def spool() -> AsyncGenerator[str]:
    """An empty temporary folder that only this user may enter; removed here only on an error."""
    folder = await run_sync(lambda: mkdtemp(prefix="satchel-upload-"))
    try:
        yield folder
    except BaseException:
        with anyio.CancelScope(shield=True):
            await run_sync(remove_tree, folder)
        raise


async def receive_archive(request: Request, folder: str) -> Upload:
    """Save the one file of a form.

    Raises:
        HTTPException: the form is too large, malformed, or ended too early.
        SatchelError: there is no file or more than one, or the disk refuses it.
    """
    async with _parsed(request, 2) as (scope, files):
        if not files:
            raise InvalidInput(say("No file was chosen"), say("Choose a zip or a tar"))
        if len(files) > 1:
            raise InvalidInput(say("One archive at a time"), say("Send the others one by one"))
        path = os.path.join(folder, "archive")
        await run_sync(_save, files[0], path)
        name = shown(re.split(r"[\\/]", files[0].filename or "")[-1])
        return Upload(scope, path, name)


async def receive_folder(request: Request, folder: str) -> Upload:
    """Save the files of a form under the paths that they have in the folder.

    Raises:
        HTTPException: as `receive_archive`.
        SatchelError: there is no file, a path is unsafe, or the disk refuses it.
    """
    async with _parsed(request, MAX_FILES) as (scope, files):
        if not files:
            raise InvalidInput(say("No folder was chosen"), say("Choose a folder with a SKILL.md"))
        return await run_sync(_save_all, files, os.path.join(folder, "files"), scope)


@asynccontextmanager
async def _parsed(
    request: Request, max_files: int
) -> AsyncGenerator[tuple[Scope, list[UploadFile]]]:
    """The scope and the files of a form; an input without a file sends an empty file name."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HTTPException(415, say("Send the files as a form (`multipart/form-data`)"))
    parser = _Parser(
        request.headers,
        request.stream(),
        max_files=max_files,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )
    parser.stream = parser.until_end(parser.stream)
    try:
        with unchanged(say("The upload")):
            form = await parser.parse()
    except MultiPartException as exc:
        raise HTTPException(400, exc.message) from exc
    except ClientDisconnect as exc:
        raise HTTPException(400, say("The upload ended too early")) from exc
    sent = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
    try:
        scope: Scope = "global" if form.get("scope") == "global" else "project"
        yield scope, [one for one in sent if one.filename]
    finally:
        await form.close()


def _save(file: UploadFile, path: str) -> None:
    with unchanged(say("The upload")), open(path, "xb") as stream:
        shutil.copyfileobj(file.file, stream)


def _save_all(files: Sequence[UploadFile], root: str, scope: Scope) -> Upload:
    """Save files under their paths; what begins with `#!` is made executable.

    Raises:
        Unsafe: a path is not plain on every system, or two files have one name on some system.
    """
    os.mkdir(root, 0o700)
    names, ignored, programs = Names(), dict[str, None](), list[str]()
    for file in files:
        name = file.filename or ""
        check_path(name)
        if part := ignored_part(name):
            ignored[part] = None
            continue
        names.add(name)
        path = os.path.join(root, *name.split("/"))
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        _save(file, path)
        file.file.seek(0)
        if file.file.read(2) == b"#!":
            os.chmod(path, 0o700)
            programs.append(name)
    inside = os.listdir(root)
    if len(inside) == 1 and os.path.isdir(picked := os.path.join(root, inside[0])):
        # All paths begin with the name of the folder that was picked.
        return Upload(scope, picked, shown(inside[0]), tuple(programs), tuple(ignored))
    return Upload(scope, root, say("folder"), tuple(programs), tuple(ignored))


# --- addresses ----------------------------------------------------------------------------
# Who came by the link sits at this machine and may name its folders. Who came by a password may be
# anybody's browser: they reach no folder of this machine, and no address that only this machine
# and its neighbours can reach.

_ELSEWHERE = re.compile(
    r"(?:git\+)?(?:(?i:https?|ssh|git)://"
    r"|[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^\s:])"
)
_SCP = re.compile(r"[^@/:]+@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):")
_NAT64 = IPv6Address("64:ff9b::")


def check_elsewhere(text: str) -> None:
    """Refuse whatever is no address of a repository elsewhere, such as a path of this machine.

    Raises:
        InvalidInput: it is none.
    """
    if not _ELSEWHERE.match(text):
        raise InvalidInput(
            say("`{address}` is no address of a repository", address=shown(redacted(text))),
            say("Use `https://…`; who sits at this machine also `ssh://…` or `git@host:path`"),
        )


def check_public(source: Source) -> tuple[str, ...]:
    """Refuse a repository on this machine or in its own network.

    Returns the host's addresses: who fetches must go to these. Its name may lead elsewhere when it
    is asked again.

    Raises:
        Refused: one of the host's addresses is not of the open internet.
        NotFound: nobody knows the host.
    """
    from socket import SOCK_STREAM, gaierror, getaddrinfo

    scp = _SCP.match(source.url)
    host = scp["host"] if scp else urlsplit(source.url).hostname or ""
    try:
        rows = getaddrinfo(host, None, type=SOCK_STREAM) if host else []
    except (gaierror, UnicodeError):
        rows = []
    if not rows:
        raise NotFound(say("There is no host `{host}`", host=shown(host)), say("Check the address"))
    found = tuple(dict.fromkeys(str(row[4][0]) for row in rows))
    if not all(map(is_public, found)):
        raise Refused(
            say("`{host}` is this machine, or in its own network", host=shown(host)),
            say("Import it in a terminal of this machine, or send a zip"),
        )
    return found


def is_public(text: str) -> bool:
    """Whether an address is one of the open internet."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and (within := _within(address)) is not None:
        address = within
    return address.is_global and not address.is_multicast


def _within(address: IPv6Address) -> IPv4Address | None:
    """The older kind of address that one of the newer kind leads to."""
    if int(address) >> 32 == int(_NAT64) >> 32:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


PATIENCE = 1_800.0
"""Seconds that a source waits for somebody's choice."""
MOST = 16
"""Sources that are open at a time; the oldest gives way."""
MOST_FETCHING = 4
State = Literal["fetching", "choosing", "planned", "failed"]


class Arrival:
    """One source that somebody brought."""

    def __init__(self, store: Store, label: str, path: str = "") -> None:
        """Begin.

        Args:
            store: Where its skills would go.
            label: How people call the source.
            path: The folder within it that was asked for.
        """
        self.key = secrets.token_urlsafe(18)
        self.store = store
        self.label = label
        self.path = path
        self.since = time.monotonic()
        self.state: State = "fetching"
        self.line = ""
        """What git says it is doing."""
        self.error: SatchelError | None = None
        self.picks: tuple[Pick, ...] = ()
        """Every skill of it, under the id that it would get."""
        self.plan = ""
        self.chosen: Mapping[str, str] | None = None
        """What was chosen last: folder -> id; everything when None."""
        self.cancelled = threading.Event()
        self.bundle: Bundle | None = None
        self.held = ExitStack()
        self.hold = threading.Lock()
        """Whoever reads the source has it."""
        self.turn = threading.Lock()
        """Whoever makes a plan of it has it: one plan at a time."""

    @property
    def is_over(self) -> bool:
        """Nobody came back for it."""
        return time.monotonic() - self.since > PATIENCE

    def open(
        self, source: Source, ref: str = "", place: Place | None = None, name: str = ""
    ) -> None:
        """Open the source and see which skills it holds.

        Raises:
            SatchelError: it cannot be read, or holds none.
        """
        bundle = self.held.enter_context(source.fetch(ref=ref, progress=self._told))
        if place is not None:
            bundle = bundle._replace(place=place._replace(path=self.path), name=name)
        with unchanged(self.label):
            found = find_skills(bundle.tree, self.path or bundle.place.path, name=bundle.name)
        if not found:
            raise NotFound(
                say("There is no SKILL.md in `{source}`", source=self.label),
                say("A skill is a folder with a SKILL.md or a skill.yaml"),
            )
        self.bundle = bundle
        self.picks = tuple(with_ids(found))

    def planned(self, ids: Mapping[str, str] | None = None) -> Plan:
        """A plan for some of its skills: folder within the source -> id; all of them when None.

        Raises:
            SatchelError: an id cannot be one, nothing was chosen, or it was closed meanwhile.
        """
        try:
            with self.hold:
                if self.bundle is None:
                    raise _not_open()
                wanted = self.picks if ids is None else choose(self.bundle, path=self.path, ids=ids)
                plan = self.store.plan_picked(self.bundle, wanted)
        finally:
            # Whoever dropped it meanwhile could not close it: we held it.
            if self.cancelled.is_set():
                self.close()
        if self.cancelled.is_set():
            plan.close()
            raise _not_open()
        return plan

    def close(self) -> None:
        """Let go of everything, also of a fetch under way."""
        self.cancelled.set()
        with self.hold, suppress(OSError):
            self.bundle = None
            self.held.close()

    def _told(self, line: str) -> None:
        self.line = line
        if self.cancelled.is_set():
            raise Refused(say("It was cancelled"), say("Begin again"))


class Arrivals:
    """The sources that wait."""

    def __init__(
        self, put: Callable[[Store, Plan, Arrival], str], unput: Callable[[str], None]
    ) -> None:
        """Nothing waits yet.

        Args:
            put: Keeps a plan that was made of an arrival; returns the plan's key.
            unput: Throws such a plan away, if it still waits.
        """
        self._put = put
        self._unput = unput
        self._open: dict[str, Arrival] = {}
        self._hold = threading.Lock()

    def archive(self, store: Store, sent: Upload, spool: str) -> Arrival:
        """An archive that was uploaded; `spool` is removed with the arrival.

        Raises:
            SatchelError: it breaks a rule, or holds no skill.
        """
        return self._brought(Arrival(store, sent.name), ArchiveSource(sent.path, sent.name), spool)

    def folder(self, store: Store, sent: Upload, spool: str) -> Arrival:
        """A folder that was uploaded; `spool` is removed with the arrival.

        Raises:
            SatchelError: as `archive`.
        """
        notes: list[str] = []
        if sent.programs:
            names = listed(f"`{shown(one)}`" for one in sent.programs[:20])
            notes.append(
                say(
                    "Taken for programs, since they begin with `#!` and a browser does not say: "
                    "{names}",
                    names=names,
                )
            )
        if sent.ignored:
            names = listed(f"`{shown(one)}`" for one in sent.ignored[:20])
            notes.append(say("Left out: {names}", names=names))
        source = FolderSource(sent.path, sent.name)
        return self._brought(Arrival(store, sent.name), source, spool, notes)

    def _brought(
        self, arrival: Arrival, source: Source, spool: str, notes: Sequence[str] = ()
    ) -> Arrival:
        label = arrival.label
        arrival.held.callback(remove_tree, spool)
        try:
            # What is written down is what its sender calls it: our copy will be gone.
            arrival.open(source, place=Place("upload", label), name=ENDINGS.sub("", label))
        except BaseException:
            arrival.close()
            raise
        if notes and arrival.bundle is not None:
            arrival.bundle = arrival.bundle._replace(notes=(*arrival.bundle.notes, *notes))
        arrival.state = "choosing"
        self._keep(arrival)
        try:
            return self._settled(arrival)
        except BaseException:
            self.drop(arrival.key)
            raise

    def fetch(
        self, store: Store, address: str, ref: str, path: str, *, public: bool = False
    ) -> Arrival:
        """A repository; it is fetched while the reader waits, and can be cancelled.

        Args:
            store: Where its skills would go.
            address: Of the repository, or a path of this machine.
            ref: The branch, tag or commit; empty: the default.
            path: The folder within it.
            public: Only from the open internet, and from nowhere that its host points to.

        Raises:
            SatchelError: the address is none, or many are being fetched already.
        """
        source = source_of(address, base=store.scope.root)
        path = path.strip().strip("/") or getattr(source, "path", "")
        arrival = Arrival(store, source.url, path)
        self._keep(arrival, fetching=True)

        def run() -> None:
            try:
                with arrival.hold:
                    if public and isinstance(source, GitSource):
                        source.pinned = check_public(source)
                    arrival.open(source, ref=ref)
                self._settled(arrival)
            except SatchelError as exc:
                arrival.error, arrival.state = exc, "failed"
            except Exception as exc:  # noqa: BLE001 - a thread's end must be told to its page
                words = say("Something went wrong here: {reason}", reason=type(exc).__name__)
                arrival.error, arrival.state = InternalError(words), "failed"
            if arrival.cancelled.is_set() or arrival.state == "failed":
                arrival.close()

        # The thread speaks the language of whoever asked.
        context = copy_context()
        threading.Thread(
            target=context.run, args=(run,), name="satchel-ui-fetch", daemon=True
        ).start()
        return arrival

    def look(self, key: str) -> Arrival:
        """One that waits.

        Raises:
            NotFound: there is none of that key, or no more.
        """
        with self._hold:
            found = self._open.get(key)
        if found is None or found.is_over:
            raise _not_open()
        return found

    def choose(self, arrival: Arrival, ids: Mapping[str, str] | None) -> str:
        """Make a plan for some of its skills, instead of the one before; returns the plan's key.

        Raises:
            SatchelError: as `Arrival.planned`.
        """
        with arrival.turn:
            plan, old = arrival.planned(ids), arrival.plan
            arrival.since = time.monotonic()
            arrival.chosen = ids
            made = self._put(arrival.store, plan, arrival)
            arrival.plan, arrival.state = made, "planned"
            self._unput(old)
        if arrival.cancelled.is_set():
            self._unput(made)
            raise _not_open()
        return made

    def drop(self, key: str) -> None:
        """Nobody wants it any more."""
        with self._hold:
            found = self._open.pop(key, None)
        if found is not None:
            _end(found)

    def close(self) -> None:
        """Drop everything, and every file that was uploaded."""
        with self._hold:
            every, self._open = list(self._open.values()), {}
        for one in every:
            one.cancelled.set()
        for one in every:
            _end(one, wait=2.0)

    def _settled(self, arrival: Arrival) -> Arrival:
        """What holds one skill needs no choice."""
        if len(arrival.picks) == 1:
            self.choose(arrival, None)
        else:
            arrival.state = "choosing"
        return arrival

    def _keep(self, arrival: Arrival, *, fetching: bool = False) -> None:
        with self._hold:
            at_work = sum(one.state == "fetching" for one in self._open.values())
            if fetching and at_work >= MOST_FETCHING:
                raise Refused(
                    say("{count} sources are being fetched already", count=MOST_FETCHING),
                    say("Wait for one of them, or cancel it"),
                )
            self._open[arrival.key] = arrival
        self.sweep()

    def sweep(self) -> None:
        """Let go of what nobody came back for, and of what is too much."""
        with self._hold:
            every = list(self._open.values())
            old = every[:-MOST] + [one for one in every[-MOST:] if one.is_over]
            for one in old:
                self._open.pop(one.key, None)
        for one in old:
            _end(one)


def _not_open() -> NotFound:
    return NotFound(say("This source is not open any more"), say("Begin again"))


def _end(arrival: Arrival, wait: float = 0.0) -> None:
    """Close it, or let its thread do so: git is stopped at its next sign of life."""
    arrival.cancelled.set()
    if arrival.hold.acquire(timeout=wait) if wait else arrival.hold.acquire(blocking=False):
        arrival.hold.release()
        arrival.close()
