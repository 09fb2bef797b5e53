"""Storage of a hub's files: a folder, a bucket, a git repository, or a web address to read from.

A hub needs one promise of its storage: `create` never replaces a file, whatever else is written at
the same moment. `Storage.probe` tests it. A git repository keeps it by refusing a push that is not
on top of its newest commit; files that are put there wait for the next `create` or `save`.
"""

from __future__ import annotations

import mimetypes
import os
import re
import subprocess
import tempfile
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

from satchel._fs import write_atomic
from satchel._optional import require
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.i18n import say
from satchel.store.download import LOOPBACK_HOSTS
from satchel.store.hub_client.format import STATE, HubFiles, content_path, digest_hex
from satchel.store.sources.base import parse_address
from satchel.store.sources.git import environment, find_git

_BUCKETS = ("s3://", "gs://", "az://")
_IMMUTABLE = frozenset(("blobs", "changes", "commits", "index", "revoked", "search"))
_GIT_TIMEOUT_S = 600
_GIT_OPTIONS = (
    "-c", "user.name=satchel", "-c", "user.email=hub@satchel.invalid", "-c", "commit.gpgSign=false",
    "-c", "gc.auto=0", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null",
    "-c", "core.symlinks=false",
)  # fmt: skip
_GIT_REJECTED = re.compile(r"non-fast-forward|fetch first|cannot lock ref|failed to update ref")
_SCP = re.compile(r"([^/\s:@+]+@[^/\s:]+):(?!//)(\S+)\Z")


class Storage(HubFiles):
    """The files of a hub, for writing; use it in a `with` block."""

    def put(self, path: str, data: bytes) -> None:
        """Write a file; an older one is replaced."""
        raise NotImplementedError

    def put_content(self, folder: str, data: bytes) -> str:
        """Write a file that is named after its content; returns the digest."""
        digest = digest_hex(data)
        self.put(content_path(folder, digest), data)
        return digest

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist; False when it does, or another writer was faster."""
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


def open_storage(address: str, *, create: bool = False) -> Storage:
    """Open a folder, which `create` makes, a bucket, a git repository, or an address to read."""
    if found := _SCP.match(address):
        raise InvalidInput(
            say("`{value}` is not valid", value=address),
            say("Write `{value}`", value=f"git+ssh://{found[1]}/{found[2]}"),
        )
    bare = address.endswith(".git") and (create or os.path.isdir(address))
    if bare or address.startswith("git+"):
        return _GitStorage(address.removeprefix("git+"))
    folder = os.path.abspath(os.path.expanduser(address))
    if "://" not in address and not create and not os.path.isdir(folder):
        raise NotFound(say("There is no `{path}`", path=address), say("Check the path"))
    stores: Any = require("obstore.store", "hub")
    host = os.environ.get("AWS_ENDPOINT_URL", "") if address.startswith("s3:") else address
    try:
        options = {"allow_http": True} if urlsplit(host).hostname in LOOPBACK_HOSTS else {}
        if address.startswith(_BUCKETS):
            return _ObjectStorage(address, stores.from_url(address, client_options=options))
        if address.startswith(("https://", "http://")):
            return _ObjectStorage(address, stores.HTTPStore(address, client_options=options))
        if "://" not in address:
            return _ObjectStorage(address, stores.LocalStore(folder, mkdir=create))
    except Exception as exc:
        raise _failed(address, exc) from exc
    raise InvalidInput(
        say("`{value}` is not valid", value=address),
        say("Write `{value}`", value="s3://bucket/skills"),
    )


def _failed(address: str, exc: Exception | str) -> Refused:
    reason = str(exc).partition("\n\nDebug source")[0].strip()
    return Refused(
        say("The storage `{path}` failed: {reason}", path=address, reason=reason),
        say("Check the address and the credentials"),
    )


class _ObjectStorage(Storage):
    """A folder, a bucket or a web address, through obstore."""

    def __init__(self, address: str, store: Any) -> None:
        super().__init__(address)
        self._store = store
        self._is_bucket = address.startswith(_BUCKETS)

    def get(self, path: str, limit: int) -> bytes | None:
        try:
            found = self._store.get(path)
            data = bytes(found.bytes()) if found.meta["size"] <= limit else None
        except FileNotFoundError:
            return None
        except Exception as exc:  # obstore raises many kinds
            raise _failed(self.name, exc) from exc
        return data

    def put(self, path: str, data: bytes) -> None:
        self._put(path, data, "overwrite")

    def create(self, path: str, data: bytes) -> bool:
        return self._put(path, data, "create")

    def _put(self, path: str, data: bytes, mode: str) -> bool:
        from obstore.exceptions import AlreadyExistsError

        headers = None
        if self._is_bucket:
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            fixed = path.partition("/")[0] in _IMMUTABLE
            age = "31536000, immutable" if fixed else "60" if path == STATE else "600"
            headers = {"Content-Type": kind, "Cache-Control": f"public, max-age={age}"}
        try:
            self._store.put(path, data, mode=mode, attributes=headers, use_multipart=False)
        except AlreadyExistsError:
            return False
        except Exception as exc:
            raise _failed(self.name, exc) from exc
        return True

    def probe(self) -> None:
        path = f"probe-{os.urandom(16).hex()}"
        first, second = self.create(path, b"1"), self.create(path, b"2")
        kept = self.get(path, 16)
        with suppress(Exception):  # a file that is left does no harm
            self._store.delete(path)
        if not first or second or kept != b"1":
            raise Refused(
                say("`{path}` replaces files that must not be replaced", path=self.name),
                say("Use a storage that honours `If-None-Match: *`"),
            )


class _GitStorage(Storage):
    """The newest commit of a git repository, in a temporary clone."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        local = os.path.isdir(url)
        self._url = "file://" + os.path.abspath(url) if local else parse_address(url)
        self._pending: dict[str, bytes] = {}
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
        if made := self._push({**self._pending, path: data}, path):
            self._pending.clear()
        return made

    def save(self) -> bool:
        waiting, self._pending = self._pending, {}
        return not waiting or self._push(waiting, STATE)

    def _push(self, changed: dict[str, bytes], title: str) -> bool:
        """Commit and push files; False, and at the newest commit, when another push was first."""
        for path, data in changed.items():
            write_atomic(os.path.join(self._folder, path), data, durable=False)
        names = "\0".join(changed).encode()
        self._git("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", send=names)
        self._git("commit", "--quiet", "--allow-empty", "-m", title)
        try:
            self._git("push", "--quiet", "origin", f"HEAD:refs/heads/{self._branch}")
        except Refused as exc:
            if not _GIT_REJECTED.search(str(exc)):
                raise
            self._git("fetch", "--quiet", "--depth=1", "origin", self._branch)
            self._git("reset", "--quiet", "--hard", "FETCH_HEAD")
            return False
        return True

    def _git(self, *words: str, send: bytes = b"") -> str:
        try:
            done = subprocess.run(  # noqa: S603 - the program is git
                [find_git(), *_GIT_OPTIONS, *words], cwd=self._folder, env=environment(),
                input=send, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise _failed(self._url, exc) from exc
        if done.returncode:
            raise _failed(self._url, done.stderr.decode("utf-8", "replace"))
        return done.stdout.decode("utf-8", "replace").strip()
