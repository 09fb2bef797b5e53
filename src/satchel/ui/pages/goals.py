"""Pages of goals: the list, a new goal, and one goal with its steps and actions."""

from __future__ import annotations

import asyncio
import os
from math import isfinite
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.datastructures import UploadFile
from starlette.responses import Response

from satchel._fs import read_plain
from satchel.errors import Conflict, InvalidInput, NotFound, SatchelError, ServerFailed
from satchel.goals.approvals import needs_model, retried_plan, unfinished_plan
from satchel.goals.model import OVER, Answer, Goal
from satchel.goals.plan_checks import GOAL_ID, refusal, require_valid
from satchel.i18n import say
from satchel.presentation.drafts import remark_of
from satchel.presentation.goal_forms import answer_of, with_inputs
from satchel.presentation.goals import (
    FILTERS,
    MAX_GOALS_PER_PAGE,
    MAX_PLAN_BYTES,
    MAX_STEPS_DRAWN,
    board_of,
    find_plans,
    plan_errors,
    plan_preview,
    queued_report,
    results_of,
    rows_of,
    step_of,
)
from satchel.presentation.skill_html import markdown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.tools.framing import encodable
from satchel.ui.errors import failure_of
from satchel.ui.flash import Flash
from satchel.ui.goal_service import GoalAction
from satchel.ui.templating import address, app_state, go_to, page, wants_part

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalSummary, Step
    from satchel.presentation.goals import StepView
    from satchel.ui.goal_service import GoalDraft
    from satchel.ui.state import AppState

router = APIRouter()
_MAX_TIMESTAMP_S = 4e9
MAX_WAITING = 50


@router.get("/goals")
async def goals(request: Request, state: str = "", before: str = "") -> Response:
    """Show the list, goals that wait for an answer first, then the latest; rows for htmx."""
    service = app_state(request).goals
    kind = state if state in FILTERS else ""
    since = _moment(before)

    async def load(engine: Engine) -> tuple[list[GoalSummary], list[GoalSummary]]:
        waiting = [] if kind or since else await engine.list(states=("asking",), limit=MAX_WAITING)
        most = MAX_GOALS_PER_PAGE + 1  # one of the next page
        found = await engine.list(states=FILTERS[kind], limit=most, before=since)
        return list(waiting), list(found)

    try:
        waiting, found = await service.call(load)
    except SatchelError as exc:
        failure = failure_of(exc)
        values = {"failure": failure, "engine": service.name, "here": "/goals"}
        return page(request, "goals/closed.html", status=503, **values)
    rows = rows_of(found, kind, waiting)
    first = since is None
    template = "rows" if wants_part(request) else "page"
    return page(request, f"goals/{template}.html", list=rows, is_first=first)


def _moment(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) and 0 < found < _MAX_TIMESTAMP_S else None


# --- a new goal ---------------------------------------------------------------------------
# `+` is in no id of a goal.


@router.get("/goals/+new")
async def new_goal(request: Request) -> Response:
    """Show the ways to start a goal."""
    return await _new_page(request)


@router.post("/goals/+new")
async def make_draft(request: Request) -> Response:
    """Read the chosen or uploaded plan, or let a model make one of words."""
    state = app_state(request)
    project = state.satchel.settings.project
    async with request.form(max_files=1, max_fields=10) as form:
        sent, path, words = form.get("file"), form.get("path"), form.get("words")
        words = words.replace("\r\n", "\n").strip() if isinstance(words, str) else ""
        try:
            if words:
                draft = state.goals.plan_words(words)
            elif isinstance(sent, UploadFile) and sent.filename:
                text = (await sent.read(MAX_PLAN_BYTES)).decode("utf-8-sig", "replace")
                draft = await state.goals.add_draft(sent.filename, text)
            elif isinstance(path, str) and path in await asyncio.to_thread(find_plans, project):
                with disk_errors_as_refusal(path):
                    data = read_plain(os.path.join(project, path), MAX_PLAN_BYTES)
                draft = await state.goals.add_draft(path, data.decode("utf-8-sig", "replace"))
            else:
                raise InvalidInput(say("Choose a plan file, or describe the goal"))
        except SatchelError as exc:
            return await _new_page(request, exc, words)
    return go_to(request, f"/goals/+new/{draft.key}")


@router.get("/goals/+new/{key}")
async def draft_page(request: Request, key: str) -> Response:
    """Show the progress of planning, then the plan and its inputs."""
    return await _draft_page(request, app_state(request).goals.drafts.require(key))


@router.post("/goals/+new/{key}")
async def start(request: Request, key: str) -> Response:
    """Start the goal."""
    state, form = app_state(request), await _form(request)
    draft = state.goals.drafts.require(key)
    try:
        if draft.plan is None:
            raise Conflict(say("Making a plan…"))
        if errors := plan_errors(draft.problems):
            raise refusal(errors)
        draft.goal_id = draft.goal_id or Goal.of(draft.plan).id  # a second click is the same goal
        goal = Goal(draft.goal_id, with_inputs(draft.plan, form))
        require_valid(goal)
        action = GoalAction(queued_report(goal, state.goals.name), goal.plan, "allow" in form)
        await state.goals.change(action, lambda engine: engine.submit(goal))
    except SatchelError as exc:
        return await _draft_page(request, draft, exc, form)
    state.goals.drafts.drop(key)
    return go_to(request, f"/goals/{goal.id}")


@router.post("/goals/+new/{key}/cancel")
async def cancel_draft(request: Request, key: str) -> Response:
    """Drop the plan."""
    app_state(request).goals.drafts.drop(key)
    return go_to(request, "/goals/+new")


async def _new_page(request: Request, exc: SatchelError | None = None, words: str = "") -> Response:
    state = app_state(request)
    plans = await asyncio.to_thread(find_plans, state.satchel.settings.project)
    return page(
        request,
        "goals/new.html",
        status=200 if exc is None else 422,
        plans=plans,
        no_model=_no_model(state),
        words=words,
        trouble=None if exc is None else remark_of(exc),
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
    shared = state.goals.shared
    shown = await asyncio.to_thread(
        plan_preview, state.satchel, draft.plan, draft.problems, shared=shared
    )
    drawing = ""
    if not shown.errors and 1 < len(shown.steps) <= MAX_STEPS_DRAWN:
        report = queued_report(Goal("plan", draft.plan), state.goals.name)
        drawing = Markup(await state.goals.drawing(report))  # noqa: S704 - escaped there
    return page(
        request,
        "goals/draft.html",
        status=200 if exc is None else 422,
        draft=draft,
        plan=shown,
        drawing=drawing,
        typed_in=form,
        no_model=_no_model(state) if needs_model(draft.plan) and not shared else None,
        trouble=None if exc is None else remark_of(exc),
    )


def _no_model(state: AppState) -> SatchelError | None:
    """Why no model can be called."""
    try:
        state.goals.require_planner()
    except SatchelError as exc:
        return exc
    return None


# --- one goal -----------------------------------------------------------------------------

_RELOAD_S = 3
_CANCEL_WAIT_S = 2.0
_MAX_NOTE_CHARS = 20_000


@router.get("/goals/{goal_id}")
async def goal(
    request: Request, goal_id: str, step: str | None = None, more: bool = False
) -> Response:
    """Show a goal; `step` is the step to open."""
    try:
        report, name = await _report(request, goal_id), step or ""
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
    return page(request, "goals/step.html", step=shown, id=report.id)


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
    await app_state(request).goals.change(
        GoalAction(report, left, "allow" in form),
        lambda engine: engine.answer(report.id, step.id, said),
    )
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/retry")
async def retry(request: Request, goal_id: str) -> Response:
    """Retry failed steps, or all from a step on."""
    report, form = await _report(request, goal_id), await _form(request)
    service, first = app_state(request).goals, form.get("from", "")
    if not first and report.state == "done":
        raise Conflict(say("No step of `{goal}` failed", goal=report.id))

    async def begin(engine: Engine) -> None:
        now = await engine.report(report.id)
        if service.is_running(report.id) and now.state not in OVER and now.state != "asking":
            # Its process may not have started: the engine would take a second click for another
            # retry.
            raise Conflict(say("Goal `{goal}` is running", goal=report.id))
        await engine.retry(report.id, from_step=first)

    action = GoalAction(report, retried_plan(report, first), "allow" in form)
    await service.change(action, begin)
    return await _current_board(request, goal_id)


@router.post("/goals/{goal_id}/resume")
async def resume(request: Request, goal_id: str) -> Response:
    """Continue a goal whose process is gone."""
    report, form = await _report(request, goal_id), await _form(request)
    await app_state(request).goals.change(
        GoalAction(report, unfinished_plan(report), "allow" in form),
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


@router.post("/goals/{goal_id}/delete")
async def delete(request: Request, goal_id: str) -> Response:
    """Delete a goal that has ended."""
    state, report = app_state(request), await _report(request, goal_id)
    await state.goals.call(lambda engine: engine.forget(report.id))
    state.goals.notify(report.id)
    note = Flash(say("Removed: {names}", names=f"`{report.id}`"))
    return go_to(request, address("/goals", told=state.flash.add(note)))


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
        say("Goal `{goal}` has no step `{step}`", goal=report.id, step=encodable(name)[:64])
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
    engine = await service.engine()
    results = [
        (name, title, one, None if one.is_json else markdown(one.text, lambda _: "#"))
        for name, title, one in await results_of(report, engine.artifacts)
    ]
    values = {"board": made, "drawing": drawing, "trouble": trouble, "id": report.id}
    return {**values, "results": results}


async def _current_board(request: Request, goal_id: str) -> Response:
    """The current board; without htmx, a redirect to the page."""
    if request.method == "POST" and not wants_part(request):
        return go_to(request, f"/goals/{goal_id}")
    report = await _report(request, goal_id)
    return page(request, "goals/board.html", **await _board(request, report))


async def _step(request: Request, report: GoalReport, name: str, *, whole: bool) -> StepView:
    state = app_state(request)
    engine = await state.goals.engine()
    return await step_of(
        state.satchel, report, name, engine.artifacts, shared=state.goals.shared, whole=whole
    )


async def _form(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=100) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}
