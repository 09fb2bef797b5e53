"""The Catalogue page: the catalogue at any budget, and the shortlist for one request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.presentation.catalogue import FORMS, read_amount, show_catalogue, show_shortlist
from satchel.ui.templating import address, app_state, go_to, page, part, wants_part

router = APIRouter()

Word = Annotated[str, Query(max_length=40)]


@router.get("/catalogue")
def catalogue(
    request: Request,
    budget: Word = "",
    form: Word = "",
    goal: str = "",
) -> Response:
    """Show the page; for the slider, only the part that changes."""
    satchel = app_state(request).satchel
    shown = show_catalogue(satchel, amount=read_amount(budget), form=form)
    if wants_part(request):
        return part(request, "catalogue/shown.html", shown=shown)
    return page(
        request,
        "catalogue/page.html",
        shown=shown,
        forms=FORMS,
        beside=show_shortlist(satchel, goal, form) if goal.strip() else None,
        goal=goal,
    )


@router.get("/catalogue/shortlist")
def shortlist(request: Request, goal: str = "", form: Word = "") -> Response:
    """Show the shortlist for one request."""
    if not wants_part(request):
        return go_to(request, address("/catalogue", goal=goal, form=form) + "#shortlist")
    beside = show_shortlist(app_state(request).satchel, goal, form)
    return part(request, "catalogue/beside.html", beside=beside)
