"""Is one step of a plan sound? Its fields, its numbers, and what its texts refer to."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import Message
from satchel.goals import schema
from satchel.goals.model import Budget, Retry
from satchel.goals.problems import MAX_ATTEMPTS, MAX_PROMPT, MAX_TIMEOUT, Problem
from satchel.goals.templates import ID, places, texts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from satchel.goals.model import Plan, Step
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


class Around(NamedTuple):
    """What a step is looked at against."""

    plan: Plan
    steps: Mapping[str, Step]
    skills: Collection[str] | None = None
    """None when that is not known here."""
    tools: Collection[str] | None = None
    guess: bool = True
    """Whether to say what a name may have meant: that takes long, and hundreds help nobody."""


def problems(step: Step, around: Around) -> Iterator[Problem]:
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


def _fields(step: Step, around: Around) -> Iterator[Problem]:
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


def _reference(step: Step, around: Around, field: str, reference: Reference) -> Iterator[Problem]:
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


def numbers(plan: Plan) -> Iterator[Problem]:
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
