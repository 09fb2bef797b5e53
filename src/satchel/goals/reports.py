"""Goal reports and summaries, and the JSON form of all goal records. The same for every engine.

`pack` omits default values, so that journals stay small; `unpack` restores them and ignores fields
of later versions. This module uses no file, clock or environment.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, cast

from satchel.errors import InvalidInput, NotFound
from satchel.goals.model import (
    FINAL_GOAL_STATES,
    FINAL_STEP_STATES,
    NO_USAGE,
    Condition,
    ForEach,
    Goal,
    GoalBudget,
    GoalReport,
    GoalSummary,
    Notify,
    Plan,
    Retry,
    Step,
    StepBegun,
    StepCall,
    StepError,
    StepResult,
    Usage,
)
from satchel.goals.plan_graph import needs_in, order, with_dependents
from satchel.goals.substeps import is_substep, parent_id, substeps_of
from satchel.goals.templates import references_of
from satchel.i18n import pack_messages, say, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.goals.model import GoalState


Record = TypeVar("Record", bound="tuple[Any, ...]")

NESTED_RECORDS: dict[type[Any], dict[str, type[Any]]] = {
    Step: {"retry": Retry, "for_each": ForEach, "when": Condition},
    Plan: {"steps": Step, "retry": Retry, "budget": GoalBudget, "notify": Notify},
    Goal: {"plan": Plan},
    StepResult: {"error": StepError, "usage": Usage},
    StepBegun: {"usage": Usage},
    GoalReport: {"plan": Plan, "steps": StepResult, "usage": Usage, "substeps": StepResult},
    StepCall: {"step": Step, "retry": Retry, "left": GoalBudget},
}
"""Record -> its fields that hold records: one, several, or several by name. Engines add theirs."""
_BY_NAME = {"answers", "known", "substeps"}
"""Fields that hold records by name, like the `steps` of a report."""
_LISTS = {"needs", "skills", "tools", "notes", "events"}
"""Fields that are tuples of texts."""


def pack(record: Any) -> dict[str, Any]:
    """Convert a record to JSON values."""
    kind = cast("Any", type(record))
    inside = NESTED_RECORDS.get(kind)
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
        return [pack(item) for item in cast("tuple[Any, ...]", value)]
    return {name: pack(item) for name, item in value.items()}


def unpack(kind: type[Record], packed: Any) -> Record:
    """Restore a record that `pack` converted.

    Raises:
        InvalidInput: it is no such record.
    """
    if not isinstance(packed, dict):
        raise InvalidInput(f"A `{kind.__name__}` is an object, and this is none")
    table = unpack_messages(cast("dict[str, Any]", packed))
    inside = NESTED_RECORDS.get(kind)
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
        return {name: unpack(kind, item) for name, item in value.items()}
    if isinstance(value, list):
        return tuple(unpack(kind, item) for item in cast("list[Any]", value))
    return unpack(kind, value)


def total(usages: Iterable[Usage]) -> Usage:
    """Sum of several usages; the cost covers those with a known price."""
    requests = asked = produced = 0
    cost: float | None = None
    for usage in usages:
        requests += usage.requests
        asked += usage.input_tokens
        produced += usage.output_tokens
        if usage.cost is not None:
            cost = (cost or 0.0) + usage.cost
    return Usage(requests, asked, produced, cost)


def run_seconds(plan: Plan, results: Mapping[str, StepResult]) -> float:
    """Seconds during which at least one step was running. Waiting for people does not count."""
    people = {step.id for step in plan.steps if step.action_type == "human"}
    spans = (
        (result.started, result.started + result.seconds)
        for name, result in results.items()
        if result.seconds > 0 and name not in people
    )
    seconds = until = 0.0
    for begin, end in sorted(spans):
        if end > until:
            seconds += end - max(begin, until)
            until = end
    return seconds


def report_of(
    goal: Goal,
    results: Mapping[str, StepResult],
    state: GoalState,
    *,
    reason: str = "",
    engine: str = "",
    started: float = 0.0,
    revision: int = 1,
    ended: float = 0.0,
) -> GoalReport:
    """Build a report from the known results; the other steps are `waiting`.

    In a `cancelled` or `failed` goal the other steps are `cancelled`.
    """
    steps = _every_step(goal.plan, results, state=state)
    substeps = substeps_of(goal.plan, results, ended=state in {"cancelled", "failed"})
    for name, result in substeps.items():
        parent = parent_id(name)
        is_stopping = state == "cancelling" and result.state == "running"
        if parent in steps and (is_stopping or steps[parent].state == "waiting"):
            steps[parent] = StepResult(parent, "running")
    if not started and results:
        started = min((result.started for result in steps.values() if result.started), default=0.0)
    usages = [result.usage for result in results.values() if result.usage is not NO_USAGE]
    return GoalReport(
        id=goal.id,
        state=state,
        plan=goal.plan,
        steps=steps,
        engine=engine,
        started=started,
        seconds=run_seconds(goal.plan, results) if results else 0.0,
        usage=total(usages) if usages else NO_USAGE,
        reason=reason,
        revision=revision,
        ended=ended if state in FINAL_GOAL_STATES else 0.0,
        substeps=substeps,
    )


def add_begun(results: dict[str, StepResult], steps: Iterable[StepBegun]) -> None:
    """Add the steps that have begun and have no result: `running`, or `waiting` for an attempt."""
    for begun in steps:
        if begun.step not in results or results[begun.step].state in {"running", "waiting"}:
            results[begun.step] = StepResult(
                begun.step,
                "running" if begun.worker else "waiting",
                attempts=begun.attempts,
                usage=begun.usage,
                started=begun.started if begun.worker else 0.0,
                notes=(*begun.notes, begun.waits_for) if begun.waits_for else begun.notes,
                worker=begun.worker,
                version=begun.version,
            )


def last_event_time(report: GoalReport) -> float:
    """The time of the last known event of a goal's steps."""
    ends = (step.started + step.seconds for step in report.steps.values())
    return max(ends, default=0.0) or report.started


def _every_step(
    plan: Plan, results: Mapping[str, StepResult], *, state: GoalState
) -> dict[str, StepResult]:
    steps: dict[str, StepResult] = {}
    ended = state in {"cancelled", "cancelling", "failed"}
    for step in plan.steps:
        name = step.id
        result = results.get(name)
        if result is None:
            result = StepResult(name, "cancelled" if ended else "waiting")
        elif result.state not in FINAL_STEP_STATES and (
            state in {"cancelled", "failed"} or (ended and result.state != "running")
        ):
            result = StepResult(name, "cancelled", started=result.started)
        steps[name] = result
    return steps


def summary_of(report: GoalReport) -> GoalSummary:
    """The summary of a report."""
    done_count = sum(result.state == "done" for result in report.steps.values())
    return GoalSummary(
        id=report.id,
        state=report.state,
        goal=report.plan.goal,
        engine=report.engine,
        started=report.started,
        seconds=report.seconds,
        done=done_count,
        steps=len(report.steps),
    )


# --- revisions -----------------------------------------------------------------------------


def valid_results(
    old: Plan, new: Plan, results: Mapping[str, StepResult], from_step: str = ""
) -> dict[str, StepResult]:
    """The results that stay valid in a new revision.

    A result stays valid when its step is `done`, neither the step nor its inputs have changed, and
    all results it depends on are valid too.

    Args:
        old: The plan of the results.
        new: The plan of the new revision.
        results: Results of the old plan.
        from_step: This step and its dependents run again in any case.

    Raises:
        NotFound: the new plan has no such step.
    """
    needs = needs_in(new)
    if from_step and from_step not in needs:
        raise NotFound(
            say("There is no `{key}`", key=from_step),
            say("Run `{command}`", command="satchel goal show GOAL"),
        )
    again = with_dependents(needs, [from_step]) if from_step else set[str]()
    before = {step.id: step for step in old.steps}
    valid: dict[str, StepResult] = {}
    for step in order(new):
        is_unchanged = (
            step.id not in again
            and equal_as_json(before.get(step.id), step)
            and _same_inputs(step, old, new)
        )
        if is_unchanged and all(need in valid for need in needs[step.id]):
            valid |= {
                name: results[name]
                for name in _result_ids(step, results)
                if results[name].state == "done"
            }
    return valid


def _result_ids(step: Step, results: Mapping[str, StepResult]) -> list[str]:
    """Return the ids of the results of a step: its own, and those of its items."""
    names = [step.id] if step.id in results else []
    if step.for_each is not None:
        names += [name for name in results if is_substep(name) and parent_id(name) == step.id]
    return names


def _same_inputs(step: Step, old: Plan, new: Plan) -> bool:
    for reference in references_of(step):
        if reference.kind == "goal" and old.goal != new.goal:
            return False
        if reference.kind == "inputs" and not equal_as_json(
            old.inputs.get(reference.name), new.inputs.get(reference.name)
        ):
            return False
    return True


def equal_as_json(value: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: `True` is not 1."""
    return value == other and json_text(value) == json_text(other)


def json_text(value: Any) -> str:
    """A value as JSON, for comparisons."""
    return json.dumps(value, sort_keys=True, default=repr)


def continued_results(results: Mapping[str, StepResult]) -> dict[str, StepResult]:
    """The results that the next run keeps: all but open questions and their dependents.

    Cancelled steps run again: their outcome was not decided.
    """
    return {
        name: result
        for name, result in results.items()
        if result.state in {"done", "failed", "skipped"}
    }
