"""What the model is told, and what is wrong here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from satchel.settings import Form
from satchel.tools.frame import encodable
from satchel.ui.api.answers import errors, ills
from satchel.ui.api.models import Problems, Told
from satchel.ui.view import house_of

router = APIRouter(prefix="/api", tags=["library"])
_SHOWN = 1_000


@router.get("/catalogue", responses=errors())
def catalogue(
    request: Request,
    budget: Annotated[int | None, Query(ge=0, le=10_000_000)] = None,
    form: Annotated[Form | None, Query()] = None,
) -> Told:
    """The text at a budget, with an account of it. Nothing is recorded as offered."""
    found = house_of(request).satchel.preview(budget, form)
    account = found.account
    return Told(
        text=encodable(found.text),
        budget=account.budget,
        used=account.used,
        unit=account.unit,
        total=account.total,
        full=len(account.full),
        shortened=len(account.shortened),
        named=len(account.named),
        unlisted=account.unlisted,
        withheld=len(account.withheld),
        summary=account.summary(),
    )


@router.get("/problems", responses=errors())
def problems(request: Request) -> Problems:
    """Everything that is wrong or odd, the first thousand of it."""
    found = house_of(request).satchel.problems()
    return Problems(problems=ills(found[:_SHOWN]), total=len(found))
