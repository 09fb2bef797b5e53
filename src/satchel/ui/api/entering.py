"""Scripts come in by the link that was printed, or by the password, and get a cookie."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from satchel._language import say
from satchel.errors import AccessDenied
from satchel.ui.api.answers import errors
from satchel.ui.api.models import Entered, Entering
from satchel.ui.pages.door import address_of, set_session
from satchel.ui.view import house_of

router = APIRouter(prefix="/api", tags=["session"])


@router.post("/enter", responses=errors(413))
def enter(request: Request, response: Response, asked: Entering) -> Entered:
    """Sign in. The answer sets the cookie; `csrf` goes with everything that changes something."""
    access = house_of(request).access
    opened = None
    if access.by_password and asked.password:
        opened = access.enter_by_password(asked.password, address_of(request))
    elif access.by_link and asked.token:
        opened = access.enter_by_link(asked.token)
    if opened is None:
        raise AccessDenied(
            say("That does not open anything"),
            say("Send the token of the newest link, or the password, and not too often"),
        )
    set_session(request, response, opened)
    return Entered(csrf=opened[0].csrf, name=opened[0].name)


@router.get("/session", responses=errors())
def session(request: Request) -> Entered:
    """Who is signed in."""
    found = request.state.session
    return Entered(csrf=found.csrf, name=found.name)
