"""Rules for accepting human answers, and checks that precede a run, for every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.errors import Conflict, InvalidInput, NotFound
from satchel.goals import output_schema
from satchel.goals.model import FINAL_GOAL_STATES
from satchel.goals.reports import valid_results
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.goals.model import Answer, GoalReport, Plan, Step
    from satchel.satchel import Satchel


def is_new_answer(
    report: GoalReport, name: str, answer: Answer, earlier: Answer | None = None
) -> bool:
    """Whether an answer must be recorded; False when the same answer is recorded already.

    Raises:
        NotFound: the plan has no such step.
        Conflict: the step waits for no answer, or has a different one.
        InvalidInput: the value does not match the step's schema.
    """
    step = next((step for step in report.plan.steps if step.id == name), None)
    if step is None:
        raise NotFound(
            say("Goal `{goal}` has no step `{step}`", goal=report.id, step=name),
            say("Run `{command}`", command=f"satchel goal show {report.id}"),
        )
    if earlier is not None:
        if earlier == answer:
            return False
        raise Conflict(
            say("Step `{step}` was answered already, with another answer", step=name),
            say("Run `{command}`", command=f"satchel goal retry {report.id} --from {name}"),
        )  # fmt: skip
    if report.steps[name].state != "asking":
        raise Conflict(
            say("Step `{step}` does not wait for an answer: it is {state}", step=name,
                state=report.steps[name].state),
            say("Run `{command}`", command=f"satchel goal show {report.id}"),
        )  # fmt: skip
    if answer.approved and step.output:
        value = "approved" if answer.value is None else answer.value
        problems = output_schema.violations(value, step.output)
        if problems:
            raise InvalidInput(
                say("Step `{step}` wants another answer: {slips}", step=name,
                    slips="; ".join(problems)),
                say("Correct it"),
            )  # fmt: skip
    return True


# --- checks before a run -------------------------------------------------------------------


def first_unapproved(satchel: Satchel, steps: Iterable[Step]) -> Step | None:
    """The first step whose tool call needs an approval; None when none does."""
    tools = [step for step in steps if step.action_type == "tool"]
    allowed = satchel.session().available_tools().tools if tools else ()
    return next((step for step in tools if step.tool not in allowed), None)


def needs_model(plan: Plan) -> bool:
    """Whether a step calls a model without naming one."""
    return any(step.action_type in {"llm", "skill"} and not step.model for step in plan.steps)


def asks_model(plan: Plan) -> bool:
    """Whether a step calls a model, which needs the extra `agent`."""
    return any(step.action_type in {"llm", "skill"} for step in plan.steps)


def unfinished_plan(report: GoalReport) -> Plan:
    """The plan reduced to its unfinished steps; no steps when the goal is over."""
    plan, over = report.plan, report.state in FINAL_GOAL_STATES
    unfinished = (step for step in plan.steps if not over and report.steps[step.id].state != "done")
    return plan._replace(steps=tuple(unfinished))


def retried_plan(report: GoalReport, from_step: str = "", plan: Plan | None = None) -> Plan:
    """The plan reduced to the steps that a retry runs again.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    new_plan = plan or report.plan
    results = valid_results(report.plan, new_plan, report.steps, from_step)
    return new_plan._replace(steps=tuple(step for step in new_plan.steps if step.id not in results))
