"""The graph of a plan: dependencies of its steps, their order, and cycles.

This module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput
from satchel.goals.templates import may_have_references, referenced_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.goals.model import Plan, Step


class Wiring(NamedTuple):
    """A plan's steps in order, with their dependencies."""

    steps: tuple[Step, ...]
    needs: dict[str, tuple[str, ...]]
    """Step id -> the steps it depends on."""
    dependents: dict[str, list[str]]
    """Step id -> the steps that depend on it."""


def needs_of(step: Step) -> tuple[str, ...]:
    """Return the dependencies of a step: those it names, then those its texts reference."""
    if not may_have_references(step):
        return step.needs
    return tuple(dict.fromkeys((*step.needs, *referenced_steps(step))))


def needs_in(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of each step of a plan; unknown ids are left out."""
    needs = {step.id: needs_of(step) for step in plan.steps}
    for name, step_needs in needs.items():
        if not needs.keys() >= set(step_needs):
            needs[name] = tuple(need for need in step_needs if need in needs)
    return needs


def dependents_of(needs: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the reverse of `needs_in`: step id -> the steps that depend on it."""
    dependents: dict[str, list[str]] = {name: [] for name in needs}
    for name, step_needs in needs.items():
        for need in step_needs:
            dependents[need].append(name)
    return dependents


def wire_steps(plan: Plan) -> Wiring:
    """Order the steps so that each follows its dependencies; otherwise in the order of the plan.

    The order is deterministic: durable engines identify a step by its position.

    Raises:
        InvalidInput: there is a cycle, or two steps have the same id.
    """
    needs = needs_in(plan)
    if len(needs) != len(plan.steps):
        raise InvalidInput("Two steps have the same id", "Give each step an id of its own")
    dependents = dependents_of(needs)

    plan_index = {step.id: index for index, step in enumerate(plan.steps)}
    open_needs = {name: len(step_needs) for name, step_needs in needs.items()}
    ready = [plan_index[name] for name, count in open_needs.items() if not count]
    heapify(ready)
    ordered: list[Step] = []
    while ready:
        step = plan.steps[heappop(ready)]
        ordered.append(step)
        for name in dependents[step.id]:
            open_needs[name] -= 1
            if not open_needs[name]:
                heappush(ready, plan_index[name])
    if len(ordered) < len(plan.steps):
        path = " → ".join(f"`{name}`" for name in find_cycle(needs))
        raise InvalidInput(
            f"The steps wait for each other in a circle: {path}", "Remove one of them"
        )
    return Wiring(tuple(ordered), needs, dependents)


def order(plan: Plan) -> tuple[Step, ...]:
    """Return only the ordered steps of `wire_steps`.

    Raises:
        InvalidInput: there is a cycle, or two steps have the same id.
    """
    return wire_steps(plan).steps


def find_cycle(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the steps of a cycle, with the first one repeated at the end; empty without one."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as exc:
        cycle: list[str] = exc.args[1][:0:-1]  # each depends on the next one
        first_step = next(name for name in needs if name in cycle)
        start = cycle.index(first_step)
        return [*cycle[start:], *cycle[: start + 1]]
    return []


def with_dependents(needs: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """Return these steps and all their direct and indirect dependents."""
    dependents = dependents_of(needs)
    reached: set[str] = set()
    pending = list(start)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += dependents.get(name, ())
    return reached
