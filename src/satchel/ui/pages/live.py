"""The stream that tells an open page what changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from satchel.ui.view import house_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from satchel.ui.access import Session
    from satchel.ui.house import House

router = APIRouter()
_NAME = re.compile(r"goals|goal:[\w-]{1,128}")
_NUMBER = re.compile(r"[0-9]{1,18}")


@router.get("/live")
async def live(
    request: Request,
    on: Annotated[tuple[str, ...], Query(max_length=8)] = (),
    seen: Annotated[str, Query(max_length=32)] = "",
) -> Response:
    """Server-sent events: `library`, `goals`, and those asked for by `on`.

    What changed after the number `seen` is told at once. A browser whose line broke says itself
    what it was told last.
    """
    house, session = house_of(request), request.state.session
    wanted = frozenset(name for name in on if _NAME.fullmatch(name))
    if not house.access.may_listen(session):
        raise HTTPException(429)
    last = request.headers.get("last-event-id", "") or seen
    number = int(last) if _NUMBER.fullmatch(last) else None
    stream = _while_signed_in(house, session, wanted, number)
    return StreamingResponse(stream, media_type="text/event-stream")


async def _while_signed_in(
    house: House, session: Session, wanted: frozenset[str], seen: int | None
) -> AsyncIterator[bytes]:
    """What changes, till the reader goes away or signs out, in whichever of their pages."""
    with house.access.listening(session):
        async for piece in house.live.stream(wanted, seen):
            if not house.access.holds(session):
                return
            yield piece


async def begun(request: Request) -> None:
    """Remember what was told before a page is made: what comes after it may not show."""
    request.state.live = house_of(request).live.number
