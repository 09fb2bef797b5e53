"""Is a plan sound? Everything that is wrong with it at once, each with the step it is about."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.goals import check_step
from satchel.goals.problems import MAX_STEPS, Problem
from satchel.goals.templates import mentioned
from satchel.goals.wiring import circle, dependents_of, needs_in, needs_of, order

if TYPE_CHECKING:
    from collections.abc import Collection

    from satchel.goals.model import Goal, Plan

__all__ = ["Problem", "check", "errors_in", "insist", "needs_in", "needs_of", "order"]

GOAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""What a goal may be called: engines make names of files, rows and workflows of it."""
_GUESSES = 20
"""Problems after which nothing is guessed any more."""
_CIRCLES = 10
"""Circles that are shown."""


def check(
    plan: Plan, *, skills: Collection[str] | None = None, tools: Collection[str] | None = None
) -> list[Problem]:
    """What is wrong with a plan; empty when nothing is.

    Args:
        plan: Any plan, however broken.
        skills: The skills there are; None when that is not known here.
        tools: The tools there are; None when that is not known here.
    """
    found: list[Problem] = []
    if not plan.goal.strip():
        found.append(Problem("no-goal"))
    if not plan.steps:
        found.append(Problem("no-steps"))
    if len(plan.steps) > MAX_STEPS:
        values = {"count": str(len(plan.steps)), "limit": str(MAX_STEPS)}
        return [*found, Problem("many-steps", values=values)]
    found += check_step.numbers(plan)
    found += _unused(plan)
    steps = {step.id: step for step in plan.steps}
    if len(steps) < len(plan.steps):
        seen: set[str] = set()
        for step in plan.steps:
            if step.id in seen:
                found.append(Problem("same-id", step.id))
            seen.add(step.id)
    around = check_step.Around(plan, steps, skills, tools)
    for step in plan.steps:
        if around.guess and len(found) > _GUESSES:
            around = around._replace(guess=False)
        found += check_step.problems(step, around)
    return found + _never(plan)


def errors_in(problems: list[Problem]) -> list[Problem]:
    """Those that keep a plan from being run."""
    return [problem for problem in problems if problem.severity == "error"]


def insist(goal: Goal) -> None:
    """Let only a goal pass that an engine can run.

    Raises:
        InvalidInput: its id or its plan has errors; the message names them all.
    """
    if not GOAL_ID.fullmatch(goal.id):
        raise InvalidInput(
            say("`{id}` cannot be the id of a goal", id=goal.id),
            say("Begin with a letter or digit; then letters, digits, `-` and `_`, at most 100"),
        )
    errors = errors_in(check(goal.plan))
    if errors:
        raise refusal(errors)


def refusal(errors: list[Problem]) -> InvalidInput:
    """Errors of a plan as one exception."""
    rest = len(errors) - 10
    lines = [error.message for error in errors[:10]]
    if rest > 0:
        lines.append(say("and {count} more", count=rest))
    if len(lines) == 1:
        return InvalidInput(lines[0], errors[0].hint)
    listed = "\n".join(f"  - {line}" for line in lines)
    return InvalidInput(
        say("The plan has {count} errors:", count=len(errors)) + f"\n{listed}", errors[0].hint
    )


def _unused(plan: Plan) -> list[Problem]:
    if not plan.inputs:
        return []
    used = {ref.name for step in plan.steps for ref in mentioned(step) if ref.kind == "inputs"}
    return [
        Problem("unused-input", values={"name": name}) for name in plan.inputs if name not in used
    ]


def _never(plan: Plan) -> list[Problem]:
    """Circles, and steps that depend on something that can never run."""
    needs = needs_in(plan)
    found: list[Problem] = []
    culprits: dict[str, str] = {
        step.id: step.id for step in plan.steps if any(need not in needs for need in needs_of(step))
    }
    left = dict(needs)
    while len(found) < _CIRCLES and (path := circle(left)):
        if len(path) > 2:  # one that needs itself has been said
            shown = " → ".join(f"`{name}`" for name in path)
            found.append(Problem("circle", path[0], values={"path": shown}))
        for name in path:
            culprits[name] = name
            left.pop(name, None)
    if culprits:
        found += _behind(plan, dependents_of(needs), culprits)
    return found


def _behind(
    plan: Plan, dependents: dict[str, list[str]], culprits: dict[str, str]
) -> list[Problem]:
    """Steps that depend on one of the culprits, each with the first of them that is found."""
    blame = dict(culprits)
    todo = deque(culprits)
    while todo:
        name = todo.popleft()
        for other in dependents[name]:
            if other not in blame:
                blame[other] = blame[name]
                todo.append(other)
    return [
        Problem("never-runs", step.id, values={"names": f"`{blame[step.id]}`"})
        for step in plan.steps
        if step.id in blame and step.id not in culprits
    ]
