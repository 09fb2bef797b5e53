"""The list of goals, and the page of one goal: its board, its steps, its buttons."""

from __future__ import annotations

import asyncio
from math import isfinite
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from satchel.errors import Conflict, NotFound, SatchelError, ServerFailed
from satchel.goals.approvals import retried_plan, unfinished_plan
from satchel.goals.model import OVER, Answer
from satchel.goals.plan_checks import GOAL_ID
from satchel.i18n import say
from satchel.presentation.goals import (
    FILTERS,
    MAX_GOALS_PER_PAGE,
    answer_of,
    board_of,
    command_of,
    result_step,
    rows_of,
    step_of,
)
from satchel.tools.framing import encodable
from satchel.ui.errors import failure_of
from satchel.ui.goal_service import GoalAction
from satchel.ui.templating import app_state, go_to, page, part, wants_part

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Step
    from satchel.presentation.goals import StepView

router = APIRouter()
_MAX_TIMESTAMP_S = 4e9


@router.get("/goals")
async def goals(request: Request, state: str = "", before: str = "", last: str = "") -> Response:
    """Show the list, latest first; only the rows for htmx."""
    service = app_state(request).goals
    kind = state if state in FILTERS else ""
    since = _moment(before)
    try:
        found = await service.call(
            # One more for the next page, and one that may be the last of the previous page.
            lambda engine: engine.list(
                states=FILTERS[kind], limit=MAX_GOALS_PER_PAGE + 2, before=since
            )
        )
    except SatchelError as exc:
        failure = failure_of(exc)
        show = part if wants_part(request) else page
        values = {"failure": failure, "engine": service.name, "here": "/goals"}
        return show(request, "goals/closed.html", status=503, **values)
    rows = rows_of(found, kind, last)
    first = since is None
    if wants_part(request):
        return part(request, "goals/rows.html", list=rows, is_first=first)
    return page(request, "goals/page.html", list=rows, is_first=first, engine=service.name)


def _moment(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) and 0 < found < _MAX_TIMESTAMP_S else None


_RELOAD_S = 3
_CANCEL_WAIT_S = 2.0
_MAX_NOTE_CHARS = 20_000


@router.get("/goals/{goal_id}")
async def goal(
    request: Request, goal_id: str, step: str | None = None, more: bool = False
) -> Response:
    """Show a goal; `step` is the step to open, by default the one with the result."""
    try:
        report = await _report(request, goal_id)
        name = result_step(report) if step is None else step
        shown = await _step(request, report, name, whole=more) if name in report.steps else None
    except ServerFailed as exc:
        return _engine_down(request, goal_id, exc)
    return page(request, "goals/goal.html", step=shown, **await _board(request, report))


@router.get("/goals/{goal_id}/board")
async def board(request: Request, goal_id: str) -> Response:
    """Show the part that changes while it runs."""
    return await _current_board(request, goal_id)


@router.get("/goals/{goal_id}/steps/{step}")
async def one_step(request: Request, goal_id: str, step: str, more: bool = False) -> Response:
    """Show the details of a step."""
    report = await _report(request, goal_id)
    shown = await _step(request, report, step, whole=more)
    return part(request, "goals/step.html", step=shown, id=report.id)


@router.post("/goals/{goal_id}/answer")
async def answer(request: Request, goal_id: str) -> Response:
    """Answer a waiting step, and continue the goal."""
    report, form = await _report(request, goal_id), await _form(request)
    step = _step_in(report, form.get("step", ""))
    yes = form.get("say") != "no"
    value = answer_of(step.output, form) if yes else None
    said = Answer(yes, value, "browser", form.get("note", "").strip()[:_MAX_NOTE_CHARS])
    # A rejection starts no step; if nothing waits, the engine raises the error.
    asks = yes and report.steps[step.id].state == "asking"
    left = unfinished_plan(report) if asks else report.plan._replace(steps=())
    command = command_of(report, "approve", step.id, *([] if yes else ["--no"]))
    await app_state(request).goals.change(
        GoalAction(report, left, command, "allow" in form),
        lambda engine: engine.answer(report.id, step.id, said),
    )
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/retry")
async def retry(request: Request, goal_id: str) -> Response:
    """Retry failed steps, or all from a step on."""
    report, form = await _report(request, goal_id), await _form(request)
    service, first = app_state(request).goals, form.get("from", "")
    if not first and report.state == "done":
        raise Conflict(
            say("Everything of `{goal}` is done", goal=report.id),
            say("Choose a step to do again, with all that depend on it"),
        )
    command = command_of(report, "retry", *(["--from", first] if first else []))

    async def begin(engine: Engine) -> None:
        now = await engine.report(report.id)
        if service.is_running(report.id) and now.state not in OVER and now.state != "asking":
            # Its process may not have started: the engine would take a second click for another
            # retry.
            raise Conflict(
                say("Goal `{goal}` is running", goal=report.id),
                say("Wait for it, or run `satchel goal cancel {goal}`", goal=report.id),
            )
        await engine.retry(report.id, from_step=first)

    action = GoalAction(report, retried_plan(report, first), command, "allow" in form)
    await service.change(action, begin)
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/resume")
async def resume(request: Request, goal_id: str) -> Response:
    """Continue a goal whose process is gone."""
    report, form = await _report(request, goal_id), await _form(request)
    await app_state(request).goals.change(
        GoalAction(report, unfinished_plan(report), command_of(report, "resume"), "allow" in form),
        # The new process resumes it.
        lambda engine: engine.report(report.id),
    )
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/cancel")
async def cancel(request: Request, goal_id: str) -> Response:
    """Cancel a goal; a finished one is unchanged."""
    service, report = app_state(request).goals, await _report(request, goal_id)
    if report.state not in OVER:
        await service.call(lambda engine: engine.cancel(report.id))
        await service.call(lambda engine: engine.wait(report.id, timeout=_CANCEL_WAIT_S))
        service.notify(report.id)
    return await _current_board(request, goal_id)


async def _report(request: Request, goal_id: str) -> GoalReport:
    """The current report of a goal.

    Raises:
        NotFound: there is no such goal.
        ServerFailed: its engine does not answer.
    """
    if not GOAL_ID.fullmatch(goal_id):
        raise NotFound(say("There is no goal `{goal}`", goal=encodable(goal_id)[:100]))
    return await app_state(request).goals.call(lambda engine: engine.report(goal_id))


def _step_in(report: GoalReport, name: str) -> Step:
    for step in report.plan.steps:
        if step.id == name:
            return step
    raise NotFound(
        say("Goal `{goal}` has no step `{step}`", goal=report.id, step=encodable(name)[:64]),
        say("Load the page again"),
    )


def _engine_down(request: Request, goal_id: str, exc: ServerFailed) -> Response:
    """The page of an engine that does not answer; it reloads itself."""
    service = app_state(request).goals
    failure, here = failure_of(exc), f"/goals/{goal_id}"
    made = page(
        request, "goals/closed.html", status=503, failure=failure, engine=service.name, here=here
    )
    made.headers["Retry-After"] = made.headers["Refresh"] = str(_RELOAD_S)
    return made


async def _board(request: Request, report: GoalReport) -> dict[str, Any]:
    """The values of the board template."""
    state = app_state(request)
    service = state.goals
    made = await asyncio.to_thread(
        board_of, state.satchel, report, shared=service.shared, on=service.is_running(report.id)
    )
    drawing = Markup(await service.drawing(report)) if made.drawn else ""  # noqa: S704 - escaped there
    trouble = "" if made.is_over or made.state.name == "running" else service.last_output(report.id)
    return {"board": made, "drawing": drawing, "trouble": trouble, "id": report.id}


async def _current_board(request: Request, goal_id: str) -> Response:
    """The current board; without htmx, a redirect to the page."""
    if request.method == "POST" and not wants_part(request):
        return go_to(request, f"/goals/{goal_id}")
    report = await _report(request, goal_id)
    return part(request, "goals/board.html", **await _board(request, report))


async def _step(request: Request, report: GoalReport, name: str, *, whole: bool) -> StepView:
    state = app_state(request)
    engine = await state.goals.engine()
    return await step_of(
        state.satchel, report, name, engine.artifacts, shared=state.goals.shared, whole=whole
    )


async def _form(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=100) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}
