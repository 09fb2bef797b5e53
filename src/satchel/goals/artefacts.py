"""Where are large outputs? Beside the journal, by the digest of their bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

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
    """A place for bytes, known by their SHA-256."""

    async def put(self, data: bytes) -> str:
        """Keep these bytes; the same bytes again are kept once. Returns their digest."""
        ...

    async def get(self, digest: str) -> bytes:
        """The bytes, checked against their digest.

        Raises:
            StepFailed: they are not there, or damaged.
        """
        ...


def digest_of(data: bytes) -> str:
    """What bytes are called."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def checked(data: bytes | None, digest: str) -> bytes:
    """The bytes, if they are those that the digest names: for those who write an `Artefacts`.

    Raises:
        StepFailed: they are not there, or damaged.
    """
    if data is None:
        raise StepFailed(
            "ARTEFACT_MISSING",
            f"The output `{digest[:12]}` is not there",
            "Do the step that made it again, with `satchel goal retry --from`",
            retryable=False,
        )
    if digest_of(data) != digest:
        raise StepFailed(
            "ARTEFACT_DAMAGED",
            f"The output `{digest[:12]}` is not what was written",
            "Do the step that made it again, with `satchel goal retry --from`",
            retryable=False,
        )
    return data


class MemoryArtefacts:
    """As long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        """Keep them."""
        digest = digest_of(data)
        self._kept[digest] = data
        return digest

    async def get(self, digest: str) -> bytes:
        """Give them back."""
        return checked(self._kept.get(digest), digest)


class FolderArtefacts:
    """One file each, in folders by the first two digits."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _path(self, digest: str) -> str:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            checked(None, digest)  # a reference that somebody made up is no path
        return os.path.join(self._folder, digest[:2], digest)

    async def put(self, data: bytes) -> str:
        """Write them, once."""
        import asyncio

        digest = digest_of(data)
        await asyncio.to_thread(_write, self._path(digest), data)
        return digest

    async def get(self, digest: str) -> bytes:
        """Read them."""
        import asyncio

        return checked(await asyncio.to_thread(_read, self._path(digest)), digest)


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


def reference(digest: str, data: bytes, value: Any = None, room: int = 0) -> dict[str, Any]:
    """What stands in a result instead of JSON bytes.

    Args:
        digest: Of the bytes.
        data: The bytes.
        value: What they say; of a list or mapping, the reference has a preview in `fields`.
        room: Bytes that the preview may have.
    """
    text = data[: HEAD * 4].decode("utf-8", "ignore")
    made = {KEY: digest, "size": len(data), "head": text.removeprefix('"')[:HEAD]}
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
