"""Validates plans: every problem of a plan, each with its rule, step, message and hint.

`check` is for files and editors, `require_valid` for engines. This module uses no file, clock or
environment, because it runs inside workflows too.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from satchel.errors import InvalidInput
from satchel.goals import output_schema
from satchel.goals.model import MAX_PRIORITY, Condition
from satchel.goals.plan_graph import find_cycle, needs_in
from satchel.goals.plan_rules import (
    EVENTS,
    MAX_ATTEMPTS,
    MAX_ITEMS,
    MAX_PROMPT_CHARS,
    MAX_STEPS,
    MAX_TIMEOUT_S,
    PlanProblem,
    errors_in,
    refusal,
)
from satchel.goals.substeps import max_step_count
from satchel.goals.templates import ID, parse_single, references_in, texts_of
from satchel.i18n import Message, say, similar_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from satchel.goals.model import ForEach, Goal, Notify, Plan, Retry, Step
    from satchel.goals.templates import Reference

__all__ = ["check", "require_valid"]

ACTIONS = ("llm", "skill", "tool", "human")
POLICIES = ("fail_fast", "continue", "skip_dependents")
GOAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Valid goal ids: engines use them as names of files, rows and workflows."""
_STEP_ID = re.compile(ID)
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FIELDS_BY_ACTION = {
    "llm": ("prompt", "output", "model", "for_each"),
    "skill": ("prompt", "skill", "output", "model", "for_each"),
    "tool": ("tool", "arguments", "output", "for_each"),
    "human": ("prompt", "output", "deadline", "default"),
}
"""Type of a step -> the fields that have a meaning for it."""
_ACTION_FIELDS = tuple(sorted({field for fields in _FIELDS_BY_ACTION.values() for field in fields}))
"""The fields that do not have a meaning for every type."""
_RETRY_RANGES = {
    "attempts": (1, MAX_ATTEMPTS),
    "first": (0, MAX_TIMEOUT_S),
    "factor": (1, 100),
    "most": (0, MAX_TIMEOUT_S),
    "jitter": (0, 1),
}
_MAX_NAMES_COMPARED = 200
"""Similar names are searched among so many: it is slow."""
_MAX_NAMES_LISTED = 5
_MAX_QUOTED_CHARS = 60
_MAX_CYCLES_SHOWN = 10


class _CheckContext(NamedTuple):
    """What a step is checked against."""

    plan: Plan
    steps: Mapping[str, Step]
    skills: Collection[str] | None = None
    """None when unknown."""
    tools: Collection[str] | None = None
    """None when unknown."""


def check(
    plan: Plan, *, skills: Collection[str] | None = None, tools: Collection[str] | None = None
) -> list[PlanProblem]:
    """Return all problems of a plan.

    Args:
        plan: Any plan.
        skills: Available skills; None when unknown.
        tools: Available tools; None when unknown.
    """
    problems: list[PlanProblem] = []
    if not plan.goal.strip():
        problems.append(PlanProblem("no-goal", values={"key": "goal"}))
    if not plan.steps:
        problems.append(PlanProblem("no-steps", values={"key": "steps"}))
    step_count = max_step_count(plan)
    if step_count > MAX_STEPS:
        return [*problems, _range_problem("steps", step_count, "the plan", f"1–{MAX_STEPS}")]
    problems += _plan_value_problems(plan)
    problems += _duplicate_id_problems(plan)
    context = _CheckContext(plan, {step.id: step for step in plan.steps}, skills, tools)
    for step in plan.steps:
        problems += _step_problems(step, context)
    return problems + _cycle_problems(plan)


def require_valid(goal: Goal) -> None:
    """Raise unless an engine can run this goal.

    Raises:
        InvalidInput: its id or its plan has errors; the message names them all.
    """
    if not GOAL_ID.fullmatch(goal.id):
        raise InvalidInput(
            say("`{name}` is not a valid name", name=goal.id),
            say("Use letters, digits, `-` and `_`, at most 64"),
        )
    if goal.priority not in range(1, MAX_PRIORITY + 1):
        raise InvalidInput(
            say("`{value}` is not valid", value=goal.priority),
            say("Use a priority from 1 to {most}", most=MAX_PRIORITY),
        )
    errors = errors_in(check(goal.plan))
    if errors:
        raise refusal(errors)
    try:
        json.dumps(goal, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as exc:
        excerpt = ascii(exc.object[max(0, exc.start - 20) : exc.end])
        raise InvalidInput(
            say("The plan has a character that UTF-8 cannot write: {text}", text=excerpt),
            say("Correct it"),
        ) from None


# --- the whole plan ------------------------------------------------------------------------


def _plan_value_problems(plan: Plan) -> Iterator[PlanProblem]:
    subject = "the plan"
    yield from _failure_policy_problems(plan, subject)
    if not 1 <= plan.parallel <= 10_000:
        yield _range_problem("parallel", plan.parallel, subject, "1–10000")
    for key, value in plan.budget._asdict().items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield _range_problem(f"budget.{key}", value, subject, "> 0")
    if plan.notify is not None:
        yield from _notify_problems(plan.notify)


def _notify_problems(notify: Notify) -> Iterator[PlanProblem]:
    for key in ("url", "secret"):
        if not getattr(notify, key):
            yield PlanProblem("no-notify-key", values={"key": f"notify.{key}"})
    if notify.url and not _is_safe_url(notify.url):
        # Neither value is quoted: a password may be in it.
        allowed = Message("an address with `https`, without a password")
        yield _value_problem("notify.url", "…", "the plan", allowed)
    if notify.secret and not _SECRET_NAME.fullmatch(notify.secret):
        allowed = Message("the name of a secret, never the secret")
        yield _value_problem("notify.secret", "…", "the plan", allowed)
    for event in notify.events:
        if event not in EVENTS:
            yield _choice_problem("notify.events", event, "the plan", EVENTS)


def _duplicate_id_problems(plan: Plan) -> Iterator[PlanProblem]:
    ids: set[str] = set()
    for step in plan.steps:
        if step.id in ids:
            yield PlanProblem("same-id", step.id, values={"key": step.id, "where": "the plan"})
        ids.add(step.id)


def _cycle_problems(plan: Plan) -> list[PlanProblem]:
    needs = needs_in(plan)
    problems: list[PlanProblem] = []
    while len(problems) < _MAX_CYCLES_SHOWN and (cycle := find_cycle(needs)):
        if len(cycle) > 2:  # a step that needs itself is reported elsewhere
            path = " → ".join(f"`{name}`" for name in cycle)
            problems.append(PlanProblem("circle", cycle[0], values={"path": path}))
        for name in cycle:
            needs.pop(name, None)
    return problems


# --- one step ------------------------------------------------------------------------------


def _step_problems(step: Step, context: _CheckContext) -> Iterator[PlanProblem]:
    if not _STEP_ID.fullmatch(step.id):
        yield PlanProblem("bad-id", step.id, values={"name": step.id})
    yield from _field_problems(step, context)
    if step.when is not None and step.when == Condition(step.when.value):
        comparisons = "/".join(Condition._fields[1:])
        yield PlanProblem("no-comparison", step.id, values={"key": f"when.{comparisons}"})
    yield from _failure_policy_problems(step, _step_phrase(step), step.id)
    for need in step.needs:
        if need == step.id:
            yield PlanProblem("needs-itself", step.id)
        elif need not in context.steps:
            yield _unknown_name_problem("unknown-need", step, "needs", need, context.steps)
    for field, text in texts_of(step):
        for inner_text, reference in references_in(text):
            if reference is None:
                values = {"field": field, "text": _shorten(inner_text)}
                yield PlanProblem("bad-reference", step.id, values=values)
            else:
                yield from _reference_problems(step, context, field, reference)
    if step.output:
        yield from _output_schema_problems(step)


def _field_problems(step: Step, context: _CheckContext) -> Iterator[PlanProblem]:
    action = step.action_type
    if action not in ACTIONS:
        yield _choice_problem("action_type", action, _step_phrase(step), ACTIONS, step.id)
        return
    allowed_fields = _FIELDS_BY_ACTION[action]
    for field in _ACTION_FIELDS:
        if field not in allowed_fields and getattr(step, field):
            yield PlanProblem("odd-field", step.id, values={"kind": action, "key": field})
    if action in ("llm", "human") and not step.prompt.strip():  # a skill says what to do
        yield PlanProblem("no-prompt", step.id, values={"key": "prompt"})
    if len(step.prompt) > MAX_PROMPT_CHARS:
        allowed = f"0–{MAX_PROMPT_CHARS}"
        yield _range_problem("prompt", len(step.prompt), _step_phrase(step), allowed, step.id)
    if action == "human":
        yield from _deadline_problems(step)
    if step.for_each is not None:
        yield from _for_each_problems(step, step.for_each)
    if action == "skill":
        yield from _callee_problems(step, "skill", step.skill, context.skills)
    elif action == "tool":
        yield from _callee_problems(step, "tool", step.tool, context.tools)


def _deadline_problems(step: Step) -> Iterator[PlanProblem]:
    if step.deadline is not None and not 0 < step.deadline <= MAX_TIMEOUT_S:
        yield _range_problem("deadline", step.deadline, _step_phrase(step), "0–604800", step.id)
    if step.default is not None and step.output:
        for reason in output_schema.violations(step.default, step.output):
            yield PlanProblem("bad-default", step.id, values={"reason": reason})


def _for_each_problems(step: Step, for_each: ForEach) -> Iterator[PlanProblem]:
    subject = _step_phrase(step)
    items: Any = for_each.items
    reference = parse_single(items) if isinstance(items, str) else None
    if items in ("", None):
        yield PlanProblem("no-items", step.id, values={"key": "for_each.items"})
    elif not isinstance(items, list | tuple) and reference is None:
        allowed = Message("a list, or one `{{…}}`")
        yield _value_problem("for_each.items", _shorten(items), subject, allowed, step.id)
    for key, least in (("at_once", 1), ("most", 1), ("failures", 0)):
        number = getattr(for_each, key)
        if not least <= number <= MAX_ITEMS:
            allowed = f"{least}–{MAX_ITEMS}"
            yield _range_problem(f"for_each.{key}", number, subject, allowed, step.id)


def _callee_problems(
    step: Step, field: str, name: str, available_names: Collection[str] | None
) -> Iterator[PlanProblem]:
    """Check the skill or the tool that a step names."""
    if not name:
        yield PlanProblem(f"no-{field}", step.id, values={"key": field})
    elif available_names is not None and name not in available_names:
        yield _unknown_name_problem(f"unknown-{field}", step, field, name, available_names)


def _reference_problems(
    step: Step, context: _CheckContext, field: str, reference: Reference
) -> Iterator[PlanProblem]:
    name = reference.name
    if reference.kind == "item" and (step.for_each is None or field.startswith(("for_", "when"))):
        values = {"field": field, "text": reference.text}
        yield PlanProblem("bad-reference", step.id, values=values)
    elif reference.kind == "inputs":
        if name not in context.plan.inputs:
            yield _unknown_name_problem("missing-input", step, field, name, context.plan.inputs)
    elif reference.kind == "steps":
        if name == step.id:
            yield PlanProblem("mentions-itself", step.id)
        elif name not in context.steps:
            yield _unknown_name_problem("unknown-step", step, field, name, context.steps)
        elif reference.path:
            yield from _path_problems(step, context, field, reference)


def _path_problems(
    step: Step, context: _CheckContext, field: str, reference: Reference
) -> Iterator[PlanProblem]:
    """Check that the schema of the referenced step has the path of a reference."""
    referenced_step = context.steps[reference.name]
    schema: Any = referenced_step.output or {"type": "string"}
    if referenced_step.for_each is not None:
        schema = {"type": "array", "items": schema}
    for part in reference.path:
        rules = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        json_type = rules.get("type")
        properties = output_schema.fields_of(rules)
        is_other_type = json_type in output_schema.TYPES and json_type != "object"
        if json_type == "array" and part.isdecimal():
            schema = rules.get("items", {})
        elif properties is not None and part in properties:
            schema = properties[part]
        elif is_other_type or properties:
            path = ".".join((reference.name, "output", *reference.path))
            yield _unknown_name_problem("unknown-field", step, field, path, properties or ())
            return
        else:
            return  # the schema leaves it open


def _output_schema_problems(step: Step) -> Iterator[PlanProblem]:
    try:
        reason = output_schema.fault(step.output)
    except RecursionError:
        reason = "it is nested too deeply"
    if reason:
        yield PlanProblem("bad-schema", step.id, values={"reason": reason})
        return
    keywords = output_schema.unchecked(step.output)
    if keywords:
        names = ", ".join(f"`{keyword}`" for keyword in keywords[:_MAX_NAMES_LISTED])
        yield PlanProblem("unchecked", step.id, values={"names": names})


# --- policies and values -------------------------------------------------------------------


def _failure_policy_problems(
    holder: Step | Plan, subject: str, step_id: str = ""
) -> Iterator[PlanProblem]:
    """Check `on_failure`, `timeout` and `retry`, which plans and steps have."""
    if holder.on_failure is not None and holder.on_failure not in POLICIES:
        yield _choice_problem("on_failure", holder.on_failure, subject, POLICIES, step_id)
    if holder.timeout is not None and not 0 < holder.timeout <= MAX_TIMEOUT_S:
        yield _range_problem("timeout", holder.timeout, subject, "0–604800", step_id)
    if holder.retry is not None:
        yield from _retry_problems(holder.retry, subject, step_id)


def _retry_problems(retry: Retry, subject: str, step_id: str) -> Iterator[PlanProblem]:
    for key, (least, most) in _RETRY_RANGES.items():
        value = getattr(retry, key)
        if not least <= value <= most:
            yield _range_problem(f"retry.{key}", value, subject, f"{least}–{most:g}", step_id)


def _range_problem(
    key: str, value: float, subject: str, allowed: str, step_id: str = ""
) -> PlanProblem:
    values = {"key": key, "where": subject, "value": f"{value:g}", "wanted": allowed}
    return PlanProblem("range", step_id, values=values)


def _choice_problem(
    key: str, value: str, subject: str, choices: Iterable[str], step_id: str = ""
) -> PlanProblem:
    allowed = ", ".join(f"`{choice}`" for choice in choices)
    return _value_problem(key, _shorten(value), subject, allowed, step_id)


def _value_problem(
    key: str, value: str, subject: str, allowed: str, step_id: str = ""
) -> PlanProblem:
    values = {"key": key, "value": value, "where": subject, "wanted": allowed}
    return PlanProblem("bad-choice", step_id, values=values)


def _unknown_name_problem(
    code: str, step: Step, field: str, name: str, known_names: Iterable[str]
) -> PlanProblem:
    """Return the problem of an unknown name, with the most similar known one as its hint."""
    names = list(known_names)
    similar: list[str] = []
    if len(name) <= 64 and len(names) <= _MAX_NAMES_COMPARED:
        similar = similar_names(name, names)
    hint = Message("Write it")
    if similar:
        hint = Message("Did you mean {names}?", names=f"`{similar[0]}`")
    elif names:
        listed_names = [f"`{known_name}`" for known_name in names[:_MAX_NAMES_LISTED]]
        hint = Message("There are {part}", part=listed_names)
    values = {"field": field, "name": _shorten(name), "better": hint}
    return PlanProblem(code, step.id, values=values)


def _is_safe_url(url: str) -> bool:
    """Whether a URL is encrypted, or of this machine, and has no password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # raises when it is no number
    except ValueError:
        return False
    is_local = host in {"localhost", "127.0.0.1", "::1"}
    is_encrypted = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    return bool(host) and is_encrypted and "@" not in parts.netloc


def _step_phrase(step: Step) -> Message:
    """Return a step as the subject of a message."""
    return Message("step {part}", part=f"`{step.id}`")


def _shorten(text: str) -> str:
    """Return a text in one line, short enough for a message."""
    line = " ".join(str(text).split())
    return line if len(line) <= _MAX_QUOTED_CHARS else f"{line[: _MAX_QUOTED_CHARS - 1]}…"
