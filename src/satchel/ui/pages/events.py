"""The event stream of open pages, and the badges of the tabs."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from satchel.errors import SatchelError
from satchel.presentation.skill_index import count_unusable
from satchel.ui.templating import app_state, page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from satchel.ui.auth import UiSession
    from satchel.ui.state import AppState

router = APIRouter()
MAX_BADGE = 99
_EVENT_NAME = re.compile(r"goals|goal:[\w-]{1,128}")
_CHANGE_NUMBER = re.compile(r"[0-9]{1,18}")


@router.get("/live")
async def live(
    request: Request,
    on: Annotated[tuple[str, ...], Query(max_length=8)] = (),
    last_seen: Annotated[str, Query(alias="seen", max_length=32)] = "",
) -> Response:
    """Server-sent events: `library`, `goals`, and those asked for by `on`.

    Changes after the number `seen` are sent at once. A reconnecting browser sends the number of its
    last event.
    """
    state, session = app_state(request), request.state.session
    names = frozenset(name for name in on if _EVENT_NAME.fullmatch(name))
    last = request.headers.get("last-event-id", "") or last_seen
    number = int(last) if _CHANGE_NUMBER.fullmatch(last) else None
    stream = _while_signed_in(state, session, names, number)
    return StreamingResponse(stream, media_type="text/event-stream")


@router.get("/badges")
async def badges(request: Request) -> Response:
    """Show the number of waiting goals, and of broken or blocked skills; loaded after the page."""
    state = app_state(request)
    waiting = 0
    if not state.goals.connection.is_shared:  # another machine's engine may take seconds
        with suppress(SatchelError):
            pending = await state.goals.connection.call(
                lambda engine: engine.list(states=("asking",), limit=MAX_BADGE)
            )
            waiting = len(state.goals.waiting() | {goal.id for goal in pending})
    loaded = state.loading.reading.state.ran
    problems = await run_in_threadpool(count_unusable, state.satchel) if loaded else 0
    return page(request, "badges.html", waiting=waiting, problems=problems)


async def _while_signed_in(
    state: AppState, session: UiSession, names: frozenset[str], last_seen: int | None
) -> AsyncIterator[bytes]:
    """Yield the stream until the client disconnects or its session ends."""
    async for event in state.live.stream(names, last_seen):
        if not state.access.is_valid(session):
            return
        yield event


async def begun(request: Request) -> None:
    """Store the number of the last change before a page is made: later ones may not be in it."""
    request.state.live = app_state(request).live.number
