"""One goal, watched while it runs: its board, its steps, and what a person may do about it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from satchel.errors import ServerFailed
from satchel.ui import acting
from satchel.ui.failing import failure_of
from satchel.ui.view import go_to, house_of, page, part, wants_part
from satchel.ui.views.answering import answer_of
from satchel.ui.views.goal_step import step_of
from satchel.ui.views.goals import board_of, last_of

if TYPE_CHECKING:
    from satchel.goals.model import GoalReport
    from satchel.ui.views.goal_step import StepView

router = APIRouter()
_AGAIN = 3
"""Seconds after which a page of a goal that cannot be shown is loaded again."""


@router.get("/goals/{goal_id}")
async def goal(
    request: Request, goal_id: str, step: str | None = None, more: bool = False
) -> Response:
    """The page; `step` is the one whose details are open, else what a goal that is done gave."""
    try:
        report = await _report(request, goal_id)
        name = last_of(report) if step is None else step
        shown = await _step(request, report, name, whole=more) if name in report.steps else None
    except ServerFailed as exc:
        return _away(request, goal_id, exc)
    return page(request, "goals/goal.html", step=shown, **await _board(request, report))


@router.get("/goals/{goal_id}/board")
async def board(request: Request, goal_id: str) -> Response:
    """The part that changes while it runs."""
    return await _fresh(request, goal_id)


@router.get("/goals/{goal_id}/steps/{step}")
async def one_step(request: Request, goal_id: str, step: str, more: bool = False) -> Response:
    """The details of a step."""
    report = await _report(request, goal_id)
    shown = await _step(request, report, step, whole=more)
    return part(request, "goals/step.html", step=shown, id=report.id)


@router.post("/goals/{goal_id}/answer")
async def answer(request: Request, goal_id: str) -> Response:
    """Say a person's word to a step that asks."""
    report, form = await _report(request, goal_id), await _form(request)
    step = acting.step_in(report, form.get("step", ""))
    yes = form.get("say") != "no"
    word = acting.Word(
        step.id,
        yes,
        answer_of(step.output, form) if yes else None,
        "browser",
        form.get("note", ""),
        "allow" in form,
    )
    await acting.answer(house_of(request).goals, report, word)
    return await _fresh(request, goal_id)


@router.post("/goals/{goal_id}/retry")
async def retry(request: Request, goal_id: str) -> Response:
    """Do again what failed, or all from a step on."""
    report, form = await _report(request, goal_id), await _form(request)
    keeper = house_of(request).goals
    await acting.retry(keeper, report, form.get("from", ""), allow="allow" in form)
    return await _fresh(request, goal_id)


@router.post("/goals/{goal_id}/resume")
async def resume(request: Request, goal_id: str) -> Response:
    """Go on with a goal whose process is gone."""
    report, form = await _report(request, goal_id), await _form(request)
    await acting.resume(house_of(request).goals, report, allow="allow" in form)
    return await _fresh(request, goal_id)


@router.post("/goals/{goal_id}/cancel")
async def cancel(request: Request, goal_id: str) -> Response:
    """Stop it; nothing happens to one that is over."""
    await acting.cancel(house_of(request).goals, await _report(request, goal_id))
    return await _fresh(request, goal_id)


async def _report(request: Request, goal_id: str) -> GoalReport:
    return await acting.report_of(house_of(request).goals, goal_id)


def _away(request: Request, goal_id: str, exc: ServerFailed) -> Response:
    """An engine that does not answer: the page says so and tries again, as the list does."""
    keeper = house_of(request).goals
    failure, here = failure_of(exc), f"/goals/{goal_id}"
    made = page(
        request, "goals/closed.html", status=503, failure=failure, engine=keeper.name, here=here
    )
    made.headers["Retry-After"] = made.headers["Refresh"] = str(_AGAIN)
    return made


async def _board(request: Request, report: GoalReport) -> dict[str, Any]:
    """What the board is filled with."""
    house = house_of(request)
    keeper = house.goals
    made = await asyncio.to_thread(
        board_of, house.satchel, report, shared=keeper.shared, on=keeper.is_on(report.id)
    )
    drawing = Markup(await keeper.drawing(report)) if made.drawn else ""  # noqa: S704 - escaped there
    trouble = "" if made.is_over or made.state.name == "running" else keeper.trouble(report.id)
    return {"board": made, "drawing": drawing, "trouble": trouble, "id": report.id}


async def _fresh(request: Request, goal_id: str) -> Response:
    """The board as it is now; without htmx, the page."""
    if request.method == "POST" and not wants_part(request):
        return go_to(request, f"/goals/{goal_id}")
    report = await _report(request, goal_id)
    return part(request, "goals/board.html", **await _board(request, report))


async def _step(request: Request, report: GoalReport, name: str, *, whole: bool) -> StepView:
    house = house_of(request)
    engine = await house.goals.engine()
    return await step_of(
        house.satchel, report, name, engine.artefacts, shared=house.goals.shared, whole=whole
    )


async def _form(request: Request) -> dict[str, str]:
    """Its fields; files are nobody's answer."""
    async with request.form(max_files=0, max_fields=100) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}
