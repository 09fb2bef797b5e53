"""Files that a browser sends -> files in a private folder, counted while they arrive.

Nothing is kept in memory but the piece that just came and the short fields of the form. The folder
is the user's own, in the state folder; whoever made it removes it, and what a killed server left
is removed by the next one. How large an upload is, is what we count: nobody's word for it.

    spools = Spools(state)
    async with spools.spool() as folder:             # 0700
        sent = await receive(request, OneFile(folder))   # or Folder(folder): with their paths
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio
from anyio.to_thread import run_sync
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from satchel._fs import check_lock_file, locked
from satchel._language import say
from satchel.errors import InvalidInput, Refused
from satchel.skill.tree import LIMITS
from satchel.store.archive.names import Names, check_path, ignored_part
from satchel.store.archive.rules import refuse, shown
from satchel.store.stage import remove_tree
from satchel.store.trouble import unchanged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager
    from typing import IO

    from python_multipart.multipart import MultipartCallbacks
    from starlette.requests import Request

MOST = 256 << 20
"""Bytes of one upload."""
MOST_FILES = LIMITS.files
"""Files of one folder."""
DRAIN = 32 << 20
"""Bytes that are read and thrown away after a refusal: a browser that still sends hears nothing."""
_FIELD = 4_096
_FIELDS = 32
_NEW = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_BOUNDARY = re.compile(r'multipart/form-data\s*;\s*boundary="?([!-~]{1,70}?)"?\s*', re.IGNORECASE)
_NAMED = re.compile(
    rb'form-data;\s*name="(?P<name>[^"\r\n]*)"(?:;\s*filename="(?P<file>[^"\r\n]*)")?\s*',
    re.IGNORECASE,
)
_WRITTEN = {"%22": '"', "%0D": "\r", "%0A": "\n"}
"""How browsers write what cannot stand in a header."""


class Sent(NamedTuple):
    """What arrived."""

    fields: dict[str, str]
    files: int
    size: int
    """Bytes of all files."""


class Sink(Protocol):
    """Where the files of one upload go."""

    most: int
    """Bytes of all files together."""

    def begin(self, name: str) -> IO[bytes] | None:
        """A file of that name begins; None when it is passed over."""
        ...


class OneFile:
    """A single file, under a name of ours."""

    def __init__(self, folder: str, most: int = MOST) -> None:
        self.path = os.path.join(folder, "archive")
        self.name = ""
        """As the browser calls it: for people, never a path."""
        self.most = most

    def begin(self, name: str) -> IO[bytes]:
        """Take the first, refuse a second."""
        if self.name:
            raise InvalidInput(say("One archive at a time"), say("Send the others one by one"))
        self.name = shown(re.split(r"[\\/]", name)[-1])
        return os.fdopen(os.open(self.path, _NEW, 0o600), "wb")


class Folder:
    """Files with the paths they have in a folder that somebody picked."""

    def __init__(self, folder: str, most: int = MOST, files: int = MOST_FILES) -> None:
        self.root = os.path.join(folder, "files")
        os.mkdir(self.root, 0o700)
        self.most = most
        self.ignored: dict[str, None] = {}
        self._most_files = files
        self._count = 0
        self._names = Names()

    def begin(self, name: str) -> IO[bytes] | None:
        """Open the file's place, if its path is a plain one on every system.

        Raises:
            Unsafe: it is not, or two files have one name somewhere.
        """
        self._count += 1
        if self._count > self._most_files:
            raise refuse("too-many-files", found=str(self._most_files))
        check_path(name)
        if part := ignored_part(name):
            self.ignored[part] = None
            return None
        self._names.add(name)
        path = os.path.join(self.root, *name.split("/"))
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return os.fdopen(os.open(path, _NEW, 0o600), "wb")

    def top(self) -> str:
        """The folder that was picked: all paths begin with its name."""
        names = os.listdir(self.root)
        only = os.path.join(self.root, names[0]) if len(names) == 1 else ""
        return only if only and os.path.isdir(only) else self.root

    def name(self) -> str:
        """What the folder is called, for people."""
        top = self.top()
        return shown(os.path.basename(top)) if top != self.root else say("folder")

    def mark_programs(self) -> list[str]:
        """Browsers do not say what may be executed: what begins with `#!` may. Returns those."""
        found: list[str] = []
        top = self.top()
        for here, _, names in os.walk(top):
            for name in sorted(names):
                path = os.path.join(here, name)
                with open(path, "rb") as stream:
                    if stream.read(2) != b"#!":
                        continue
                os.chmod(path, 0o700)
                found.append(os.path.relpath(path, top).replace(os.sep, "/"))
        return found


async def receive(request: Request, sink: Sink) -> Sent:
    """Read a form with files, piece by piece.

    Raises:
        HTTPException: it is too large (413), is no such form, or ended too early.
        SatchelError: a name in it is refused, or the disk says no.
    """
    found = _BOUNDARY.fullmatch(request.headers.get("content-type", ""))
    if found is None:
        raise HTTPException(415, say("Send the files as a form (`multipart/form-data`)"))
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > sink.most + DRAIN:
        raise too_large(sink.most)
    reader = _Reader(sink)
    parser = MultipartParser(found[1].encode("ascii"), reader.callbacks())
    pieces = request.stream()
    try:
        with unchanged(say("The upload")):
            async for piece in pieces:
                await run_sync(parser.write, piece)  # a disk may be slow
            parser.finalize()
    except FormParserError as exc:
        raise InvalidInput(say("The upload cannot be read"), say("Send it again")) from exc
    except ClientDisconnect as exc:
        raise HTTPException(400, say("The upload ended too early")) from exc
    except (HTTPException, InvalidInput, Refused):
        await _drain(pieces)
        raise
    finally:
        reader.close()
    if not reader.ended:
        raise InvalidInput(say("The upload ended too early"), say("Send it again"))
    return Sent(reader.fields, reader.count, reader.size)


def too_large(most: int) -> HTTPException:
    """What is said of an upload beyond the limit."""
    words = say("The upload is larger than {size} MiB, which is the limit", size=most >> 20)
    return HTTPException(413, words)


async def _drain(pieces: object) -> None:
    """Read on for a while, so that a browser that is still sending gets the answer."""
    left = DRAIN
    with suppress(ClientDisconnect, RuntimeError):
        async for piece in pieces:  # pyright: ignore[reportUnknownVariableType, reportGeneralTypeIssues]
            left -= len(piece)  # pyright: ignore[reportUnknownArgumentType]
            if left < 0:
                return


class _Reader:
    """What the parser calls."""

    def __init__(self, sink: Sink) -> None:
        self.fields: dict[str, str] = {}
        self.count = 0
        self.size = 0
        self.ended = False
        self._sink = sink
        self._file: IO[bytes] | None = None
        self._is_file = False
        self._field = ""
        self._data = bytearray()
        self._header = bytearray()
        self._value = bytearray()
        self._about = b""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._part_begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
            "on_end": self._end,
        }

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _part_begin(self) -> None:
        self._about = b""
        self._is_file = False
        self._data.clear()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            self._about = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        found = _NAMED.fullmatch(self._about)
        if found is None:
            raise InvalidInput(say("The upload cannot be read"), say("Send it again"))
        self._field = _text(found["name"])
        name = found["file"]
        if name is None:
            if len(self.fields) >= _FIELDS:
                raise InvalidInput(say("The form has too many fields"), say("Send it again"))
            return
        self._is_file = True
        if name:  # an input in which nothing was chosen sends an empty name
            self.count += 1
            self._file = self._sink.begin(_text(name))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if not self._is_file:
            self._data += data[start:end]
            if len(self._data) > _FIELD:
                raise InvalidInput(
                    say("The field `{name}` is too long", name=shown(self._field)),
                    say("Shorten it"),
                )
            return
        # What is passed over counts as well: it was sent.
        self.size += end - start
        if self.size > self._sink.most:
            raise too_large(self._sink.most)
        if self._file is not None:
            self._file.write(memoryview(data)[start:end])

    def _part_end(self) -> None:
        if self._is_file:
            self.close()
        else:
            self.fields[self._field] = self._data.decode("utf-8", "replace")

    def _end(self) -> None:
        self.ended = True


def _text(data: bytes) -> str:
    """A name as the browser means it.

    Raises:
        InvalidInput: it is no UTF-8.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise refuse("path-encoding", data.decode("ascii", "backslashreplace")) from exc
    return re.sub("%22|%0[DdAa]", lambda found: _WRITTEN[found[0].upper()], text)


class Spools:
    """Private folders for uploads, all gone at the end."""

    def __init__(self, state: str) -> None:
        """Nothing is made yet.

        Args:
            state: The state folder; a temporary one is used when it is empty.
        """
        self._state = state
        self._root = ""
        self._alive: AbstractContextManager[None] | None = None
        self._hold = threading.Lock()

    @asynccontextmanager
    async def spool(self) -> AsyncGenerator[str]:
        """An empty folder, made and removed off the loop; it stays unless something goes wrong.

        Raises:
            Refused: as `new`.
        """
        folder = await run_sync(self.new)
        try:
            yield folder
        except BaseException:
            with anyio.CancelScope(shield=True):
                await run_sync(remove_tree, folder)
            raise

    def new(self) -> str:
        """An empty folder that only this user may enter.

        Raises:
            Refused: the disk says no.
        """
        from tempfile import mkdtemp

        with self._hold, unchanged(self._state):
            if not self._root:
                self._open()
            return mkdtemp(dir=self._root)

    def close(self) -> None:
        """Remove them all."""
        root, self._root = self._root, ""
        if root:
            remove_tree(root)
        if self._alive is not None:
            with suppress(OSError):
                os.unlink(root + ".alive")
            with suppress(OSError):
                self._alive.__exit__(None, None, None)
            self._alive = None

    def _open(self) -> None:
        if not self._state:
            from tempfile import mkdtemp

            self._root = mkdtemp(prefix="satchel-uploads-")
            return
        base = os.path.join(self._state, "uploads")
        os.makedirs(base, 0o700, exist_ok=True)
        os.chmod(base, 0o700)
        _sweep(base)
        root = os.path.join(base, f"{os.getpid():x}-{os.urandom(6).hex()}")
        alive = locked(root + ".alive")
        # Locked first, made second: nobody ever sees a folder without an owner.
        alive.__enter__()
        self._alive = alive
        os.mkdir(root, 0o700)
        self._root = root


def _sweep(base: str) -> None:
    """Remove what servers left that are dead."""
    from filelock import FileLock, Timeout

    for name in {one.removesuffix(".alive") for one in os.listdir(base)}:
        path = os.path.join(base, name)
        try:
            check_lock_file(path + ".alive")
            with FileLock(path + ".alive", timeout=0, blocking=False, thread_local=False):
                remove_tree(path)
                os.unlink(path + ".alive")
        except (Timeout, OSError):  # alive, or gone meanwhile
            continue
