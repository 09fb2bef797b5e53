"""What does a plan need before its steps may run? Somebody's word for tools, and maybe a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.goals.model import OVER
from satchel.goals.revision import still_known

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.facade import Satchel
    from satchel.goals.model import GoalReport, Plan, Step


def unallowed(satchel: Satchel, steps: Iterable[Step]) -> Step | None:
    """The first step that calls what needs somebody's word; None when nothing does."""
    tools = [step for step in steps if step.action_type == "tool"]
    allowed = satchel.session().within_reach().tools if tools else ()
    return next((step for step in tools if step.tool not in allowed), None)


def needs_model(plan: Plan) -> bool:
    """Whether a step asks a model and names none."""
    return any(step.action_type in {"llm", "skill"} and not step.model for step in plan.steps)


def asks_model(plan: Plan) -> bool:
    """Whether a step asks a model: then the extra `agent` is needed."""
    return any(step.action_type in {"llm", "skill"} for step in plan.steps)


def not_done(report: GoalReport) -> Plan:
    """What is left of a goal's plan; nothing when it is over."""
    plan, over = report.plan, report.state in OVER
    left = (one for one in plan.steps if not over and report.steps[one.id].state != "done")
    return plan._replace(steps=tuple(left))


def done_again(report: GoalReport, from_step: str = "", plan: Plan | None = None) -> Plan:
    """What a retry does: the steps whose results do not hold.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    wanted = plan or report.plan
    kept = still_known(report.plan, wanted, report.steps, from_step)
    return wanted._replace(steps=tuple(step for step in wanted.steps if step.id not in kept))
