"""How much may somebody send, and how slowly? Counted while it comes, whatever was announced.

A form is small. An upload has limits of its own where it is unpacked; here it has one beyond which
no archive of skills is read at all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import Message, Receive

ORDINARY = 1 << 20
"""Bytes of a form."""
EDITED = 4 << 20
"""Bytes of a SKILL.md that somebody edits."""
MAX_UPLOAD_BYTES = 256 << 20
"""Bytes of the files of an upload."""
UPLOAD = MAX_UPLOAD_BYTES + (1 << 20)
"""Bytes of an upload, with what the form writes between its files."""
UPLOADS = frozenset(("/skills/import/zip", "/skills/import/folder"))
"""Addresses that take uploads."""
STALL = 20.0
"""Seconds that the next piece of a body may take."""
LONGEST = 60.0
"""Seconds that a form may take as a whole."""


def limit_of(path: str) -> int:
    """How many bytes may be sent to an address."""
    if path in UPLOADS:
        return UPLOAD
    return EDITED if path.startswith("/skill/edit") else ORDINARY


class Body:
    """What a request sends, counted: a `receive` around another."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit
        self._time: float = LONGEST if limit < UPLOAD else float("inf")
        self._ended = False

    async def __call__(self) -> Message:
        """The next piece.

        Raises:
            HTTPException: 413, it is too large; 408, it comes too slowly.
        """
        if self._ended:  # from here on somebody waits for the end of the connection
            return await self._receive()
        began = time.monotonic()
        message: Message | None = None
        with anyio.move_on_after(min(STALL, self._time)):
            message = await self._receive()
        if message is None:
            raise HTTPException(408, headers={"connection": "close"})
        self._time -= time.monotonic() - began
        if message["type"] != "http.request":
            self._ended = True
            return message
        self._left -= len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413)
        return message
