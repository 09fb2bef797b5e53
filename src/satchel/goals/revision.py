"""Which results still hold when a goal is tried again, maybe with a changed plan?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel.errors import NotFound
from satchel.goals.templates import mentioned
from satchel.goals.wiring import behind, needs_in, order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import Plan, Step, StepResult


def still_known(
    old: Plan, new: Plan, results: Mapping[str, StepResult], from_step: str = ""
) -> dict[str, StepResult]:
    """The results that a new revision need not make again.

    One holds when its step ended as `done`, neither the step nor what it is told has changed, and
    everything that it depends on holds too.

    Args:
        old: The plan that gave the results.
        new: The plan that is to be carried out.
        results: Those of the old plan.
        from_step: This step and all that depend on it are done again in any case.

    Raises:
        NotFound: the new plan has no such step.
    """
    needs = needs_in(new)
    if from_step and from_step not in needs:
        raise NotFound(
            say("The plan has no step `{step}`", step=from_step),
            say("Run `satchel goal show` to see them"),
        )
    again = behind(needs, [from_step]) if from_step else set[str]()
    before = {step.id: step for step in old.steps}
    kept: dict[str, StepResult] = {}
    for step in order(new):
        result = results.get(step.id)
        if (
            result is not None
            and result.state == "done"
            and step.id not in again
            and _alike(before.get(step.id), step)
            and _told_the_same(step, old, new)
            and all(need in kept for need in needs[step.id])
        ):
            kept[step.id] = result
    return kept


def _told_the_same(step: Step, old: Plan, new: Plan) -> bool:
    for reference in mentioned(step):
        if reference.kind == "goal" and old.goal != new.goal:
            return False
        if reference.kind == "inputs" and not _alike(
            old.inputs.get(reference.name), new.inputs.get(reference.name)
        ):
            return False
    return True


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are the same once they are written down: `True` is not 1."""
    if one != other:
        return False
    import json

    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(
        other, sort_keys=True, default=repr
    )


def going_on(results: Mapping[str, StepResult]) -> dict[str, StepResult]:
    """What the next run of the same revision knows: everything but who asks, and who waits for it.

    Steps that were cancelled are done anew: a run that was stopped did not decide about them.
    """
    return {
        name: result
        for name, result in results.items()
        if result.state in {"done", "failed", "skipped"}
    }
