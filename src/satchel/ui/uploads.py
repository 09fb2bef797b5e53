"""Uploads of archives and folders, written to a temporary folder with limits.

Starlette parses the form. `LimitedBody` counts the bytes while they arrive, and the parser keeps at
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

from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.store.archive.rules import TreeNames, check_path, ignored_part, shown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.staging import remove_tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.requests import Request

Scope = Literal["project", "global"]
MAX_FILES = 500
"""Each may hold a file descriptor. A larger folder is sent as a zip."""
SPOOL_BYTES = 64 << 10
MAX_FIELDS = 32
MAX_FIELD_BYTES = 4_096


class Upload(NamedTuple):
    """An archive or a folder that was uploaded."""

    scope: Scope
    path: str
    name: str
    """The browser's name for it: a label, never a path."""
    programs: tuple[str, ...] = ()
    """Files of a folder that were made executable: browsers do not send modes."""
    ignored: tuple[str, ...] = ()
    """Parts of paths that are never part of a skill."""
    skill_id: str = ""
    """The id that was entered for a single skill."""


class _UploadParser(MultiPartParser):
    """Starlette's parser with less memory; a form without its last boundary is refused."""

    spool_max_size = SPOOL_BYTES
    has_ended = False

    def on_end(self) -> None:
        self.has_ended = True

    async def until_end(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        async for chunk in chunks:
            yield chunk
        if not self.has_ended:  # raised in the parser, so that it closes its files
            raise MultiPartException("")


@asynccontextmanager
async def spool() -> AsyncGenerator[str]:
    """Yield an empty temporary folder that only this user may enter."""
    folder = await run_sync(lambda: mkdtemp(prefix="satchel-upload-"))
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(remove_tree, folder)


async def receive_archive(request: Request, folder: str) -> Upload:
    """Save the one file of a form.

    Raises:
        HTTPException: the form is too large, malformed, or ended too early.
        SatchelError: there is no file or more than one, or the disk refuses it.
    """
    async with _parse_form(request, 2) as (scope, skill_id, files):
        if not files:
            raise InvalidInput(say("No file was chosen"))
        if len(files) > 1:
            raise InvalidInput(say("Upload one archive at a time"))
        path = os.path.join(folder, "archive")
        await run_sync(_save, files[0], path)
        name = shown(re.split(r"[\\/]", files[0].filename or "")[-1])
        return Upload(scope, path, name, skill_id=skill_id)


async def receive_folder(request: Request, folder: str) -> Upload:
    """Save the files of a form under their paths in the folder.

    Raises:
        HTTPException: as `receive_archive`.
        SatchelError: there is no file, a path is unsafe, or the disk refuses it.
    """
    async with _parse_form(request, MAX_FILES) as (scope, skill_id, files):
        if not files:
            raise InvalidInput(say("No file was chosen"))
        upload = await run_sync(_save_all, files, os.path.join(folder, "files"), scope)
        return upload._replace(skill_id=skill_id)


@asynccontextmanager
async def _parse_form(
    request: Request, max_files: int
) -> AsyncGenerator[tuple[Scope, str, list[UploadFile]]]:
    """Yield scope, id and files of a form; an input without a file sends an empty file name."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HTTPException(415)
    parser = _UploadParser(
        request.headers,
        request.stream(),
        max_files=max_files,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )
    parser.stream = parser.until_end(parser.stream)
    try:
        with disk_errors_as_refusal(say("Upload")):
            form = await parser.parse()
    except MultiPartException as exc:
        raise HTTPException(400, exc.message) from exc
    except ClientDisconnect as exc:
        raise HTTPException(400, say("The upload was interrupted")) from exc
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    try:
        scope: Scope = "global" if form.get("scope") == "global" else "project"
        typed_id = form.get("own")
        skill_id = typed_id.strip() if isinstance(typed_id, str) else ""
        yield scope, skill_id, [file for file in files if file.filename]
    finally:
        await form.close()


def _save(file: UploadFile, path: str) -> None:
    with disk_errors_as_refusal(say("Upload")), open(path, "xb") as stream:
        shutil.copyfileobj(file.file, stream)


def _save_all(files: Sequence[UploadFile], root: str, scope: Scope) -> Upload:
    """Save files under their paths; what begins with `#!` is made executable.

    Raises:
        Unsafe: a path is not plain on every system, or two files have one name on some system.
    """
    os.mkdir(root, 0o700)
    names, ignored, programs = TreeNames(), dict[str, None](), list[str]()
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
    entries = os.listdir(root)
    if len(entries) == 1 and os.path.isdir(selected := os.path.join(root, entries[0])):
        # All paths begin with the name of the selected folder.
        return Upload(scope, selected, shown(entries[0]), tuple(programs), tuple(ignored))
    return Upload(scope, root, say("folder"), tuple(programs), tuple(ignored))
