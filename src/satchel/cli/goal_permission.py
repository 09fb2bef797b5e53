"""Which steps of a plan need somebody's word before they may run, and who must be given it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import say
from satchel.cli.output import one_line
from satchel.errors import Refused
from satchel.goals.permission import unallowed

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.goals.model import GoalReport, Plan


def must_be_allowed(session: Session, plan: Plan) -> None:
    """Make sure that no step calls what nobody allowed: it would fail after all that came before.

    Raises:
        Refused: a step calls a tool that writes or uses the network.
    """
    step = unallowed(session.satchel, plan.steps)
    if step is not None:
        raise Refused(
            say("Step `{step}` calls `{tool}`, which may write or use the network",
                step=step.id, tool=one_line(step.tool)),
            say("Give `--yes` to allow that"),
        )  # fmt: skip


def worker_command(session: Session, report: GoalReport) -> str:
    """What starts a worker that can do all that is left of a goal."""
    left = (step for step in report.plan.steps if report.steps[step.id].state != "done")
    yes = "" if unallowed(session.satchel, left) is None else " --yes"
    return f"satchel worker --engine {report.engine}{yes}"
