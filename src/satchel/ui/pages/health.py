"""Health: what is wrong, what is unsafe, what drifted, what is mistaken, and what never fires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from satchel.ui.view import go_to, house_of, page, part, wants_part
from satchel.ui.views.health import SECTIONS

if TYPE_CHECKING:
    from satchel.ui.views.health import Health, Look

router = APIRouter(include_in_schema=False)


@router.get("/health")
def health(request: Request) -> Response:
    """All sections; each loads itself, since some take seconds."""
    made = house_of(request).health()
    values: dict[str, Any] = {
        "figures": made.figures(),
        "titles": made.titles(),
        "sections": SECTIONS,
    }
    return page(request, "health/page.html", **values)


@router.get("/health/{key}")
def section(request: Request, key: str) -> Response:
    """One section: a part of the page, or a page for those without script."""
    made = house_of(request).health()
    return _answer(request, made, made.look(_known(key)))


@router.post("/health/{key}")
def begin(request: Request, key: str) -> Response:
    """Begin the work of a section: the deep check, a scan, the trigger tests."""
    made = house_of(request).health()
    made.start(_known(key))
    if not wants_part(request):
        return go_to(request, f"/health/{key}")
    return _answer(request, made, made.look(key))


def _answer(request: Request, made: Health, look: Look) -> Response:
    values: dict[str, Any] = {"look": look, "found": look.found, "job": look.job}
    values["figures"] = made.figures(look)
    if wants_part(request):
        return part(request, "health/part.html", **values)
    return page(request, "health/one.html", **values, titles=made.titles(), sections=SECTIONS)


def _known(key: str) -> str:
    if key not in SECTIONS:
        raise HTTPException(404)
    return key
