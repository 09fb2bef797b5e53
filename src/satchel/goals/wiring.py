"""Who waits for whom? The order of a plan's steps, and what lies before and behind each.

Nothing here knows a file, a clock or the environment: it runs inside workflows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput
from satchel.goals.templates import steps_mentioned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.goals.model import Plan, Step, StepResult


class Wiring(NamedTuple):
    """A plan's steps in order, and who waits for whom."""

    steps: tuple[Step, ...]
    needs: dict[str, tuple[str, ...]]
    """Step id -> those that must end before it."""
    behind: dict[str, list[str]]
    """Step id -> those that wait for it."""


def needs_of(step: Step) -> tuple[str, ...]:
    """The steps that must end before it: those it names, then those that its texts mention."""
    if "{{" not in step.prompt and not step.arguments:
        return step.needs
    return tuple(dict.fromkeys((*step.needs, *steps_mentioned(step))))


def needs_in(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The same for a whole plan; ids that no step has are left out."""
    needs = {step.id: needs_of(step) for step in plan.steps}
    for name, found in needs.items():
        for need in found:
            if need not in needs:
                needs[name] = tuple(one for one in found if one in needs)
                break
    return needs


def at_work(plan: Plan, results: Mapping[str, StepResult]) -> list[str]:
    """Steps that are at work, as far as can be seen from outside: nothing holds them up."""
    return [
        name
        for name, needs in needs_in(plan).items()
        if name not in results
        and all(need in results and results[need].state in {"done", "failed"} for need in needs)
    ]


def dependents_of(needs: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The other way round: step id -> those that wait for it."""
    found: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            found[need].append(name)
    return found


def wire(plan: Plan) -> Wiring:
    """The steps so that each comes after all it needs; else as the plan has them.

    The same plan always gives the same order: durable engines know a step by its place in it.

    Raises:
        InvalidInput: the steps wait for each other in a circle, or two have the same id.
    """
    needs = needs_in(plan)
    if len(needs) != len(plan.steps):
        raise InvalidInput("Two steps have the same id", "Give each step an id of its own")
    behind = dependents_of(needs)
    from heapq import heapify, heappop, heappush

    place = {step.id: index for index, step in enumerate(plan.steps)}
    left = {name: len(wanted) for name, wanted in needs.items()}
    ready = [place[name] for name, count in left.items() if not count]
    heapify(ready)
    ordered: list[Step] = []
    while ready:
        step = plan.steps[heappop(ready)]
        ordered.append(step)
        for name in behind[step.id]:
            left[name] -= 1
            if not left[name]:
                heappush(ready, place[name])
    if len(ordered) < len(plan.steps):
        path = " → ".join(f"`{name}`" for name in circle(needs))
        raise InvalidInput(
            f"The steps wait for each other in a circle: {path}", "Take one of these needs away"
        )
    return Wiring(tuple(ordered), needs, behind)


def order(plan: Plan) -> tuple[Step, ...]:
    """The steps of `wire` alone.

    Raises:
        InvalidInput: the steps wait for each other in a circle, or two have the same id.
    """
    return wire(plan).steps


def circle(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Steps that wait for each other, the first one again at the end; empty when none do."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(needs).prepare()
    except CycleError as exc:
        found: list[str] = exc.args[1][:0:-1]  # each waits for the next one
        first = min(map(list(needs).index, found))
        place = found.index(list(needs)[first])
        return [*found[place:], *found[: place + 1]]
    return []


def behind(needs: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """These steps and all that depend on them, near or far."""
    dependents = dependents_of(needs)
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += dependents.get(name, ())
    return found
