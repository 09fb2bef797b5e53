"""The list of goals, and one goal watched while it runs: its board, its steps, its buttons."""

from __future__ import annotations

import asyncio
from math import isfinite
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from satchel._language import say
from satchel.errors import Conflict, NotFound, SatchelError, ServerFailed
from satchel.goals.graph import GOAL_ID
from satchel.goals.model import OVER, Answer
from satchel.goals.permission import done_again, not_done
from satchel.tools.frame import encodable
from satchel.ui.failing import failure_of
from satchel.ui.keeping import Wish
from satchel.ui.view import go_to, house_of, page, part, wants_part
from satchel.ui.views.goals import (
    KINDS,
    PAGE,
    answer_of,
    board_of,
    command_of,
    last_of,
    rows_of,
    step_of,
)

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Step
    from satchel.ui.views.goals import StepView

router = APIRouter()
_LATEST = 4e9
"""No goal was begun after this moment."""


@router.get("/goals")
async def goals(request: Request, state: str = "", before: str = "", last: str = "") -> Response:
    """The latest first; for htmx, and for a page that refreshes itself, the rows alone."""
    keeper = house_of(request).goals
    kind = state if state in KINDS else ""
    since = _moment(before)
    try:
        found = await keeper.ask(
            # One more says that there are more; another may be the last of the page before.
            lambda engine: engine.list(states=KINDS[kind], limit=PAGE + 2, before=since)
        )
    except SatchelError as exc:
        failure = failure_of(exc)
        show = part if wants_part(request) else page
        values = {"failure": failure, "engine": keeper.name, "here": "/goals"}
        return show(request, "goals/closed.html", status=503, **values)
    rows = rows_of(found, kind, last)
    first = since is None
    if wants_part(request):
        return part(request, "goals/rows.html", list=rows, is_first=first)
    return page(request, "goals/page.html", list=rows, is_first=first, engine=keeper.name)


def _moment(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) and 0 < found < _LATEST else None


_AGAIN = 3
"""Seconds after which a page of a goal that cannot be shown is loaded again."""
_STOPPING_S = 2.0
"""Seconds to wait for the end of a goal that was cancelled."""
_LONGEST_NOTE = 20_000
"""Characters of a note."""


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
    """Answer a step that asks, and let the goal go on."""
    report, form = await _report(request, goal_id), await _form(request)
    step = _step_in(report, form.get("step", ""))
    yes = form.get("say") != "no"
    value = answer_of(step.output, form) if yes else None
    said = Answer(yes, value, "browser", form.get("note", "").strip()[:_LONGEST_NOTE])
    # A no lets nothing begin that waits for it; where nothing asks, the engine says so.
    asks = yes and report.steps[step.id].state == "asking"
    left = not_done(report) if asks else report.plan._replace(steps=())
    command = command_of(report, "approve", step.id, *([] if yes else ["--no"]))
    await house_of(request).goals.bring_on(
        Wish(report, left, command, "allow" in form),
        lambda engine: engine.answer(report.id, step.id, said),
    )
    return await _fresh(request, goal_id)


@router.post("/goals/{goal_id}/retry")
async def retry(request: Request, goal_id: str) -> Response:
    """Do again what failed, or all from a step on."""
    report, form = await _report(request, goal_id), await _form(request)
    keeper, first = house_of(request).goals, form.get("from", "")
    if not first and report.state == "done":
        raise Conflict(
            say("Everything of `{goal}` is done", goal=report.id),
            say("Choose a step to do again, with all that depend on it"),
        )
    command = command_of(report, "retry", *(["--from", first] if first else []))

    async def begin(engine: Engine) -> None:
        now = await engine.report(report.id)
        if keeper.is_on(report.id) and now.state not in OVER and now.state != "asking":
            # Its process has perhaps not begun: the engine would take a second click for a new try.
            raise Conflict(
                say("Goal `{goal}` is running", goal=report.id),
                say("Wait for it, or run `satchel goal cancel {goal}`", goal=report.id),
            )
        await engine.retry(report.id, from_step=first)

    wish = Wish(report, done_again(report, first), command, "allow" in form)
    await keeper.bring_on(wish, begin)
    return await _fresh(request, goal_id)


@router.post("/goals/{goal_id}/resume")
async def resume(request: Request, goal_id: str) -> Response:
    """Go on with a goal whose process is gone."""
    report, form = await _report(request, goal_id), await _form(request)
    await house_of(request).goals.bring_on(
        Wish(report, not_done(report), command_of(report, "resume"), "allow" in form),
        # The process that goes on with it resumes it; here it is only looked at.
        lambda engine: engine.report(report.id),
    )
    return await _fresh(request, goal_id)


@router.post("/goals/{goal_id}/cancel")
async def cancel(request: Request, goal_id: str) -> Response:
    """Stop it; nothing happens to one that is over."""
    keeper, report = house_of(request).goals, await _report(request, goal_id)
    if report.state not in OVER:
        await keeper.ask(lambda engine: engine.cancel(report.id))
        await keeper.ask(lambda engine: engine.wait(report.id, timeout=_STOPPING_S))
        keeper.tell(report.id)
    return await _fresh(request, goal_id)


async def _report(request: Request, goal_id: str) -> GoalReport:
    """A goal as it stands.

    Raises:
        NotFound: there is none of that name.
        ServerFailed: its engine does not answer.
    """
    if not GOAL_ID.fullmatch(goal_id):
        raise NotFound(say("There is no goal `{goal}`", goal=encodable(goal_id)[:100]))
    return await house_of(request).goals.ask(lambda engine: engine.report(goal_id))


def _step_in(report: GoalReport, name: str) -> Step:
    for step in report.plan.steps:
        if step.id == name:
            return step
    raise NotFound(
        say("Goal `{goal}` has no step `{step}`", goal=report.id, step=encodable(name)[:64]),
        say("Load the page again"),
    )


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
