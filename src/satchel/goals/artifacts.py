"""Storage of large step outputs, addressed by goal and by the SHA-256 of their bytes.

Every goal has its own artifacts, so that removing a goal never affects another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from satchel.errors import StepFailed
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEY = "$artefact"
HEAD_CHARS = 300


class Artifacts(Protocol):
    """Stores the large outputs of goals by their SHA-256; `Engine.artifacts` has one."""

    async def put(self, data: bytes) -> str:
        """Store bytes; equal bytes of the same goal are stored once.

        Returns their name: `GOAL/DIGEST`, or the digest alone without a goal.

        Args:
            data: The bytes.
        """
        ...

    async def get(self, name: str) -> bytes:
        """Return the bytes of any goal, verified against their digest.

        Args:
            name: The name that `put` returned.

        Raises:
            StepFailed: they are missing or damaged.
        """
        ...

    def of(self, goal: str) -> Artifacts:
        """Return the same storage, writing for this goal.

        Args:
            goal: The id of the goal.
        """
        ...

    async def forget(self, goal: str) -> None:
        """Remove all artifacts of a goal, if there are any."""
        ...


def digest_of(data: bytes) -> str:
    """The name of bytes within a goal."""
    return hashlib.sha256(data).hexdigest()


def artifact_name(goal: str, digest: str) -> str:
    """The name of bytes in a reference."""
    return f"{goal}/{digest}" if goal else digest


def split_name(name: str) -> tuple[str, str]:
    """Split a name into goal and digest. Old references have no goal.

    Raises:
        StepFailed: the name is malformed.
    """
    goal, slash, digest = name.rpartition("/")
    plain = not slash or (goal.isascii() and goal.replace("-", "").replace("_", "").isalnum())
    if not plain or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        verify(None, name)  # raises: a malformed name is never used as a path
    return goal, digest


def verify(data: bytes | None, digest: str) -> bytes:
    """Return the bytes if they match the digest: for implementations of `Artifacts`.

    Raises:
        StepFailed: they are missing or damaged.
    """
    if data is None or digest_of(data) != digest:
        raise StepFailed(
            Message("The stored output `{digest}` is missing or damaged", digest=digest[:12]),
            Message("Run `{command}`", command="satchel goal retry GOAL --from STEP"),
            code="ARTEFACT_MISSING" if data is None else "ARTEFACT_DAMAGED",
            retryable=False,
        )
    return data


class FolderArtifacts:
    """Artifacts in files: `goals/GOAL/DIGEST`, or `XX/DIGEST` for those without a goal."""

    def __init__(self, folder: str, goal: str = "") -> None:
        self._folder = folder
        self._goal = goal

    def _path(self, goal: str, digest: str) -> str:
        return os.path.join(self._of(goal) if goal else f"{self._folder}/{digest[:2]}", digest)

    def _of(self, goal: str) -> str:
        return os.path.join(self._folder, "goals", goal)

    async def put(self, data: bytes) -> str:
        """Write bytes once. When cancelled, it waits for the thread: no file follows a removal."""
        digest = digest_of(data)
        write = asyncio.to_thread(_write, self._path(self._goal, digest), data)
        task = asyncio.ensure_future(write)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
            raise
        return artifact_name(self._goal, digest)

    async def get(self, name: str) -> bytes:
        """Read bytes."""
        goal, digest = split_name(name)
        return verify(await asyncio.to_thread(_read, self._path(goal, digest)), digest)

    def of(self, goal: str) -> FolderArtifacts:
        """Return the same storage for one goal."""
        return FolderArtifacts(self._folder, goal)

    async def forget(self, goal: str) -> None:
        """Remove a goal's folder."""
        split_name(f"{goal}/{'0' * 64}")  # raises: a malformed id is never used as a path
        with suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._of(goal))

    def older_goals(self, moment: float) -> list[str]:
        """The goals with artifacts, the last of which was written before a moment."""
        try:
            with os.scandir(self._of("")) as entries:
                return sorted(entry.name for entry in entries if entry.stat().st_mtime < moment)
        except FileNotFoundError:
            return []


class DatabaseArtifacts:
    """Artifacts in a table of a database; those of one goal are written."""

    def __init__(
        self, execute: Callable[..., int], rows: Callable[..., list[Any]], goal: str = ""
    ) -> None:
        self._execute = execute
        self._rows = rows
        self._goal = goal

    async def put(self, data: bytes) -> str:
        """Store bytes once; damaged ones are replaced."""
        digest = digest_of(data)
        statement = (
            "INSERT INTO {in}satchel_outputs (goal, digest, data, kept) VALUES (?, ?, ?, {now})"
            " ON CONFLICT (goal, digest) DO UPDATE SET data = excluded.data"
        )
        await asyncio.to_thread(self._execute, statement, self._goal, digest, data)
        return artifact_name(self._goal, digest)

    async def get(self, name: str) -> bytes:
        """Return bytes."""
        goal, digest = split_name(name)
        statement = "SELECT data FROM {in}satchel_outputs WHERE goal = ? AND digest = ?"
        rows = await asyncio.to_thread(self._rows, statement, goal, digest)
        return verify(bytes(rows[0][0]) if rows else None, digest)

    def of(self, goal: str) -> DatabaseArtifacts:
        """Return the same storage for one goal."""
        return DatabaseArtifacts(self._execute, self._rows, goal)

    async def forget(self, goal: str) -> None:
        """Remove a goal's bytes."""
        statement = "DELETE FROM {in}satchel_outputs WHERE goal = ?"
        await asyncio.to_thread(self._execute, statement, goal)


def _write(path: str, data: bytes) -> None:
    from satchel._fs import write_atomic

    if _read(path) != data:  # missing or damaged: a repeated step repairs it
        write_atomic(path, data, private=True)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def is_reference(output: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether an output is a reference to an artifact."""
    return isinstance(output, dict) and KEY in output


def reference(name: str, data: bytes) -> dict[str, Any]:
    """Make the reference that replaces JSON bytes in a result, by the name that `put` returned."""
    text = data[: HEAD_CHARS * 4].decode("utf-8", "ignore")
    return {KEY: name, "size": len(data), "head": text.removeprefix('"')[:HEAD_CHARS]}


class OutputPreview(str):
    """The beginning of a large output, for callers that cannot load it."""

    __slots__ = ()


def preview_of(output: Any) -> Any:
    """An output for display without loading: a large one becomes an `OutputPreview`."""
    if not is_reference(output):
        return output
    return OutputPreview(f"{output.get('head', '')}… ({output.get('size', 0)} bytes)")


async def load(output: Any, artifacts: Artifacts) -> Any:
    """Return an output, loading it if it is a reference.

    Raises:
        StepFailed: it is missing or damaged.
    """
    if not is_reference(output):
        return output
    return json.loads(await artifacts.get(str(output[KEY])))
