"""May a person's word be taken? The same rules on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Conflict, InvalidInput, NotFound
from satchel.goals import schema

if TYPE_CHECKING:
    from satchel.goals.model import Answer, GoalReport


def is_new(report: GoalReport, name: str, answer: Answer, earlier: Answer | None = None) -> bool:
    """Whether an answer is to be kept; False when the very same was given before.

    Args:
        report: How far the goal is.
        name: The step that is answered.
        answer: What is said.
        earlier: What was said to it before, in this revision.

    Raises:
        NotFound: the plan has no such step.
        Conflict: the step does not ask, or was answered otherwise.
        InvalidInput: the value is not what the step wants.
    """
    step = next((step for step in report.plan.steps if step.id == name), None)
    if step is None:
        raise NotFound(
            say("Goal `{goal}` has no step `{step}`", goal=report.id, step=name),
            say("Run `satchel goal show {goal}` to see its steps", goal=report.id),
        )
    if earlier is not None:
        if earlier == answer:
            return False
        raise Conflict(
            say("Step `{step}` was answered already, with another answer", step=name),
            say("Run `satchel goal retry {goal} --from {step}` to ask again", goal=report.id,
                step=name),
        )  # fmt: skip
    if report.steps[name].state != "asking":
        raise Conflict(
            say("Step `{step}` does not ask anybody: it is {state}", step=name,
                state=report.steps[name].state),
            say("Run `satchel goal show {goal}` to see which step asks", goal=report.id),
        )  # fmt: skip
    if answer.approved and step.output:
        value = "approved" if answer.value is None else answer.value
        slips = schema.slips(value, step.output)
        if slips:
            raise InvalidInput(
                say("Step `{step}` wants another answer: {slips}", step=name,
                    slips="; ".join(slips)),
                say("Give a value that fits its `output`"),
            )  # fmt: skip
    return True
