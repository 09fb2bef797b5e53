"""Pages of goals: the list, a new goal, and one goal with its steps and actions."""

from __future__ import annotations

import asyncio
import os
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.datastructures import UploadFile
from starlette.responses import Response

from satchel._fs import read_plain
from satchel.errors import Conflict, InvalidInput, NotFound, SatchelError, ServerFailed
from satchel.goals.approval_files import answer_request
from satchel.goals.approvals import needs_model, retried_plan, unfinished_plan
from satchel.goals.engines.factory import approvals_folder
from satchel.goals.model import FINAL_GOAL_STATES, Answer, Goal
from satchel.goals.plan_checks import GOAL_ID, require_valid
from satchel.goals.plan_rules import refusal
from satchel.i18n import say
from satchel.presentation.drafts import error_remark
from satchel.presentation.goal_forms import read_answer, with_inputs
from satchel.presentation.goal_plans import (
    MAX_PLAN_BYTES,
    find_plans,
    plan_errors,
    preview_plan,
    queued_report,
)
from satchel.presentation.goal_status import show_status
from satchel.presentation.goals import (
    FILTERS,
    MAX_GOALS_PER_PAGE,
    MAX_STEPS_DRAWN,
    show_goal,
    show_goals,
    show_results,
    show_step,
    state_of,
)
from satchel.presentation.proposals import show_request
from satchel.presentation.skill_html import render_markdown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.tools.framing import encodable
from satchel.ui.errors import failure_of
from satchel.ui.flash import Flash
from satchel.ui.goal_service import GoalAction
from satchel.ui.templating import app_state, flash_address, go_to, page, wants_part

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary, Step
    from satchel.goals.status import GoalStatus
    from satchel.presentation.goal_status import StatusShown
    from satchel.presentation.goals import StepView
    from satchel.ui.goal_drafts import GoalDraft
    from satchel.ui.state import AppState

router = APIRouter()
MAX_WAITING = 50
_MAX_TIMESTAMP_S = 4e9
_RELOAD_S = 3
_CANCEL_WAIT_S = 2.0
_MAX_NOTE_CHARS = 20_000


@router.get("/goals")
async def goals(request: Request, state: str = "", before: str = "") -> Response:
    """Show the list, goals that wait for an answer first, then the latest; rows for htmx."""
    service = app_state(request).goals
    active_filter = state if state in FILTERS else ""
    before_time = _parse_time(before)

    is_first_page = not active_filter and not before_time

    async def load(
        engine: Engine,
    ) -> tuple[list[GoalSummary], list[GoalSummary], GoalStatus | None]:
        waiting = await engine.list(states=("asking",), limit=MAX_WAITING) if is_first_page else ()
        limit = MAX_GOALS_PER_PAGE + 1  # one of the next page
        states = FILTERS[active_filter]
        page_goals = await engine.list(states=states, limit=limit, before=before_time)
        has_workers = is_first_page and engine.name != "local"
        return list(waiting), list(page_goals), await engine.status() if has_workers else None

    try:
        waiting, page_goals, status = await service.connection.call(load)
    except SatchelError as exc:
        return _unavailable_page(request, exc, "/goals")
    waiting_ids = service.waiting()
    page_goals = [
        summary._replace(state="asking") if summary.id in waiting_ids else summary
        for summary in page_goals
    ]
    rows = show_goals(page_goals, active_filter, waiting)
    template = "rows" if wants_part(request) else "page"
    return page(
        request,
        f"goals/{template}.html",
        list=rows,
        is_first=before_time is None,
        engine_status=_shown_status(status),
    )


def _shown_status(status: GoalStatus | None) -> StatusShown | None:
    """Return what the page shows of the workers; None where there are none, and nothing to do."""
    if status is None or not (status.workers or status.unattended):
        return None
    return show_status(status)


def _unavailable_page(request: Request, exc: SatchelError, retry_address: str) -> Response:
    """Show that the engine does not answer."""
    return page(
        request,
        "goals/closed.html",
        status=503,
        failure=failure_of(exc),
        engine=app_state(request).goals.connection.engine_name,
        retry_address=retry_address,
    )


def _parse_time(text: str) -> float | None:
    try:
        timestamp = float(text)
    except ValueError:
        return None
    return timestamp if isfinite(timestamp) and 0 < timestamp < _MAX_TIMESTAMP_S else None


# --- a new goal ---------------------------------------------------------------------------
# `+` is in no id of a goal.


@router.get("/goals/+new")
async def new_goal(request: Request) -> Response:
    """Show the ways to start a goal."""
    return await _new_page(request)


@router.post("/goals/+new")
async def make_draft(request: Request) -> Response:
    """Read a plan of the project or an uploaded one, or let a model make one for a goal."""
    state = app_state(request)
    project = state.satchel.settings.project
    async with request.form(max_files=1, max_fields=10) as form:
        upload, path, words = form.get("file"), form.get("path"), form.get("words")
        goal_text = words.replace("\r\n", "\n").strip() if isinstance(words, str) else ""
        try:
            if goal_text:
                draft = state.goals.drafts.plan_goal(goal_text)
            elif isinstance(upload, UploadFile) and upload.filename:
                text = (await upload.read(MAX_PLAN_BYTES)).decode("utf-8-sig", "replace")
                draft = await state.goals.drafts.read_plan(upload.filename, text)
            elif isinstance(path, str) and path in await asyncio.to_thread(find_plans, project):
                with disk_errors_as_refusal(path):
                    data = read_plain(os.path.join(project, path), MAX_PLAN_BYTES)
                draft = await state.goals.drafts.read_plan(
                    path, data.decode("utf-8-sig", "replace")
                )
            else:
                raise InvalidInput(say("Choose a plan file, or describe the goal"))
        except SatchelError as exc:
            return await _new_page(request, exc, goal_text)
    return go_to(request, f"/goals/+new/{draft.key}")


@router.get("/goals/+new/{key}")
async def draft_page(request: Request, key: str) -> Response:
    """Show the progress of planning, then the plan and its inputs."""
    return await _draft_page(request, app_state(request).goals.drafts.require(key))


@router.post("/goals/+new/{key}")
async def start(request: Request, key: str) -> Response:
    """Start the goal."""
    state, form = app_state(request), await _read_form(request)
    draft = state.goals.drafts.require(key)
    try:
        if draft.plan is None:
            raise Conflict(say("Making a plan…"))
        if errors := plan_errors(draft.problems):
            raise refusal(errors)
        draft.goal_id = draft.goal_id or Goal.of(draft.plan).id  # a second click is the same goal
        plan = with_inputs(draft.plan, form)
        goal = Goal(draft.goal_id, plan, await state.goals.current_versions(plan) or {})
        require_valid(goal)
        action = GoalAction(
            queued_report(goal, state.goals.connection.engine_name), goal.plan, "allow" in form
        )
        await state.goals.apply_change(action, lambda engine: engine.submit(goal))
    except SatchelError as exc:
        return await _draft_page(request, draft, exc, form)
    state.goals.drafts.drop(key)
    return go_to(request, f"/goals/{goal.id}")


@router.post("/goals/+new/{key}/cancel")
async def cancel_draft(request: Request, key: str) -> Response:
    """Drop the plan."""
    app_state(request).goals.drafts.drop(key)
    return go_to(request, "/goals/+new")


async def _new_page(
    request: Request, exc: SatchelError | None = None, goal_text: str = ""
) -> Response:
    state = app_state(request)
    plans = await asyncio.to_thread(find_plans, state.satchel.settings.project)
    return page(
        request,
        "goals/new.html",
        status=200 if exc is None else 422,
        plans=plans,
        model_error=_model_error(state),
        goal_text=goal_text,
        trouble=None if exc is None else error_remark(exc),
    )


async def _draft_page(
    request: Request,
    draft: GoalDraft,
    exc: SatchelError | None = None,
    form: dict[str, str] | None = None,
) -> Response:
    state = app_state(request)
    if draft.plan is None:
        status = 200 if exc is None else 409
        return page(request, "goals/planning.html", status=status, draft=draft)
    if wants_part(request):  # the poll of a page that waits for the plan
        return go_to(request, f"/goals/+new/{draft.key}")
    shared = state.goals.connection.is_shared
    view = await asyncio.to_thread(
        preview_plan, state.satchel, draft.plan, draft.problems, shared=shared
    )
    drawing = ""
    if not view.errors and 1 < len(view.steps) <= MAX_STEPS_DRAWN:
        report = queued_report(Goal("plan", draft.plan), state.goals.connection.engine_name)
        drawing = Markup(await state.goals.drawing(report))  # noqa: S704 - escaped there
    return page(
        request,
        "goals/draft.html",
        status=200 if exc is None else 422,
        draft=draft,
        plan=view,
        drawing=drawing,
        typed_values=form,
        model_error=_model_error(state) if needs_model(draft.plan) and not shared else None,
        trouble=None if exc is None else error_remark(exc),
    )


def _model_error(state: AppState) -> SatchelError | None:
    """Return the reason why no model can be called, if there is one."""
    try:
        state.goals.drafts.require_planner()
    except SatchelError as exc:
        return exc
    return None


# --- one goal -----------------------------------------------------------------------------


@router.get("/goals/{goal_id}")
async def goal(
    request: Request,
    goal_id: str,
    step: str | None = None,
    full: Annotated[bool, Query(alias="more")] = False,
) -> Response:
    """Show a goal; `step` is the step to open."""
    try:
        report = await _report(request, goal_id)
        view = None
        if step is not None and step in report.steps:
            view = await _step_view(request, report, step, full=full)
    except ServerFailed as exc:
        response = _unavailable_page(request, exc, f"/goals/{goal_id}")
        response.headers["Retry-After"] = response.headers["Refresh"] = str(_RELOAD_S)
        return response
    return page(request, "goals/goal.html", step=view, **await _board_values(request, report))


@router.get("/goals/{goal_id}/board")
async def board(request: Request, goal_id: str) -> Response:
    """Show the part that changes while it runs."""
    return await _current_board(request, goal_id)


@router.get("/goals/{goal_id}/steps/{step}")
async def step_page(
    request: Request, goal_id: str, step: str, full: Annotated[bool, Query(alias="more")] = False
) -> Response:
    """Show the details of a step."""
    report = await _report(request, goal_id)
    view = await _step_view(request, report, step, full=full)
    return page(request, "goals/step.html", step=view, id=report.id)


@router.post("/goals/{goal_id}/answer")
async def answer(request: Request, goal_id: str) -> Response:
    """Answer a waiting step, and continue the goal."""
    report, form = await _report(request, goal_id), await _read_form(request)
    step = _find_step(report, form.get("step", ""))
    is_approved = form.get("say") != "no"
    value = read_answer(step.output, form) if is_approved else None
    note = form.get("note", "").strip()[:_MAX_NOTE_CHARS]
    person_answer = Answer(is_approved, value, "browser", note)
    # A rejection starts no step; if nothing waits, the engine raises the error.
    continues = is_approved and report.steps[step.id].state == "asking"
    next_plan = unfinished_plan(report) if continues else report.plan._replace(steps=())
    await app_state(request).goals.apply_change(
        GoalAction(report, next_plan, "allow" in form),
        lambda engine: engine.answer(report.id, step.id, person_answer),
    )
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/approve")
async def approve(request: Request, goal_id: str) -> Response:
    """Answer a request for approval of the process that runs the goal."""
    state, report, form = (
        app_state(request),
        await _report(request, goal_id),
        await _read_form(request),
    )
    folder = approvals_folder(state.satchel.settings, report.id)
    answer_request(folder, form.get("key", ""), approved=form.get("say") == "yes")
    state.goals.notify(report.id)
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/retry")
async def retry(request: Request, goal_id: str) -> Response:
    """Retry failed steps, or all from a step on."""
    report, form = await _report(request, goal_id), await _read_form(request)
    service, from_step = app_state(request).goals, form.get("from", "")
    if not from_step and report.state == "done":
        raise Conflict(say("No step of `{goal}` failed", goal=report.id))

    async def retry_steps(engine: Engine) -> None:
        state = (await engine.report(report.id)).state
        has_paused = state in FINAL_GOAL_STATES or state == "asking"
        if service.is_running(report.id) and not has_paused:
            # Its process may not have started: the engine would take a second click for another
            # retry.
            raise Conflict(say("Goal `{goal}` is running", goal=report.id))
        versions = await service.current_versions(report.plan)
        await engine.retry(report.id, from_step=from_step, versions=versions)

    action = GoalAction(report, retried_plan(report, from_step), "allow" in form)
    await service.apply_change(action, retry_steps)
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/resume")
async def resume(request: Request, goal_id: str) -> Response:
    """Continue a goal whose process is gone."""
    report, form = await _report(request, goal_id), await _read_form(request)
    await app_state(request).goals.apply_change(
        GoalAction(report, unfinished_plan(report), "allow" in form),
        # The new process resumes it.
        lambda engine: engine.report(report.id),
    )
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/cancel")
async def cancel(request: Request, goal_id: str) -> Response:
    """Cancel a goal; a finished one is unchanged."""
    service, report = app_state(request).goals, await _report(request, goal_id)
    if report.state not in FINAL_GOAL_STATES:
        await service.connection.call(lambda engine: engine.cancel(report.id))
        await service.connection.call(lambda engine: engine.wait(report.id, timeout=_CANCEL_WAIT_S))
        service.notify(report.id)
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/delete")
async def delete(request: Request, goal_id: str) -> Response:
    """Delete a goal that has ended."""
    state, report = app_state(request), await _report(request, goal_id)
    await state.goals.connection.call(lambda engine: engine.forget(report.id))
    state.goals.notify(report.id)
    flash = Flash(say("Removed: {names}", names=f"`{report.id}`"))
    return go_to(request, flash_address(request, flash, "/goals"))


async def _report(request: Request, goal_id: str) -> GoalReport:
    """Return the current report of a goal.

    Raises:
        NotFound: there is no such goal.
        ServerFailed: its engine does not answer.
    """
    if not GOAL_ID.fullmatch(goal_id):
        raise NotFound(say("There is no goal `{goal}`", goal=encodable(goal_id)[:100]))
    return await app_state(request).goals.connection.call(lambda engine: engine.report(goal_id))


def _find_step(report: GoalReport, step_id: str) -> Step:
    for step in report.plan.steps:
        if step.id == step_id:
            return step
    raise NotFound(
        say("Goal `{goal}` has no step `{step}`", goal=report.id, step=encodable(step_id)[:64])
    )


async def _board_values(request: Request, report: GoalReport) -> dict[str, Any]:
    """Return the values of the board template."""
    state = app_state(request)
    service = state.goals
    board = await asyncio.to_thread(
        show_goal,
        state.satchel,
        report,
        shared=service.connection.is_shared,
        is_running=service.is_running(report.id),
    )
    drawing = Markup(await service.drawing(report)) if board.is_drawable else ""  # noqa: S704 - escaped there
    has_stopped = not board.is_over and board.state.name != "running"
    trouble = service.last_output(report.id) if has_stopped else ""
    engine = await service.connection.engine()
    results = [
        (
            name,
            title,
            result,
            None if result.is_json else render_markdown(result.text, lambda _: "#"),
        )
        for name, title, result in await show_results(report, engine.artifacts)
    ]
    requests = [
        show_request(pending.key, pending.request) for pending in service.requests(report.id)
    ]
    if requests:
        board = board._replace(state=state_of("asking"))
    return {
        "board": board,
        "drawing": drawing,
        "trouble": trouble,
        "id": report.id,
        "requests": requests,
        "results": results,
    }


async def _current_board(request: Request, goal_id: str) -> Response:
    """Show the current board; without htmx, redirect to the page."""
    if request.method == "POST" and not wants_part(request):
        return go_to(request, f"/goals/{goal_id}")
    report = await _report(request, goal_id)
    return page(request, "goals/board.html", **await _board_values(request, report))


async def _step_view(request: Request, report: GoalReport, step_id: str, *, full: bool) -> StepView:
    state = app_state(request)
    engine = await state.goals.connection.engine()
    return await show_step(
        state.satchel,
        report,
        step_id,
        engine.artifacts,
        shared=state.goals.connection.is_shared,
        full=full,
    )


async def _read_form(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=100) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}
