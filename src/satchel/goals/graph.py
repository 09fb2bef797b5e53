"""Is a plan sound? Everything that is wrong with it at once, each with the step it is about."""

from __future__ import annotations

import math
import re
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import Message, say
from satchel.errors import InvalidInput
from satchel.goals import schema
from satchel.goals.model import Budget, Retry
from satchel.goals.problems import MAX_ATTEMPTS, MAX_PROMPT, MAX_STEPS, MAX_TIMEOUT, Problem
from satchel.goals.templates import ID, mentioned, places, texts_of
from satchel.goals.wiring import circle, dependents_of, needs_in, needs_of, order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from satchel.goals.model import Goal, Plan, Step
    from satchel.goals.templates import Reference

ACTIONS = ("llm", "skill", "tool", "human")
POLICIES = ("fail_fast", "continue", "skip_dependents")
_ID = re.compile(ID)
_RETRY, _BUDGET = Retry(), Budget()
_ALLOWED = {
    "llm": ("prompt", "output", "model"),
    "skill": ("prompt", "skill", "output", "model"),
    "tool": ("tool", "arguments", "output"),
    "human": ("prompt", "output"),
}
"""Type -> the fields that mean something for it."""
_FIELDS = ("prompt", "skill", "tool", "arguments", "output", "model")


class _Around(NamedTuple):
    """What a step is looked at against."""

    plan: Plan
    steps: Mapping[str, Step]
    skills: Collection[str] | None = None
    """None when that is not known here."""
    tools: Collection[str] | None = None
    guess: bool = True
    """Whether to say what a name may have meant: that takes long, and hundreds help nobody."""


def _step_problems(step: Step, around: _Around) -> Iterator[Problem]:
    """What is wrong with one step."""
    steps = around.steps
    if not _ID.fullmatch(step.id):
        yield Problem("bad-id", step.id, values={"value": step.id})
    yield from _fields(step, around)
    yield from _numbers(step)
    for need in step.needs:
        if need == step.id:
            yield Problem("needs-itself", step.id)
        elif need not in steps:
            yield Problem("unknown-need", step.id, values=_near(need, steps, guess=around.guess))
    for field, text in texts_of(step):
        for inner, reference in places(text):
            if reference is None:
                values = {"field": field, "text": _short(inner)}
                yield Problem("bad-reference", step.id, values=values)
            else:
                yield from _reference(step, around, field, reference)
    if step.output:
        yield from _output(step)


def _fields(step: Step, around: _Around) -> Iterator[Problem]:
    kind = step.action_type
    if kind not in ACTIONS:
        yield _choice(
            "action_type", kind, Message("step {part}", part=f"`{step.id}`"), ACTIONS, step.id
        )
        return
    allowed = _ALLOWED[kind]
    for field in _FIELDS:
        if field not in allowed and getattr(step, field):
            yield Problem("odd-field", step.id, values={"kind": kind, "key": field})
    if "prompt" in allowed and not step.prompt.strip():
        yield Problem("no-prompt", step.id)
    if len(step.prompt) > MAX_PROMPT:
        values = {"count": str(len(step.prompt)), "limit": str(MAX_PROMPT)}
        yield Problem("long-prompt", step.id, values=values)
    if kind == "skill":
        yield from _named(step, "skill", step.skill, around.skills, guess=around.guess)
    if kind == "tool":
        yield from _named(step, "tool", step.tool, around.tools, guess=around.guess)
    if kind == "human":
        for field in ("retry", "timeout"):
            if getattr(step, field) is not None:
                yield Problem("human-retries", step.id, values={"key": field})


def _named(
    step: Step, kind: str, name: str, there: Collection[str] | None, *, guess: bool
) -> Iterator[Problem]:
    if not name:
        yield Problem(f"no-{kind}", step.id)
    elif there is not None and name not in there:
        yield Problem(f"unknown-{kind}", step.id, values=_near(name, there, guess=guess))


def _reference(step: Step, around: _Around, field: str, reference: Reference) -> Iterator[Problem]:
    name = reference.name
    if reference.kind == "inputs":
        if name not in around.plan.inputs:
            otherwise = Message("Give it under {part}", part=f"`inputs`: `{name}: …`")
            near = _near(name, around.plan.inputs, guess=around.guess, otherwise=otherwise)
            yield Problem("missing-input", step.id, values={"field": field, **near})
    elif reference.kind == "steps":
        if name == step.id:
            yield Problem("mentions-itself", step.id)
        elif name not in around.steps:
            near = _near(name, around.steps, guess=around.guess)
            yield Problem("unknown-step", step.id, values={"field": field, **near})
        elif reference.path:
            yield from _path(step, around.steps[name], field, reference)


def _path(step: Step, other: Step, field: str, reference: Reference) -> Iterator[Problem]:
    """Whether the other step promises what is used of it."""
    here: Any = other.output or {"type": "string"}
    for part in reference.path:
        rules = cast("dict[str, Any]", here) if isinstance(here, dict) else {}
        kind = rules.get("type")
        fields = schema.fields_of(rules)
        if kind == "array" and part.isdecimal():
            here = rules.get("items", {})
        elif fields is not None and part in fields:
            here = fields[part]
        elif (isinstance(kind, str) and kind in schema.TYPES and kind != "object") or fields:
            known = ", ".join(f"`{one}`" for one in (fields or ())) or "its whole output"
            values = {"field": field, "path": ".".join(reference.path), "name": other.id}
            yield Problem("unknown-field", step.id, values={**values, "better": known})
            return
        else:
            return  # the schema leaves it open


def _output(step: Step) -> Iterator[Problem]:
    try:
        slip = schema.fault(step.output)
    except RecursionError:
        slip = "it is nested too deeply"
    if slip:
        yield Problem("bad-schema", step.id, values={"reason": slip})
        return
    names = schema.unchecked(step.output)
    if names:
        shown = ", ".join(f"`{name}`" for name in names[:5])
        yield Problem("unchecked", step.id, values={"names": shown})


def _numbers(step: Step) -> Iterator[Problem]:
    where = Message("step {part}", part=f"`{step.id}`")
    if step.timeout is not None:
        yield from _seconds("timeout", step.timeout, where, step.id)
    if step.retry is not None:
        yield from _retry(step.retry, where, step.id)
    if step.on_failure is not None and step.on_failure not in POLICIES:
        yield _choice("on_failure", step.on_failure, where, POLICIES, step.id)


def _plan_numbers(plan: Plan) -> Iterator[Problem]:
    """What is wrong with the plan's own settings."""
    where = "the plan"
    if plan.on_failure not in POLICIES:
        yield _choice("on_failure", plan.on_failure, where, POLICIES)
    if plan.timeout is not None:
        yield from _seconds("timeout", plan.timeout, where)
    if plan.retry != _RETRY:
        yield from _retry(plan.retry, where)
    if not 1 <= plan.parallel <= 10_000:
        yield _range("parallel", plan.parallel, where, "a whole number from 1 to 10000")
    for key, value in plan.budget._asdict().items() if plan.budget != _BUDGET else ():
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield _range(f"budget.{key}", value, where, "more than 0")


def _seconds(key: str, value: float, where: str, step: str = "") -> Iterator[Problem]:
    if not 0 < value <= MAX_TIMEOUT:
        yield _range(key, value, where, "more than 0 and at most 604800", step)


def _retry(retry: Retry, where: str, step: str = "") -> Iterator[Problem]:
    if not 1 <= retry.attempts <= MAX_ATTEMPTS:
        yield _range("retry.attempts", retry.attempts, where, "a whole number from 1 to 100", step)
    for key in ("first", "most"):
        value = getattr(retry, key)
        if not 0 <= value <= MAX_TIMEOUT:
            yield _range(f"retry.{key}", value, where, "0 to 604800", step)
    if not 1 <= retry.factor <= 100:
        yield _range("retry.factor", retry.factor, where, "1 to 100", step)
    if not 0 <= retry.jitter <= 1:
        yield _range("retry.jitter", retry.jitter, where, "0 to 1", step)


def _range(key: str, value: float, where: str, wanted: str, step: str = "") -> Problem:
    values = {"key": key, "where": where, "value": f"{value:g}", "wanted": wanted}
    return Problem("range", step, values=values)


def _choice(key: str, value: str, where: str, choices: Iterable[str], step: str = "") -> Problem:
    wanted = ", ".join(f"`{one}`" for one in choices)
    values = {"key": key, "value": _short(value), "where": where, "wanted": wanted}
    return Problem("bad-choice", step, values=values)


def _near(name: str, there: Iterable[str], *, guess: bool, otherwise: str = "") -> dict[str, str]:
    """A name that is not there, and what may have been meant."""
    names = list(there)
    near: list[str] = []
    if guess and len(name) <= 64:
        from difflib import get_close_matches

        near = get_close_matches(name, names, n=2, cutoff=0.6)
    few = [f"`{one}`" for one in names[:5]]
    better = otherwise or (Message("There are {part}", part=few) if few else "There are none")
    if near:
        meant = f"`{near[0]}`"
        if len(near) > 1:
            meant = Message("{one} or {other}", one=meant, other=f"`{near[1]}`")
        better = Message("Did you mean {part}?", part=meant)
    return {"name": _short(name), "better": better}


def _short(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


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
    found += _plan_numbers(plan)
    found += _unused(plan)
    steps = {step.id: step for step in plan.steps}
    if len(steps) < len(plan.steps):
        seen: set[str] = set()
        for step in plan.steps:
            if step.id in seen:
                found.append(Problem("same-id", step.id))
            seen.add(step.id)
    around = _Around(plan, steps, skills, tools)
    for step in plan.steps:
        if around.guess and len(found) > _GUESSES:
            around = around._replace(guess=False)
        found += _step_problems(step, around)
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
