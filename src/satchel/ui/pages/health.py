"""The Health page: problems, scan and use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from satchel.presentation.health import SECTIONS
from satchel.ui.templating import app_state, go_to, page, part, wants_part

if TYPE_CHECKING:
    from satchel.presentation.health import HealthSection

router = APIRouter()


@router.get("/health")
def health(request: Request) -> Response:
    """Show all sections; each is loaded separately, since some take seconds."""
    return _page(request, SECTIONS)


@router.get("/health/{key}")
def section(request: Request, key: str) -> Response:
    """Show one section: as a fragment, or as a page without scripts."""
    look = app_state(request).health().section(_known(key))
    if not wants_part(request):
        return _page(request, (key,), look)
    return part(request, "health/body.html", look=look, found=look.found, job=look.job)


@router.post("/health/{key}")
def begin(request: Request, key: str) -> Response:
    """Start the work of a section."""
    app_state(request).health().start(_known(key))
    return section(request, key) if wants_part(request) else go_to(request, f"/health/{key}")


def _page(
    request: Request, sections: tuple[str, ...], look: HealthSection | None = None
) -> Response:
    values: dict[str, Any] = {"titles": app_state(request).health().titles(), "sections": sections}
    if look is not None:
        values |= {"found": look.found, "job": look.job}
    return page(request, "health/page.html", look=look, **values)


def _known(key: str) -> str:
    if key not in SECTIONS:
        raise HTTPException(404)
    return key
