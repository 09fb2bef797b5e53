"""Which steps of a plan need somebody's word before they may run, and who must be given it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import say
from satchel.cli.output import one_line
from satchel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.session import Session
    from satchel.goals.model import GoalReport, Plan, Step


def must_be_allowed(session: Session, plan: Plan) -> None:
    """Make sure that no step calls what nobody allowed: it would fail after all that came before.

    Raises:
        Refused: a step calls a tool that writes or uses the network.
    """
    step = _unallowed(session, plan.steps)
    if step is not None:
        raise Refused(
            say("Step `{step}` calls `{tool}`, which may write or use the network",
                step=step.id, tool=one_line(step.tool)),
            say("Give `--yes` to allow that"),
        )  # fmt: skip


def _unallowed(session: Session, steps: Iterable[Step]) -> Step | None:
    """The first step that calls what needs somebody's word; None when nothing does."""
    tools = [step for step in steps if step.action_type == "tool"]
    allowed = session.satchel.session().within_reach().tools if tools else ()
    return next((step for step in tools if step.tool not in allowed), None)


def worker_command(session: Session, report: GoalReport) -> str:
    """What starts a worker that can do all that is left of a goal."""
    left = (step for step in report.plan.steps if report.steps[step.id].state != "done")
    yes = "" if _unallowed(session, left) is None else " --yes"
    return f"satchel worker --engine {report.engine}{yes}"
