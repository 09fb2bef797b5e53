"""Goals: the list, one of them, and what a person may do about it. By the rules of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Body, Path, Query, Request

from satchel.tools.frame import encodable
from satchel.ui import acting
from satchel.ui.api.answers import errors
from satchel.ui.api.models import Again, Answering, GoalPage, GoalRow, GoalStep, OneGoal
from satchel.ui.view import house_of

if TYPE_CHECKING:
    from satchel.goals.model import GoalReport, GoalState

router = APIRouter(prefix="/api", tags=["goals"])
Id = Annotated[str, Path(max_length=256)]


@router.get("/goals", responses=errors(502))
async def every_goal(
    request: Request,
    before: Annotated[float | None, Query(gt=0, lt=4e9)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> GoalPage:
    """The goals, the latest first."""
    states: tuple[GoalState, ...] = ()
    found = await house_of(request).goals.ask(
        lambda engine: engine.list(states=states, limit=limit + 1, before=before)
    )
    rows = [
        GoalRow(
            id=one.id,
            state=one.state,
            text=encodable(one.goal),
            engine=one.engine,
            started=one.started,
            seconds=one.seconds,
            done=one.done,
            steps=one.steps,
        )
        for one in found[:limit]
    ]
    return GoalPage(goals=rows, before=rows[-1].started if len(found) > limit else None)


@router.get("/goals/{goal_id}", responses=errors(404, 502))
async def one_goal(request: Request, goal_id: Id) -> OneGoal:
    """A goal and its steps."""
    return _goal(await _report(request, goal_id))


@router.post("/goals/{goal_id}/answer", responses=errors(404, 409, 413, 501, 502))
async def answer(request: Request, goal_id: Id, asked: Answering) -> OneGoal:
    """Say a person's word to a step that asks."""
    by = acting.who(request.state.session)
    word = acting.Word(asked.step, asked.approve, asked.value, by, asked.note, asked.allow)
    await acting.answer(house_of(request).goals, await _report(request, goal_id), word)
    return _goal(await _report(request, goal_id))


@router.post("/goals/{goal_id}/retry", responses=errors(404, 409, 413, 501, 502))
async def retry(request: Request, goal_id: Id, asked: Again) -> OneGoal:
    """Do again what failed, or all from a step on."""
    report = await _report(request, goal_id)
    await acting.retry(house_of(request).goals, report, asked.from_step, allow=asked.allow)
    return _goal(await _report(request, goal_id))


@router.post("/goals/{goal_id}/resume", responses=errors(404, 409, 413, 501, 502))
async def resume(
    request: Request, goal_id: Id, allow: Annotated[bool, Body(embed=True)] = False
) -> OneGoal:
    """Go on with a goal whose process is gone; nothing happens while it is there."""
    report = await _report(request, goal_id)
    await acting.resume(house_of(request).goals, report, allow=allow)
    return _goal(await _report(request, goal_id))


@router.post("/goals/{goal_id}/cancel", responses=errors(404, 409, 502))
async def cancel(request: Request, goal_id: Id) -> OneGoal:
    """Stop it; nothing happens to one that is over."""
    await acting.cancel(house_of(request).goals, await _report(request, goal_id))
    return _goal(await _report(request, goal_id))


async def _report(request: Request, goal_id: str) -> GoalReport:
    return await acting.report_of(house_of(request).goals, goal_id)


def _goal(report: GoalReport) -> OneGoal:
    return OneGoal(
        id=report.id,
        state=report.state,
        text=encodable(report.plan.goal),
        engine=report.engine,
        revision=report.revision,
        started=report.started,
        ended=report.ended,
        seconds=report.seconds,
        reason=encodable(report.reason),
        steps=[
            GoalStep(
                id=one.step,
                state=one.state,
                output=_clean(one.output),
                error=encodable(one.error.message) if one.error is not None else "",
                attempts=one.attempts,
                seconds=one.seconds,
                skills=[encodable(name) for name in one.skills],
                tools=[encodable(name) for name in one.tools],
                notes=[encodable(note) for note in one.notes],
            )
            for one in report.steps.values()
        ],
    )


def _clean(value: Any) -> Any:
    """JSON without half signs, which no answer can carry."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {encodable(key): _clean(one) for key, one in table.items()}
    if isinstance(value, list):
        return [_clean(one) for one in cast("list[Any]", value)]
    return value
