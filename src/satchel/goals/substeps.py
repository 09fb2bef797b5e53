"""Expands a plan into the steps that an engine runs: with items of `for_each`, and notifications.

The substeps of step `X` are `X.list`, which counts the items, `X.0`, `X.1`, … for the items, and
`X.notify`, which notifies that a person is needed. `notify.end` notifies that the goal has ended.
Ids of steps have no dots.

Every possible item has a substep from the start, because durable engines identify a step by its
position: the order may not depend on outputs. Those beyond the end of the list stay `waiting`.

This module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from satchel.goals.model import FINAL_STEP_STATES, Retry, Step, StepResult
from satchel.goals.plan_graph import needs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from satchel.goals.model import Plan

END_NOTICE = "notify.end"
_NOTIFY_RETRY = Retry(attempts=5, first=1.0, factor=3.0, most=30.0)
_NOTIFY_TIMEOUT_S = 30.0


def is_substep(step_id: str) -> bool:
    """Whether an id is that of a substep."""
    return "." in step_id


def parent_id(step_id: str) -> str:
    """Return the step of a substep; a step's own id for a step."""
    return step_id.partition(".")[0]


def list_id(step_id: str) -> str:
    """Return the id of the substep that counts the items, of a step or a substep."""
    return f"{parent_id(step_id)}.list"


def item_number(step_id: str) -> int | None:
    """Return the number of an item, from 0; None for other steps and substeps."""
    suffix = step_id.partition(".")[2]
    return int(suffix) if suffix.isdecimal() else None


def max_step_count(plan: Plan) -> int:
    """Return how many steps and substeps a plan has at most."""
    return sum(1 + (2 + _max_items(step) if step.for_each else 0) for step in plan.steps)


def _max_items(step: Step) -> int:
    if step.for_each is None:
        return 0
    items: Any = step.for_each.items
    limit = max(0, step.for_each.most)
    return min(len(cast("list[Any]", items)), limit) if isinstance(items, list) else limit


def expand_plan(plan: Plan, known_ids: Collection[str] = ()) -> Plan:
    """Return a plan with its substeps; those of a step whose result is known are not run again."""
    has_substeps = plan.notify is not None or any(step.for_each for step in plan.steps)
    if not has_substeps:
        return plan
    steps: list[Step] = []
    for step in plan.steps:
        steps += _expand_step(plan, step, known_ids)
    if plan.notify is not None:
        end = _notify_step(plan, END_NOTICE)._replace(needs=tuple(step.id for step in steps))
        steps.append(end)
    return plan._replace(steps=tuple(steps))


def _expand_step(plan: Plan, step: Step, known_ids: Collection[str]) -> Iterator[Step]:
    if step.id in known_ids:
        for name in known_ids:
            if is_substep(name) and parent_id(name) == step.id:
                yield Step(name, on_failure="continue")
        yield step
    elif step.for_each is not None:
        list_step = step._replace(
            id=list_id(step.id),
            prompt="",
            arguments={},
            output={},
            needs=needs_of(step),
            on_failure="continue",
        )
        items = [
            step._replace(
                id=f"{step.id}.{number}", needs=(list_step.id,), when=None, on_failure="continue"
            )
            for number in range(_max_items(step))
        ]
        yield list_step
        yield from items
        needs = (*needs_of(step), list_step.id, *(item.id for item in items))
        yield step._replace(prompt="", arguments={}, output={}, when=None, needs=needs)
    else:
        if step.action_type == "human" and plan.notify and "asking" in plan.notify.events:
            notice = _notify_step(plan, f"{step.id}.notify")
            yield notice._replace(needs=needs_of(step), when=step.when)
        yield step


def _notify_step(plan: Plan, step_id: str) -> Step:
    """Return the step that sends a notification; the run adds what it is about."""
    address = {} if plan.notify is None else plan.notify._asdict()
    return Step(
        step_id,
        "notify",
        arguments={"url": address.get("url"), "secret": address.get("secret")},
        retry=_NOTIFY_RETRY,
        timeout=_NOTIFY_TIMEOUT_S,
        on_failure="continue",
    )


def substeps_of(
    plan: Plan, results: Mapping[str, StepResult], *, ended: bool
) -> dict[str, StepResult]:
    """Return the results of substeps in the order of the plan, as a report shows them.

    When the goal has `ended`, its open steps have ended with it.
    """
    substeps: dict[str, StepResult] = {}
    for step in expand_plan(plan).steps:
        result = results.get(step.id)
        if result is None or result.state == "waiting" or not is_substep(step.id):
            continue
        if ended and result.state not in FINAL_STEP_STATES:
            result = StepResult(step.id, "cancelled", started=result.started)
        substeps[step.id] = result
    return substeps
