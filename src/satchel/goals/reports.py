"""How do records go to JSON and back, and how is a goal summed up? The same for every engine.

`pack` leaves out what is as by default, so that journals stay small; `unpack` puts it back and
ignores fields that a later version added. Nothing here knows a file, a clock or the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from satchel._language import pack_messages, unpack_messages
from satchel.errors import InvalidInput
from satchel.goals.model import (
    ENDS,
    NO_USAGE,
    OVER,
    Budget,
    Goal,
    GoalReport,
    GoalSummary,
    Plan,
    Retry,
    Step,
    StepCall,
    StepError,
    StepEvent,
    StepResult,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.goals.model import GoalState


class Spent(NamedTuple):
    """What earlier revisions of a goal took for results that do not hold any more."""

    usage: Usage = NO_USAGE
    seconds: float = 0.0
    """At work."""


NOTHING = Spent()
"""There were no earlier ones, or all that they made still holds."""

Record = TypeVar("Record", bound="tuple[Any, ...]")

INSIDE: dict[type[Any], dict[str, type[Any]]] = {
    Step: {"retry": Retry},
    Plan: {"steps": Step, "retry": Retry, "budget": Budget},
    Goal: {"plan": Plan},
    StepResult: {"error": StepError, "usage": Usage},
    GoalReport: {"plan": Plan, "steps": StepResult, "usage": Usage},
    StepEvent: {"result": StepResult},
    Spent: {"usage": Usage},
    StepCall: {"step": Step, "retry": Retry, "left": Budget},
}
"""Record -> its fields that hold records: one, several, or several by name. Engines add theirs."""
_BY_NAME = {"answers", "known"}
"""Fields that hold records by name, as the `steps` of a report do."""
_LISTS = {"needs", "skills", "tools", "notes"}
"""Fields that are tuples of texts."""


def pack(record: Any) -> dict[str, Any]:
    """A record as JSON values."""
    kind = cast("Any", type(record))
    inside = INSIDE.get(kind)
    defaults = kind._field_defaults
    packed: dict[str, Any] = {}
    for name, value in zip(kind._fields, record, strict=True):
        if name in defaults and value == defaults[name]:
            continue
        if inside is not None and name in inside:
            packed[name] = _pack_inside(value)
        else:
            packed[name] = list(cast("Any", value)) if isinstance(value, tuple) else value
    return pack_messages(packed)


def _pack_inside(value: Any) -> Any:
    if value is None:
        return None
    if hasattr(value, "_fields"):
        return pack(value)
    if isinstance(value, tuple):
        return [pack(one) for one in cast("tuple[Any, ...]", value)]
    return {name: pack(one) for name, one in value.items()}


def unpack(kind: type[Record], packed: Any) -> Record:
    """A record from what `pack` made.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(packed, dict):
        raise InvalidInput(f"A `{kind.__name__}` is an object, and this is none")
    table = unpack_messages(cast("dict[str, Any]", packed))
    inside = INSIDE.get(kind)
    values: dict[str, Any] = {}
    for name in cast("Any", kind)._fields:
        if name not in table:
            continue
        value: Any = table[name]
        if inside is not None and name in inside and value is not None:
            by_name = name in _BY_NAME or (kind is GoalReport and name == "steps")
            value = _unpack_inside(inside[name], value, by_name)
        elif name in _LISTS:
            value = tuple(cast("list[str]", value))
        values[name] = value
    try:
        return cast("Any", kind)(**values)
    except TypeError as exc:
        raise InvalidInput(f"Something is missing in a `{kind.__name__}`: {exc}") from exc


def _unpack_inside(kind: type[Any], value: Any, by_name: bool) -> Any:  # noqa: FBT001
    if by_name:
        return {name: unpack(kind, one) for name, one in value.items()}
    if isinstance(value, list):
        return tuple(unpack(kind, one) for one in cast("list[Any]", value))
    return unpack(kind, value)


def pack_results(results: Mapping[str, StepResult]) -> dict[str, Any]:
    """Results by step, as JSON values."""
    return {name: pack(result) for name, result in results.items()}


def unpack_results(packed: Mapping[str, Any]) -> dict[str, StepResult]:
    """The same, back."""
    return {name: unpack(StepResult, value) for name, value in packed.items()}


def total(usages: Iterable[Usage]) -> Usage:
    """What several took; the cost is that of those whose price is known."""
    requests = asked = given = 0
    cost: float | None = None
    for usage in usages:
        requests += usage.requests
        asked += usage.input_tokens
        given += usage.output_tokens
        if usage.cost is not None:
            cost = (cost or 0.0) + usage.cost
    return Usage(requests, asked, given, cost)


def at_work(plan: Plan, results: Mapping[str, StepResult]) -> float:
    """For how many seconds at least one step was at work. Waiting for people is no work."""
    spans = [
        (result.started, result.started + result.seconds)
        for result in results.values()
        if result.seconds > 0
    ]
    if not spans:
        return 0.0
    people = {step.id for step in plan.steps if step.action_type == "human"}
    if people:
        spans = [
            (result.started, result.started + result.seconds)
            for name, result in results.items()
            if result.seconds > 0 and name not in people
        ]
    spans.sort()
    seconds = until = 0.0
    for begin, end in spans:
        if end > until:
            seconds += end - max(begin, until)
            until = end
    return seconds


def report_of(  # noqa: PLR0913 - all that engines know, by name
    goal: Goal,
    results: Mapping[str, StepResult],
    state: GoalState,
    *,
    reason: str = "",
    engine: str = "",
    started: float = 0.0,
    revision: int = 1,
    spent: Spent = NOTHING,
    ended: float = 0.0,
) -> GoalReport:
    """A goal summed up from the results that are there; the other steps are `waiting`.

    A goal that is `cancelled` or `failed` has no step that still waits: such a one is `cancelled`.
    What it took counts all its revisions, as its budget does; a result that was kept counts once.
    """
    steps = _every_step(goal.plan, results, ended=state in {"cancelled", "failed"})
    if not started and results:
        started = min((one.started for one in steps.values() if one.started), default=0.0)
    usages = [result.usage for result in results.values() if result.usage is not NO_USAGE]
    if spent.usage is not NO_USAGE:
        usages.append(spent.usage)
    return GoalReport(
        goal.id,
        state,
        goal.plan,
        steps,
        engine,
        started,
        at_work(goal.plan, results) if results else 0.0,
        total(usages) if usages else NO_USAGE,
        reason,
        revision,
        ended if state in OVER else 0.0,
    )


def last_sign(report: GoalReport) -> float:
    """When something last happened to a goal, as far as its steps tell."""
    ends = (step.started + step.seconds for step in report.steps.values())
    return max(ends, default=0.0) or report.started


def _every_step(
    plan: Plan, results: Mapping[str, StepResult], *, ended: bool
) -> dict[str, StepResult]:
    steps: dict[str, StepResult] = {}
    for step in plan.steps:
        name = step.id
        result = results.get(name)
        if result is None:
            result = StepResult(name, "cancelled" if ended else "waiting")
        elif ended and result.state not in ENDS:
            result = StepResult(name, "cancelled", started=result.started)
        steps[name] = result
    return steps


def summary_of(report: GoalReport) -> GoalSummary:
    """One line of a list."""
    done = sum(result.state == "done" for result in report.steps.values())
    return GoalSummary(
        report.id,
        report.state,
        report.plan.goal,
        report.engine,
        report.started,
        report.seconds,
        done,
        len(report.steps),
    )
