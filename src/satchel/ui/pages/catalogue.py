"""The Catalogue page: the catalogue at any budget."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.presentation.catalogue import FORMS, read_amount, show_catalogue
from satchel.ui.templating import app_state, page, wants_part

router = APIRouter()

Word = Annotated[str, Query(max_length=40)]


@router.get("/catalogue")
def catalogue(request: Request, budget: Word = "", form: Word = "") -> Response:
    """Show the page; for the slider, only the part that changes."""
    view = show_catalogue(app_state(request).satchel, amount=read_amount(budget), form=form)
    template = "shown" if wants_part(request) else "page"
    return page(request, f"catalogue/{template}.html", shown=view, forms=FORMS)
