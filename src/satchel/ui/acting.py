"""Actions on a goal: answer, retry, resume, cancel.

The rules are those of the terminal; an engine says what its goals allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel.errors import Conflict, NotFound
from satchel.goals.graph import GOAL_ID
from satchel.goals.model import OVER, Answer
from satchel.goals.permission import done_again, not_done
from satchel.tools.frame import encodable
from satchel.ui.keeping import Wish
from satchel.ui.views.goals import command_of

if TYPE_CHECKING:
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Step
    from satchel.ui.keeping import Keeper

STOPPING = 2.0
"""Seconds that somebody waits for a goal that was cancelled to be over."""
_LONGEST = 20_000
"""Characters of a note."""


class Word(NamedTuple):
    """What a person says to a step that asks."""

    step: str
    yes: bool
    value: Any
    """The step's output; None is a plain yes."""
    by: str
    note: str = ""
    allow: bool = False
    """Whether tools that write or use the network may be called."""


async def report_of(keeper: Keeper, goal_id: str) -> GoalReport:
    """A goal as it stands.

    Raises:
        NotFound: there is none of that name.
        ServerFailed: its engine does not answer.
    """
    if not GOAL_ID.fullmatch(goal_id):
        raise NotFound(say("There is no goal `{goal}`", goal=encodable(goal_id)[:100]))
    return await keeper.ask(lambda engine: engine.report(goal_id))


def step_in(report: GoalReport, name: str) -> Step:
    """A step of a goal's plan.

    Raises:
        NotFound: it has none of that name.
    """
    for step in report.plan.steps:
        if step.id == name:
            return step
    raise NotFound(
        say("Goal `{goal}` has no step `{step}`", goal=report.id, step=encodable(name)[:64]),
        say("Load the page again"),
    )


async def answer(keeper: Keeper, report: GoalReport, word: Word) -> None:
    """Say a person's word to a step that asks, and let the goal go on.

    Raises:
        NotFound: there is no such step.
        SatchelError: as `Keeper.bring_on`.
    """
    step = step_in(report, word.step).id
    said = Answer(word.yes, word.value, word.by, word.note.strip()[:_LONGEST])
    # A no lets nothing begin that waits for it; where nobody asks, the engine says so.
    asks = word.yes and report.steps[step].state == "asking"
    left = not_done(report) if asks else report.plan._replace(steps=())
    command = command_of(report, "approve", step, *([] if word.yes else ["--no"]))
    await keeper.bring_on(
        Wish(report, left, command, word.allow, step),
        lambda engine: engine.answer(report.id, step, said),
        ("answer", step, report.revision),
    )


async def retry(keeper: Keeper, report: GoalReport, first: str, *, allow: bool) -> None:
    """Do again what failed, or all from the step `first` on.

    Raises:
        Conflict: everything is done, and no step is named; or it is not over.
        SatchelError: as `Keeper.bring_on`.
    """
    if not first and report.state == "done":
        raise Conflict(
            say("Everything of `{goal}` is done", goal=report.id),
            say("Choose a step to do again, with all that depend on it"),
        )
    left = done_again(report, first)
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

    wish = Wish(report, left, command, allow)
    await keeper.bring_on(wish, begin, ("retry", first, report.revision))


async def resume(keeper: Keeper, report: GoalReport, *, allow: bool) -> None:
    """Go on with a goal whose process is gone.

    Raises:
        SatchelError: as `Keeper.bring_on`.
    """
    await keeper.bring_on(
        Wish(report, not_done(report), command_of(report, "resume"), allow),
        # Who goes on with it resumes it; here it is only looked at.
        lambda engine: engine.report(report.id),
    )


async def cancel(keeper: Keeper, report: GoalReport) -> None:
    """Stop a goal; nothing happens to one that is over."""
    if report.state not in OVER:
        await keeper.ask(lambda engine: engine.cancel(report.id))
        await keeper.ask(lambda engine: engine.wait(report.id, timeout=STOPPING))
        keeper.tell(report.id)
