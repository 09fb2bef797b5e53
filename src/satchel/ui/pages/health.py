"""The Health page."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.presentation.health import KINDS, PERIOD_DAYS
from satchel.ui.templating import app_state, go_to, page, part, wants_part

router = APIRouter()


@router.get("/health")
def health(request: Request) -> Response:
    """Show the last result, or the progress of the first run; only the body for htmx."""
    look = app_state(request).health().look()
    show = part if wants_part(request) else page
    template = "health/body.html" if wants_part(request) else "health/page.html"
    return show(request, template, look=look, days=PERIOD_DAYS, kinds=KINDS)


@router.post("/health")
def begin(request: Request) -> Response:
    """Check again."""
    app_state(request).health().start()
    return health(request) if wants_part(request) else go_to(request, "/health")
