"""Storage of a hub's files: a folder, a bucket, a git repository, or a web address to read from.

A hub needs one promise of its storage: `create` never replaces a file, whatever else is written at
the same moment. `Storage.probe` tests it. A git repository keeps it by refusing a push that is not
on top of its newest commit; files that are put there wait for the next `create` or `save`.

In a folder, a file that is written is on the disk before the next one is: a commit that was
acknowledged, and everything that it or `state` names, survives a power cut. So does a push to a
git repository on this machine; for another machine its own settings decide.
"""

from __future__ import annotations

import mimetypes
import os
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from satchel._fs import make_folders, sync_folder, sync_tree, write_atomic
from satchel._optional import require
from satchel.errors import Changed, InvalidInput, NotFound, Refused
from satchel.i18n import say
from satchel.store.download import LOOPBACK_HOSTS, FileReader, check_address, is_address
from satchel.store.hub_client.format import (
    MAX_BLOB_BYTES,
    MAX_FILE_BYTES,
    MAX_UNPACKED_BYTES,
    STATE,
    HubFiles,
    content_path,
    digest_hex,
    pack,
    render_row,
    unpack_rows,
)
from satchel.store.sources.addresses import parse_address
from satchel.store.sources.git import environment, find_git

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from satchel.store.hub_client.format import Row

_BUCKET_SCHEMES = ("s3://", "gs://", "az://")
_IMMUTABLE_FOLDERS = frozenset(("blobs", "changes", "index", "revoked", "search"))
_GIT_TIMEOUT_S = 600
_GIT_OPTIONS = (
    "-c", "user.name=satchel", "-c", "user.email=hub@satchel.invalid", "-c", "commit.gpgSign=false",
    "-c", "gc.auto=0", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null",
    "-c", "core.symlinks=false",
)  # fmt: skip
_GIT_REJECTED = re.compile(r"non-fast-forward|fetch first|cannot lock ref|failed to update ref")
_GIT_LOCK = re.compile(r"Unable to create '([^']+\.lock)'")
_MAX_LOCK_AGE_S = 10.0
"""A push locks a branch for an instant; a power cut leaves the lock for ever."""
_DURABLE_RECEIVER = "git -c core.fsync=all receive-pack"
"""Writes a push to a repository on this machine: objects are on the disk before the branch."""
_SCP_ADDRESS = re.compile(r"([^/\s:@+]+@[^/\s:]+):(?!//)(\S+)\Z")


class Storage(HubFiles):
    """The files of a hub, for writing; use it in a `with` block."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.stored_blobs: set[str] = set()
        """Digests of the blobs that were put here."""

    def content(self, folder: str, digest: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """A file that is named after its content; an error says what follows for the keeper."""
        with self.keeper_errors(folder):
            return super().content(folder, digest, limit)

    def rows(self, folder: str, digest: str) -> list[Row]:
        """The rows of a file of the index, a list or a commit."""
        data = self.content(folder, digest)
        with self.keeper_errors(folder):
            return unpack_rows(data, content_path(folder, digest))

    @contextmanager
    def keeper_errors(self, folder: str) -> Generator[None]:
        """Add to an error what readers lose by a file that follows from the commits."""
        try:
            yield
        except Changed as exc:
            consequence = _consequence(folder)
            if not consequence or is_address(self.name):
                raise
            text = say("{reason}; {consequence}", reason=exc.message, consequence=consequence)
            raise Changed(text, rebuild_hint()) from exc

    def put(self, path: str, data: bytes) -> None:
        """Write a file; an older one is replaced. A storage without this is only read."""
        del path, data
        raise Refused(
            say("`{path}` is a web address, which is only read", path=self.name),
            say("Give the address of the storage"),
        )

    def put_content(self, folder: str, data: bytes) -> str:
        """Write a file that is named after its content; returns the digest.

        A file that readers would refuse is refused here.
        """
        digest = digest_hex(data)
        path = content_path(folder, digest)
        _require_size(path, len(data), MAX_BLOB_BYTES if folder == "blobs" else MAX_FILE_BYTES)
        self.put(path, data)
        if folder == "blobs":
            self.stored_blobs.add(digest)
        return digest

    def put_rows(self, folder: str, rows: Iterable[Row]) -> str:
        """Write rows as a file that is named after its content; returns the digest."""
        data = b"".join(map(render_row, rows))
        _require_size(f"{folder}/", len(data), MAX_UNPACKED_BYTES)
        return self.put_content(folder, pack(data))

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist; False when it does, or another writer was faster."""
        raise NotImplementedError

    def list_files(self, folder: str) -> Iterator[tuple[str, float]]:
        """Yield the path of each file below a folder, and the time at which it was written."""
        raise NotImplementedError

    def remove(self, path: str, before: float) -> bool:
        """Remove a file that was written before a time; False when it stays."""
        raise NotImplementedError

    def save(self) -> bool:
        """Publish what was put; False when it was discarded since another writer was faster."""
        return True

    def probe(self) -> None:
        """Test that `create` never replaces a file; raises `Refused` when it does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _consequence(folder: str) -> str:
    """Say what readers lose by a bad file; empty if more than its folder must be known."""
    consequences = {
        STATE: say("readers refuse the hub"),
        "index": say("readers cannot install the skills that it lists"),
        "revoked": say("readers install nothing"),
        "search": say("searches in the hub fail"),
    }
    return consequences.get(folder, "")


def rebuild_hint() -> str:
    """Return what a keeper does about a file that follows from the commits."""
    return say("Look at the storage; `satchel hub build --rebuild` makes it from the commits")


def _require_size(path: str, size: int, limit: int) -> None:
    """Refuse to write a file that readers would refuse."""
    if size > limit:
        raise Refused(
            say("`{path}` would have {size} bytes; at most {limit} are read",
                path=path, size=size, limit=limit),
            say("Publish fewer skills at once, or use a second hub"),
        )  # fmt: skip


def open_storage(address: str, *, create: bool = False, durable: bool = True) -> Storage:
    """Open a folder, which `create` makes, a bucket, a git repository, or an address to read.

    The files of a folder are synced to the disk unless `durable` is false.
    """
    if match := _SCP_ADDRESS.match(address):
        raise InvalidInput(
            say("`{value}` is not valid", value=address),
            say("Write `{value}`", value=f"git+ssh://{match[1]}/{match[2]}"),
        )
    is_bare_repository = address.endswith(".git") and (create or os.path.isdir(address))
    if is_bare_repository or address.startswith("git+"):
        return _GitStorage(address.removeprefix("git+"))
    folder = os.path.abspath(os.path.expanduser(address))
    if "://" not in address and not create and not os.path.isdir(folder):
        raise NotFound(say("There is no `{path}`", path=address), say("Check the path"))
    if is_address(address):
        return _WebStorage(check_address(address))
    stores: Any = require("obstore.store", "hub")
    host = os.environ.get("AWS_ENDPOINT_URL", "")
    try:
        options = {"allow_http": True} if urlsplit(host).hostname in LOOPBACK_HOSTS else {}
        if address.startswith(_BUCKET_SCHEMES):
            return _ObjectStorage(address, stores.from_url(address, client_options=options))
        if "://" not in address:
            return _FolderStorage(address, stores, folder, create=create, durable=durable)
    except Exception as exc:
        raise _storage_error(address, exc) from exc
    raise InvalidInput(
        say("`{value}` is not valid", value=address),
        say("Write `{value}`", value="s3://bucket/skills"),
    )


def _storage_error(address: str, exc: Exception | str) -> Refused:
    reason = str(exc).partition("\n\nDebug source")[0].strip()
    hint = say("Check the address and the credentials")
    if "://" not in address:
        hint = say("Check the permissions of the folder, and the space on its disk")
    return Refused(say("The storage `{path}` failed: {reason}", path=address, reason=reason), hint)


class _WebStorage(Storage):
    """A web address, which is only read, with the credential that readers send."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._reader = FileReader(address, is_hub=True)

    def get(self, path: str, limit: int) -> bytes | None:
        try:
            return self._reader.read(path, limit, has_digest=path != STATE)
        except NotFound:
            return None

    def probe(self) -> None:
        self.put("", b"")


class _ObjectStorage(Storage):
    """A bucket, through obstore."""

    def __init__(self, address: str, store: Any) -> None:
        super().__init__(address)
        self._store = store

    def get(self, path: str, limit: int) -> bytes | None:
        try:
            entry = self._store.get(path)
            data = bytes(entry.bytes()) if entry.meta["size"] <= limit else None
        except FileNotFoundError:
            return None
        except Exception as exc:  # obstore raises many kinds
            raise _storage_error(self.name, exc) from exc
        return data

    def put(self, path: str, data: bytes) -> None:
        self._put(path, data, "overwrite")

    def create(self, path: str, data: bytes) -> bool:
        return self._put(path, data, "create")

    def _put(self, path: str, data: bytes, mode: str) -> bool:
        from obstore.exceptions import AlreadyExistsError

        media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        headers = {"Content-Type": media_type, "Cache-Control": _cache_control(path)}
        try:
            self._store.put(path, data, mode=mode, attributes=headers, use_multipart=False)
        except AlreadyExistsError:
            return False
        except Exception as exc:
            raise _storage_error(self.name, exc) from exc
        return True

    def list_files(self, folder: str) -> Iterator[tuple[str, float]]:
        try:
            for entries in self._store.list(folder):
                for entry in entries:
                    yield entry["path"], entry["last_modified"].timestamp()
        except Exception as exc:
            raise _storage_error(self.name, exc) from exc

    def remove(self, path: str, before: float) -> bool:
        try:
            if self._store.head(path)["last_modified"].timestamp() > before:
                return False  # it was uploaded again meanwhile
            self._store.delete(path)
        except FileNotFoundError:
            pass
        except Exception as exc:
            raise _storage_error(self.name, exc) from exc
        return True

    def probe(self) -> None:
        path = f"probe-{os.urandom(16).hex()}"
        is_created, is_replaced = self.create(path, b"1"), self.create(path, b"2")
        stored = self.get(path, 16)
        with suppress(Exception):  # a file that is left does no harm
            self._store.delete(path)
        if not is_created or is_replaced or stored != b"1":
            raise Refused(
                say("`{path}` replaces files that must not be replaced", path=self.name),
                say("Use a storage that honours `If-None-Match: *`"),
            )


class _FolderStorage(_ObjectStorage):
    """A folder, whose files are on the disk when they are written."""

    def __init__(
        self, address: str, stores: Any, folder: str, *, create: bool, durable: bool
    ) -> None:
        if create:
            make_folders(folder)
        super().__init__(address, stores.LocalStore(folder))
        self._folder = folder
        self._durable = durable

    def _put(self, path: str, data: bytes, mode: str) -> bool:
        file = os.path.join(self._folder, path)
        commits = os.path.join(self._folder, "commits")
        try:
            if self._durable:
                make_folders(os.path.dirname(file))
                if path == STATE and os.path.isdir(commits):
                    sync_folder(commits)  # the writer of a commit may have been killed before that
            write_atomic(file, data, durable=self._durable, replace=mode != "create")
        except OSError as exc:
            if mode == "create" and os.path.lexists(file):
                return False
            raise _storage_error(self.name, exc) from exc
        return True


def _cache_control(path: str) -> str:
    """Return how long readers may keep a file of a bucket."""
    if path.partition("/")[0] in _IMMUTABLE_FOLDERS:
        return "public, max-age=31536000, immutable"
    # A repair, and a restored backup, replace commits.
    is_short = path == STATE or path.startswith("commits/")
    return f"public, max-age={60 if is_short else 600}"


def _require_fresh_lock(path: str) -> None:
    """Refuse a lock of git that a killed process left; git itself never removes it."""
    with suppress(FileNotFoundError):
        if time.time() - os.stat(path).st_mtime > _MAX_LOCK_AGE_S:
            raise Refused(
                say("The repository is locked: `{path}`", path=os.path.normpath(path)),
                say("If no git process uses it, a killed one left the file: remove it"),
            )


class _GitStorage(Storage):
    """The newest commit of a git repository, in a temporary clone."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        is_folder = os.path.isdir(url)
        self._url = "file://" + os.path.abspath(url) if is_folder else parse_address(url)
        self._pending: dict[str, bytes | None] = {}
        """Path -> content; None for a file to remove."""
        self._temporary = tempfile.TemporaryDirectory(prefix="satchel-hub-")
        self._folder = self._temporary.name
        self._git("clone", "--quiet", "--depth=1", self._url, ".")
        self._branch = self._git("symbolic-ref", "--short", "HEAD")

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def get(self, path: str, limit: int) -> bytes | None:
        data = self._pending.get(path)
        if data is None:
            try:
                with open(os.path.join(self._folder, path), "rb") as stream:
                    data = stream.read(limit + 1)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return data if len(data) <= limit else None

    def put(self, path: str, data: bytes) -> None:
        self._pending[path] = data

    def create(self, path: str, data: bytes) -> bool:
        if os.path.lexists(os.path.join(self._folder, path)):
            return False
        is_created = self._push({**self._pending, path: data}, path)
        if is_created:
            self._pending.clear()
        return is_created

    def save(self) -> bool:
        pending, self._pending = self._pending, {}
        return not pending or self._push(pending, STATE)

    def list_files(self, folder: str) -> Iterator[tuple[str, float]]:
        top = os.path.join(self._folder, folder)
        for current, _, names in os.walk(top):
            for name in names:  # a push is on top of all that was written before
                path = os.path.relpath(os.path.join(current, name), self._folder)
                yield path.replace(os.sep, "/"), 0.0

    def remove(self, path: str, before: float) -> bool:
        del before
        self._pending[path] = None
        return True

    def _push(self, files: dict[str, bytes | None], message: str) -> bool:
        """Commit and push files; False, and at the newest commit, when another push was first."""
        for path, data in files.items():
            file = os.path.join(self._folder, path)
            if data is None:
                os.unlink(file)
            else:
                write_atomic(file, data, durable=False)
        paths = "\0".join(files).encode()
        self._git("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", send=paths)
        self._git("commit", "--quiet", "--allow-empty", "-m", message)
        repository = self._url.removeprefix("file://") if self._url.startswith("file://") else ""
        options = ("--receive-pack", _DURABLE_RECEIVER) if repository else ()
        try:
            self._git("push", "--quiet", *options, "origin", f"HEAD:refs/heads/{self._branch}")
            if repository:
                sync_tree(repository)
        except OSError as exc:
            raise _storage_error(self._url, exc) from exc
        except Refused as exc:
            if not _GIT_REJECTED.search(str(exc)):
                raise
            if repository and (match := _GIT_LOCK.search(str(exc))):
                _require_fresh_lock(match[1])
            self._git("fetch", "--quiet", "--depth=1", "origin", self._branch)
            self._git("reset", "--quiet", "--hard", "FETCH_HEAD")
            return False
        return True

    def _git(self, *arguments: str, send: bytes = b"") -> str:
        try:
            process = subprocess.run(  # noqa: S603 - the program is git
                [find_git(), *_GIT_OPTIONS, *arguments],
                cwd=self._folder,
                env=environment(),
                input=send,
                capture_output=True,
                timeout=_GIT_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise _storage_error(self._url, exc) from exc
        if process.returncode:
            raise _storage_error(self._url, process.stderr.decode("utf-8", "replace"))
        return process.stdout.decode("utf-8", "replace").strip()
