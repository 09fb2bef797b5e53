"""Prepares a step on a worker: loads its inputs, checks its condition, and fills its texts.

Outputs of earlier steps may be artifacts, which only workers can load. So conditions and lists of
items are evaluated here, not in the run of a goal.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import StepFailed
from satchel.goals import artifacts
from satchel.goals.model import StepError, StepResult
from satchel.goals.output_schema import is_equal
from satchel.goals.substeps import is_substep, item_number
from satchel.goals.templates import TemplateRoom, TemplateValues, fill, fill_value
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import Step, StepCall

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": is_equal,
    "differs": lambda value, other: not is_equal(value, other),
    "above": operator.gt,
    "below": operator.lt,
    "contains": operator.contains,
}
"""Comparison of a condition -> whether it holds."""


async def load_values(call: StepCall, storage: Artifacts) -> TemplateValues:
    """Load the values that the texts of a step refer to.

    Raises:
        StepFailed: a large output is missing or damaged.
    """
    outputs = call.outputs
    if any(artifacts.is_reference(output) for output in outputs.values()):
        outputs = {name: await artifacts.load(output, storage) for name, output in outputs.items()}
    values = TemplateValues(call.inputs, outputs, call.text)
    number = item_number(call.step.id)
    if number is None or call.step.for_each is None:
        return values
    return values._replace(item=fill_value(call.step.for_each.items, values)[number])


def evaluate(step: Step, values: TemplateValues) -> StepResult | None:
    """Return the result of a step that needs no runner; None for a step that is to be run.

    A condition that does not hold leaves a step out. A person is asked by the engine afterwards.
    Of `for_each`, the output is the number of items, or the list of their outputs.

    Raises:
        StepFailed: its condition or its list cannot be evaluated.
    """
    if step.when is not None and not _is_met(fill_value(step.when._asdict(), values)):
        error = StepError("CONDITION", Message("Its condition is not met"), retryable=False)
        return StepResult(step.id, "skipped", error=error)
    if step.action_type == "human":
        return StepResult(step.id, "done")
    if step.for_each is None or item_number(step.id) is not None:
        return None
    if is_substep(step.id):
        items: Any = fill_value(step.for_each.items, values)
        return StepResult(step.id, "done", _count_items(items, step.for_each.most), attempts=1)
    item_ids = sorted(values.outputs, key=lambda name: item_number(name) or 0)
    return StepResult(step.id, "done", [values.outputs[name] for name in item_ids], attempts=1)


def _is_met(condition: Mapping[str, Any]) -> bool:
    """Whether all comparisons hold, of the fields of a `Condition` without references.

    Raises:
        StepFailed: values of these types cannot be compared so.
    """
    for name, compare in _COMPARISONS.items():
        other = condition[name]
        try:
            if other is not None and not compare(condition["value"], other):
                return False
        except TypeError as exc:
            raise StepFailed(
                Message("`{name}` of `when` cannot be checked: {reason}", name=name, reason=exc),
                Message("Declare the `output` of the step that gives the value"),
                code="NOT_COMPARABLE",
                retryable=False,
            ) from exc
    return True


def _count_items(items: Any, most: int) -> int:
    """Return how many items a list has.

    Raises:
        StepFailed: it is no list, or too long.
    """
    count = len(cast("list[Any]", items)) if isinstance(items, list) else most + 1
    if count > most:
        raise StepFailed(
            Message("`for_each` needs a list of at most {count} items", count=most),
            Message("Give it a larger `most`, or declare the `output` of the step before it"),
            code="BAD_LIST",
            retryable=False,
        )
    return count


def fill_texts(step: Step, values: TemplateValues) -> tuple[str, dict[str, Any]]:
    """Return the prompt and the arguments of a step, with all references filled in.

    Raises:
        StepFailed: a referenced value is missing, or the texts would be too large.
    """
    room = TemplateRoom()
    arguments: dict[str, Any] = fill_value(dict(step.arguments), values, room)
    return fill(step.prompt, values, room), arguments
