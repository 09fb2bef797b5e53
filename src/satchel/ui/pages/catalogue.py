"""What the model is told: the catalogue at any budget, and the shortlist for one request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views.catalogue import FORMS, read_amount, show_catalogue, show_shortlist

router = APIRouter()

Word = Annotated[str, Query(max_length=40)]


@router.get("/catalogue")
def catalogue(
    request: Request,
    budget: Word = "",
    unit: Word = "characters",
    form: Word = "",
    goal: str = "",
) -> Response:
    """The page; for a slider that moves, what it changes."""
    satchel = house_of(request).satchel
    shown = show_catalogue(satchel, amount=read_amount(budget), unit=unit, form=form)
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
    """What would be said beside one request."""
    if not wants_part(request):
        return go_to(request, address("/catalogue", goal=goal, form=form) + "#shortlist")
    beside = show_shortlist(house_of(request).satchel, goal, form)
    return part(request, "catalogue/beside.html", beside=beside)
