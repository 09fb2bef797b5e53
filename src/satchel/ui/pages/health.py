"""The Health page."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.presentation.skill_usage import KINDS, PERIOD_DAYS
from satchel.ui.templating import app_state, go_to, page, wants_part

router = APIRouter()


@router.get("/health")
def health(request: Request) -> Response:
    """Show the last result, or the progress of the first run; only the body for htmx."""
    state = app_state(request).health().state()
    template = "body" if wants_part(request) else "page"
    return page(request, f"health/{template}.html", state=state, days=PERIOD_DAYS, kinds=KINDS)


@router.post("/health")
def check_again(request: Request) -> Response:
    """Start another check."""
    app_state(request).health().start()
    return health(request) if wants_part(request) else go_to(request, "/health")
