"""Uploads: the files of a form, bounded, kept on disk, saved to a private folder.

Starlette parses the form. `bodies.Body` counts the bytes while they arrive, and the parser keeps at
most `MAX_FILES * SPOOL_BYTES` of them in memory.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import asynccontextmanager
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.store.archive.names import Names, check_path, ignored_part
from satchel.store.archive.rules import shown
from satchel.store.stage import remove_tree
from satchel.store.trouble import unchanged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.datastructures import FormData
    from starlette.requests import Request

MAX_FILES = 500
"""Files of one folder; each may hold a file descriptor. A larger folder is sent as a zip."""
SPOOL_BYTES = 64 << 10
"""Bytes of one file that are kept in memory."""
MAX_FIELDS = 32
MAX_FIELD_BYTES = 4_096
Scope = Literal["project", "global"]


class Archive(NamedTuple):
    """An archive that was uploaded."""

    scope: Scope
    path: str
    name: str
    """The file name that the browser sent: a label, never a path."""


class PickedFolder(NamedTuple):
    """A folder that was uploaded as files with their paths."""

    scope: Scope
    root: str
    name: str
    programs: tuple[str, ...]
    """Files that were made executable: browsers do not send that, so what begins with `#!` is."""
    ignored: tuple[str, ...]
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


async def receive_archive(request: Request, folder: str) -> Archive:
    """Save the one file of a form.

    Raises:
        HTTPException: the form is too large, malformed, or ended too early.
        SatchelError: there is no file or more than one, or the disk refuses it.
    """
    async with _parsed(request, 2) as (form, files):
        if not files:
            raise InvalidInput(say("No file was chosen"), say("Choose a zip or a tar"))
        if len(files) > 1:
            raise InvalidInput(say("One archive at a time"), say("Send the others one by one"))
        path = os.path.join(folder, "archive")
        await run_sync(_save, files[0], path)
        name = shown(re.split(r"[\\/]", files[0].filename or "")[-1])
        return Archive(_scope(form), path, name)


async def receive_folder(request: Request, folder: str) -> PickedFolder:
    """Save the files of a form under the paths that they have in the folder.

    Raises:
        HTTPException: as `receive_archive`.
        SatchelError: there is no file, a path is unsafe, or the disk refuses it.
    """
    async with _parsed(request, MAX_FILES) as (form, files):
        if not files:
            raise InvalidInput(say("No folder was chosen"), say("Choose a folder with a SKILL.md"))
        root = os.path.join(folder, "files")
        ignored = await run_sync(_save_all, files, root)
        top = _top(root)
        name = shown(os.path.basename(top)) if top != root else say("folder")
        programs = await run_sync(_mark_programs, top)
        return PickedFolder(_scope(form), top, name, programs, ignored)


@asynccontextmanager
async def _parsed(
    request: Request, max_files: int
) -> AsyncGenerator[tuple[FormData, list[UploadFile]]]:
    """The form and its files; an input in which nothing was chosen has an empty file name."""
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
        yield form, [one for one in sent if one.filename]
    finally:
        await form.close()


def _scope(form: FormData) -> Scope:
    return "global" if form.get("scope") == "global" else "project"


def _save(file: UploadFile, path: str) -> None:
    with unchanged(say("The upload")), open(path, "xb") as stream:
        shutil.copyfileobj(file.file, stream)


def _save_all(files: Sequence[UploadFile], root: str) -> tuple[str, ...]:
    """Save files under their paths, if these are plain on every system; returns what is ignored.

    Raises:
        Unsafe: a path is not plain, or two files have one name on some system.
    """
    os.mkdir(root, 0o700)
    names, ignored = Names(), dict[str, None]()
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
    return tuple(ignored)


def _top(root: str) -> str:
    """The folder that was picked: all paths begin with its name."""
    names = os.listdir(root)
    only = os.path.join(root, names[0]) if len(names) == 1 else ""
    return only if only and os.path.isdir(only) else root


def _mark_programs(top: str) -> tuple[str, ...]:
    found: list[str] = []
    for here, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.join(here, name)
            with open(path, "rb") as stream:
                if stream.read(2) != b"#!":
                    continue
            os.chmod(path, 0o700)
            found.append(os.path.relpath(path, top).replace(os.sep, "/"))
    return tuple(found)
