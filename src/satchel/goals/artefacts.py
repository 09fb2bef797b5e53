"""Where are large outputs? Beside the journal, by their goal and the digest of their bytes.

Each goal has its own, so that they can be removed with it and no other goal misses one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from satchel._language import Message
from satchel.errors import StepFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY = "$artefact"
"""Marks an output that is only a reference."""
HEAD = 300
"""Characters of it that the reference shows."""
_SIZES = ((HEAD, 20), (100, 10), (40, 5))
"""Characters of a text and members of a list or mapping that a preview shows, until it fits."""
_DEPTH = 4


class Artefacts(Protocol):
    """A place for bytes, known by their goal and their SHA-256."""

    async def put(self, data: bytes) -> str:
        """Keep these bytes; the same bytes of the same goal are kept once.

        Returns their name: `GOAL/DIGEST`, or the digest alone where no goal is known.
        """
        ...

    async def get(self, name: str) -> bytes:
        """The bytes of any goal, checked against their digest.

        Raises:
            StepFailed: they are not there, or damaged.
        """
        ...

    def of(self, goal: str) -> Artefacts:
        """The same place, for who keeps something for this goal."""
        ...

    async def forget(self, goal: str) -> None:
        """Remove all that was kept for a goal; nothing happens when that is nothing."""
        ...


def digest_of(data: bytes) -> str:
    """What bytes are called."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def named(goal: str, digest: str) -> str:
    """What a reference calls them."""
    return f"{goal}/{digest}" if goal else digest


def parts(name: str) -> tuple[str, str]:
    """Goal and digest of a name. Without a goal: as references were before goals had their own.

    Raises:
        StepFailed: somebody made it up.
    """
    goal, slash, digest = name.rpartition("/")
    plain = not slash or (goal.isascii() and goal.replace("-", "").replace("_", "").isalnum())
    if not plain or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        checked(None, name)  # it is no path either
    return goal, digest


def checked(data: bytes | None, digest: str) -> bytes:
    """The bytes, if they are those that the digest names: for those who write an `Artefacts`.

    Raises:
        StepFailed: they are not there, or damaged.
    """
    if data is None:
        raise StepFailed(
            Message("The output `{digest}` is not there", digest=digest[:12]),
            Message("Do the step that made it again, with `satchel goal retry --from`"),
            code="ARTEFACT_MISSING",
            retryable=False,
        )
    if digest_of(data) != digest:
        raise StepFailed(
            Message("The output `{digest}` is not what was written", digest=digest[:12]),
            Message("Do the step that made it again, with `satchel goal retry --from`"),
            code="ARTEFACT_DAMAGED",
            retryable=False,
        )
    return data


class MemoryArtefacts:
    """As long as the process lives."""

    def __init__(self) -> None:
        self._goal = ""
        self._kept: dict[str, dict[str, bytes]] = {}
        """Goal -> digest -> bytes."""

    async def put(self, data: bytes) -> str:
        """Keep them."""
        digest = digest_of(data)
        self._kept.setdefault(self._goal, {})[digest] = data
        return named(self._goal, digest)

    async def get(self, name: str) -> bytes:
        """Give them back."""
        goal, digest = parts(name)
        return checked(self._kept.get(goal, {}).get(digest), digest)

    def of(self, goal: str) -> MemoryArtefacts:
        """For one goal."""
        made = MemoryArtefacts()
        made._goal, made._kept = goal, self._kept
        return made

    async def forget(self, goal: str) -> None:
        """Free them."""
        self.drop(goal)

    def drop(self, goal: str) -> None:
        """The same, at once."""
        self._kept.pop(goal, None)


class FolderArtefacts:
    """One file each, `goals/GOAL/DIGEST`; of no goal, in folders by the first two digits."""

    def __init__(self, folder: str, goal: str = "") -> None:
        self._folder = folder
        self._goal = goal

    def _path(self, goal: str, digest: str) -> str:
        return os.path.join(self._of(goal) if goal else f"{self._folder}/{digest[:2]}", digest)

    def _of(self, goal: str) -> str:
        return os.path.join(self._folder, "goals", goal)

    async def put(self, data: bytes) -> str:
        """Write them, once. Who is cancelled meanwhile ends when they are written, not before.

        A thread cannot be stopped: were it left alone, it could write for a goal that is removed.
        """
        import asyncio
        from contextlib import suppress

        digest = digest_of(data)
        write = asyncio.ensure_future(
            asyncio.to_thread(_write, self._path(self._goal, digest), data)
        )
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            while not write.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([write])
            if not write.cancelled():
                write.exception()  # looked at: nobody else will
            raise
        return named(self._goal, digest)

    async def get(self, name: str) -> bytes:
        """Read them."""
        import asyncio

        goal, digest = parts(name)
        return checked(await asyncio.to_thread(_read, self._path(goal, digest)), digest)

    def of(self, goal: str) -> FolderArtefacts:
        """For one goal."""
        return FolderArtefacts(self._folder, goal)

    async def forget(self, goal: str) -> None:
        """Remove its folder."""
        import asyncio
        import shutil
        from contextlib import suppress

        parts(f"{goal}/{'0' * 64}")  # what is no goal's name is no path
        with suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._of(goal))


def _write(path: str, data: bytes) -> None:
    from satchel._fs import write_atomic

    if _read(path) != data:  # not there, or damaged: a step that is done again heals it
        write_atomic(path, data, private=True)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def is_reference(output: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether an output is kept elsewhere."""
    return isinstance(output, dict) and KEY in output


def reference(name: str, data: bytes, value: Any = None, room: int = 0) -> dict[str, Any]:
    """What stands in a result instead of JSON bytes.

    Args:
        name: Of the bytes, as `put` gave it.
        data: The bytes.
        value: What they say; of a list or mapping, the reference has a preview in `fields`.
        room: Bytes that the preview may have.
    """
    text = data[: HEAD * 4].decode("utf-8", "ignore")
    made = {KEY: name, "size": len(data), "head": text.removeprefix('"')[:HEAD]}
    if isinstance(value, dict | list):
        import json

        for text_size, members in _SIZES:
            fields = _preview(value, text_size, members)
            if len(json.dumps(fields, ensure_ascii=False).encode()) <= room:
                return {**made, "fields": fields}
    return made


def _preview(value: Any, size: int, members: int, depth: int = 1) -> Any:
    """A value with its long texts and lists cut, which it says."""
    if isinstance(value, str):
        return value if len(value) <= size else f"{value[:size]}… ({len(value)} characters)"
    if not isinstance(value, dict | list):
        return value
    count = len(cast("dict[str, Any] | list[Any]", value))
    if depth > _DEPTH:
        return f"… ({count} members)"
    more = count - members
    if isinstance(value, list):
        rows = [
            _preview(row, size, members, depth + 1) for row in cast("list[Any]", value)[:members]
        ]
        return [*rows, f"… ({more} more)"] if more > 0 else rows
    # Short ones first: a title is more often asked for than what it is the title of.
    table = cast("dict[str, Any]", value)
    kept = set(sorted(table, key=lambda name: isinstance(table[name], dict | list))[:members])
    found = {
        name: _preview(item, size, members, depth + 1)
        for name, item in table.items()
        if name in kept
    }
    return {**found, "…": f"{more} more"} if more > 0 else found


class Shown(str):
    """How a large output begins, where it cannot be loaded."""

    __slots__ = ("_fields", "_size")
    _fields: Any
    _size: int

    @classmethod
    def of(cls, output: Mapping[str, Any]) -> Shown:
        """A reference as what people see of it."""
        made = cls(f"{output.get('head', '')}… ({output.get('size', 0)} bytes)")
        made._fields, made._size = output.get("fields"), output.get("size", 0)
        return made

    def below(self, path: Iterable[str]) -> Any:
        """What a preview has of a field; that there is more when it does not have it."""
        value = self._fields
        for part in path:
            if isinstance(value, dict) and part in value:
                value = cast("dict[str, Any]", value)[part]
            elif (
                isinstance(value, list)
                and part.isdecimal()
                and len(part) < 5
                and int(part) < min(_SIZES[0][1], len(cast("list[Any]", value)))
            ):
                value = cast("list[Any]", value)[int(part)]
            else:
                return f"… (part of an output of {self._size} bytes)"
        return value


def shown(output: Any) -> Any:
    """An output where it cannot be loaded: of a large one, how it begins."""
    return Shown.of(output) if is_reference(output) else output


async def load(output: Any, artefacts: Artefacts) -> Any:
    """An output itself, wherever it is.

    Raises:
        StepFailed: it is not there, or damaged.
    """
    if not is_reference(output):
        return output
    import json

    return json.loads(await artefacts.get(str(output[KEY])))
