"""Validates plans: dependency order, cycles, and every problem with its rule, message and hint.

This module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

import math
import re
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel.errors import InvalidInput
from satchel.goals import output_schema
from satchel.goals.model import GoalBudget, Retry
from satchel.goals.templates import ID, referenced_steps, references_in, texts_of
from satchel.i18n import Message, render, say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from satchel.goals.model import Goal, Plan, Step, StepResult
    from satchel.goals.templates import Reference


class Wiring(NamedTuple):
    """A plan's steps in order, with their dependencies."""

    steps: tuple[Step, ...]
    needs: dict[str, tuple[str, ...]]
    """Step id -> the steps it depends on."""
    dependents: dict[str, list[str]]
    """Step id -> the steps that depend on it."""


def needs_of(step: Step) -> tuple[str, ...]:
    """Dependencies of a step: those it names, then those its texts reference."""
    if "{{" not in step.prompt and not step.arguments:
        return step.needs
    return tuple(dict.fromkeys((*step.needs, *referenced_steps(step))))


def needs_in(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Dependencies of all steps of a plan; unknown ids are left out."""
    needs = {step.id: needs_of(step) for step in plan.steps}
    for name, found in needs.items():
        for need in found:
            if need not in needs:
                needs[name] = tuple(one for one in found if one in needs)
                break
    return needs


def running_steps(plan: Plan, results: Mapping[str, StepResult]) -> list[str]:
    """Steps that are running, as far as the results show: all their dependencies have ended."""
    return [
        name
        for name, needs in needs_in(plan).items()
        if name not in results
        and all(need in results and results[need].state in {"done", "failed"} for need in needs)
    ]


def dependents_of(needs: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The reverse of `needs_in`: step id -> the steps that depend on it."""
    found: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            found[need].append(name)
    return found


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

    place = {step.id: index for index, step in enumerate(plan.steps)}
    left = {name: len(wanted) for name, wanted in needs.items()}
    ready = [place[name] for name, count in left.items() if not count]
    heapify(ready)
    ordered: list[Step] = []
    while ready:
        step = plan.steps[heappop(ready)]
        ordered.append(step)
        for name in dependents[step.id]:
            left[name] -= 1
            if not left[name]:
                heappush(ready, place[name])
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
    """The steps of a cycle, the first one repeated at the end; empty when there is none."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(needs).prepare()
    except CycleError as exc:
        found: list[str] = exc.args[1][:0:-1]  # each depends on the next one
        first = min(map(list(needs).index, found))
        place = found.index(list(needs)[first])
        return [*found[place:], *found[: place + 1]]
    return []


def with_dependents(needs: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """These steps and all their direct and indirect dependents."""
    dependents = dependents_of(needs)
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += dependents.get(name, ())
    return found


# --- rules ---------------------------------------------------------------------------------

MAX_STEPS = 2_000
"""What every engine can hold."""
MAX_PROMPT_CHARS = 200_000
"""Before templates are filled."""
MAX_ATTEMPTS = 100
MAX_TIMEOUT_S = 7 * 24 * 3600.0


_OURS = ("kind", "wanted", "where", "better")
"""Values that are phrases of this package, never text of a plan."""


def format_phrase(text: str) -> Message:
    """Format a phrase; one without values may be plain text."""
    return text if isinstance(text, Message) else Message(text)


class PlanRule(NamedTuple):
    """One kind of problem."""

    severity: Literal["error", "warning"]
    message: str
    hint: str


_NO_KEY = PlanRule("error", "Step `{step}` has no `{key}`", "Write it")
_UNKNOWN = PlanRule(
    "error", "`{field}` of step `{step}` uses `{name}`, which does not exist", "{better}"
)
_ITSELF = PlanRule("error", "Step `{step}` depends on itself", "Remove it")
_VALUE = PlanRule("error", "`{key}` of {where} is `{value}`", "Write {wanted}")
_TWICE = PlanRule("error", "`{key}` is there twice", "Remove one of them")
_NO_PART = PlanRule("error", "There is no `{key}`", "Write it")

RULES: dict[str, PlanRule] = {
    # The file.
    "not-yaml": PlanRule("error", "It cannot be read: {reason}", "Correct it"),
    "not-a-plan": PlanRule(
        "error", "It is {kind}, not a mapping", "Write one `key: value` per line"
    ),
    "unknown-key": PlanRule("error", "The key `{key}` of {where} means nothing", "Write {better}"),
    "wrong-type": PlanRule("error", "`{key}` of {where} is {kind}, not {wanted}", "Write {wanted}"),
    "key-twice": _TWICE,
    # The whole plan.
    "no-goal": _NO_PART,
    "no-steps": _NO_PART,
    "circle": PlanRule(
        "error", "The steps wait for each other in a circle: {path}", "Remove one of them"
    ),
    "range": _VALUE,
    "bad-choice": _VALUE,
    # One step.
    "bad-id": PlanRule(
        "error", "`{name}` is not a valid name", "Use letters, digits, `-` and `_`, at most 64"
    ),
    "same-id": _TWICE,
    "unknown-need": _UNKNOWN,
    "needs-itself": _ITSELF,
    "no-prompt": _NO_KEY,
    "no-skill": _NO_KEY,
    "no-tool": _NO_KEY,
    "unknown-skill": _UNKNOWN,
    "unknown-tool": _UNKNOWN,
    "odd-field": PlanRule(
        "error", "Step `{step}` is of the type `{kind}`, which has no `{key}`", "Remove it"
    ),
    "bad-reference": PlanRule(
        "error",
        "`{field}` of step `{step}` has `{{{{{text}}}}}`, which means nothing",
        "Write `{{{{steps.ID.output}}}}`, `{{{{inputs.NAME}}}}` or `{{{{goal}}}}`; "
        "`\\{{{{` for braces that mean nothing",
    ),
    "unknown-step": _UNKNOWN,
    "mentions-itself": _ITSELF,
    "missing-input": _UNKNOWN,
    "unknown-field": _UNKNOWN,
    "bad-schema": PlanRule(
        "error", "`output` of step `{step}` is no schema: {reason}", "Correct it"
    ),
    "unchecked": PlanRule(
        "warning",
        "`output` of step `{step}` says {names}, which is not checked",
        "Rely on it only if the model does",
    ),
}


class PlanProblem(NamedTuple):
    """One problem of a plan."""

    code: str
    step: str = ""
    """The step's id; empty for the whole plan."""
    line: int = 0
    """1-based line in the file; 0 when unknown."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed

    @property
    def severity(self) -> Literal["error", "warning"]:
        """`error` prevents a run."""
        return RULES[self.code].severity

    @property
    def message(self) -> str:
        """The message in the reader's language."""
        return render(self.for_model()[0])

    @property
    def hint(self) -> str:
        """The hint in the reader's language."""
        return render(self.for_model()[1])

    def for_model(self) -> tuple[Message, Message]:
        """Message and hint in English: text for models does not follow the locale."""
        rule = RULES[self.code]
        ours = (*_OURS, "reason") if self.code == "bad-schema" else _OURS
        values = {"step": self.step, **self.values}
        values |= {key: format_phrase(values[key]) for key in ours if key in values}
        return Message(rule.message, **values), Message(rule.hint, **values)


# --- checks --------------------------------------------------------------------------------

ACTIONS = ("llm", "skill", "tool", "human")
POLICIES = ("fail_fast", "continue", "skip_dependents")
_ID = re.compile(ID)
_RETRY, _BUDGET = Retry(), GoalBudget()
_ALLOWED = {
    "llm": ("prompt", "output", "model"),
    "skill": ("prompt", "skill", "output", "model"),
    "tool": ("tool", "arguments", "output"),
    "human": ("prompt", "output"),
}
"""Type of a step -> its meaningful fields."""
_FIELDS = ("prompt", "skill", "tool", "arguments", "output", "model")


_MAX_SUGGESTIONS = 200
"""Similar names are searched among so many: it is slow."""


class _Around(NamedTuple):
    """The context in which a step is checked."""

    plan: Plan
    steps: Mapping[str, Step]
    skills: Collection[str] | None = None
    """None when unknown."""
    tools: Collection[str] | None = None


def _step_problems(step: Step, around: _Around) -> Iterator[PlanProblem]:
    steps = around.steps
    if not _ID.fullmatch(step.id):
        yield PlanProblem("bad-id", step.id, values={"name": step.id})
    yield from _fields(step, around)
    yield from _failure_rules(step, Message("step {part}", part=f"`{step.id}`"), step.id)
    for need in step.needs:
        if need == step.id:
            yield PlanProblem("needs-itself", step.id)
        elif need not in steps:
            yield _unknown("unknown-need", step, "needs", need, steps)
    for field, text in texts_of(step):
        for inner, reference in references_in(text):
            if reference is None:
                values = {"field": field, "text": _short(inner)}
                yield PlanProblem("bad-reference", step.id, values=values)
            else:
                yield from _reference(step, around, field, reference)
    if step.output:
        yield from _output(step)


def _fields(step: Step, around: _Around) -> Iterator[PlanProblem]:
    kind = step.action_type
    if kind not in ACTIONS:
        yield _choice(
            "action_type", kind, Message("step {part}", part=f"`{step.id}`"), ACTIONS, step.id
        )
        return
    allowed = _ALLOWED[kind]
    for field in _FIELDS:
        if field not in allowed and getattr(step, field):
            yield PlanProblem("odd-field", step.id, values={"kind": kind, "key": field})
    if "prompt" in allowed and not step.prompt.strip():
        yield PlanProblem("no-prompt", step.id, values={"key": "prompt"})
    if len(step.prompt) > MAX_PROMPT_CHARS:
        where = Message("step {part}", part=f"`{step.id}`")
        yield _range("prompt", len(step.prompt), where, f"0–{MAX_PROMPT_CHARS}", step.id)
    if kind in {"skill", "tool"}:
        name = step.skill if kind == "skill" else step.tool
        there = around.skills if kind == "skill" else around.tools
        if not name:
            yield PlanProblem(f"no-{kind}", step.id, values={"key": kind})
        elif there is not None and name not in there:
            yield _unknown(f"unknown-{kind}", step, kind, name, there)


def _reference(
    step: Step, around: _Around, field: str, reference: Reference
) -> Iterator[PlanProblem]:
    name = reference.name
    if reference.kind == "inputs":
        if name not in around.plan.inputs:
            yield _unknown("missing-input", step, field, name, around.plan.inputs)
    elif reference.kind == "steps":
        if name == step.id:
            yield PlanProblem("mentions-itself", step.id)
        elif name not in around.steps:
            yield _unknown("unknown-step", step, field, name, around.steps)
        elif reference.path:
            yield from _path(step, around, field, reference)


def _path(step: Step, around: _Around, field: str, reference: Reference) -> Iterator[PlanProblem]:
    """Check that the referenced step's schema has this path."""
    here: Any = around.steps[reference.name].output or {"type": "string"}
    for part in reference.path:
        rules = cast("dict[str, Any]", here) if isinstance(here, dict) else {}
        kind = rules.get("type")
        fields = output_schema.fields_of(rules)
        if kind == "array" and part.isdecimal():
            here = rules.get("items", {})
        elif fields is not None and part in fields:
            here = fields[part]
        elif (isinstance(kind, str) and kind in output_schema.TYPES and kind != "object") or fields:
            name = ".".join((reference.name, "output", *reference.path))
            yield _unknown("unknown-field", step, field, name, fields or ())
            return
        else:
            return  # the schema leaves it open


def _output(step: Step) -> Iterator[PlanProblem]:
    try:
        slip = output_schema.fault(step.output)
    except RecursionError:
        slip = "it is nested too deeply"
    if slip:
        yield PlanProblem("bad-schema", step.id, values={"reason": slip})
        return
    names = output_schema.unchecked(step.output)
    if names:
        shown = ", ".join(f"`{name}`" for name in names[:5])
        yield PlanProblem("unchecked", step.id, values={"names": shown})


def _failure_rules(one: Step | Plan, where: str, step: str = "") -> Iterator[PlanProblem]:
    if one.on_failure is not None and one.on_failure not in POLICIES:
        yield _choice("on_failure", one.on_failure, where, POLICIES, step)
    if one.timeout is not None and not 0 < one.timeout <= MAX_TIMEOUT_S:
        yield _range("timeout", one.timeout, where, "0–604800", step)
    if one.retry is not None and one.retry != _RETRY:
        yield from _retry(one.retry, where, step)


def _plan_numbers(plan: Plan) -> Iterator[PlanProblem]:
    where = "the plan"
    yield from _failure_rules(plan, where)
    if not 1 <= plan.parallel <= 10_000:
        yield _range("parallel", plan.parallel, where, "1–10000")
    for key, value in plan.budget._asdict().items() if plan.budget != _BUDGET else ():
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield _range(f"budget.{key}", value, where, "> 0")


def _retry(retry: Retry, where: str, step: str = "") -> Iterator[PlanProblem]:
    if not 1 <= retry.attempts <= MAX_ATTEMPTS:
        yield _range("retry.attempts", retry.attempts, where, "1–100", step)
    for key in ("first", "most"):
        value = getattr(retry, key)
        if not 0 <= value <= MAX_TIMEOUT_S:
            yield _range(f"retry.{key}", value, where, "0–604800", step)
    if not 1 <= retry.factor <= 100:
        yield _range("retry.factor", retry.factor, where, "1–100", step)
    if not 0 <= retry.jitter <= 1:
        yield _range("retry.jitter", retry.jitter, where, "0–1", step)


def _range(key: str, value: float, where: str, wanted: str, step: str = "") -> PlanProblem:
    values = {"key": key, "where": where, "value": f"{value:g}", "wanted": wanted}
    return PlanProblem("range", step, values=values)


def _choice(
    key: str, value: str, where: str, choices: Iterable[str], step: str = ""
) -> PlanProblem:
    wanted = ", ".join(f"`{one}`" for one in choices)
    values = {"key": key, "value": _short(value), "where": where, "wanted": wanted}
    return PlanProblem("bad-choice", step, values=values)


def _unknown(code: str, step: Step, field: str, name: str, there: Iterable[str]) -> PlanProblem:
    names = list(there)
    near: list[str] = []
    if len(name) <= 64 and len(names) <= _MAX_SUGGESTIONS:
        from difflib import get_close_matches

        near = get_close_matches(name, names, n=1, cutoff=0.6)
    better = Message("Write it")
    if near:
        better = Message("Did you mean {names}?", names=f"`{near[0]}`")
    elif names:
        better = Message("There are {part}", part=[f"`{one}`" for one in names[:5]])
    return PlanProblem(
        code, step.id, values={"field": field, "name": _short(name), "better": better}
    )


def _short(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


__all__ = ["PlanProblem", "check", "errors_in", "needs_in", "needs_of", "order", "require_valid"]

GOAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Valid goal ids: engines use them as names of files, rows and workflows."""
_MAX_CYCLES_SHOWN = 10


def check(
    plan: Plan, *, skills: Collection[str] | None = None, tools: Collection[str] | None = None
) -> list[PlanProblem]:
    """All problems of a plan.

    Args:
        plan: Any plan.
        skills: Available skills; None when unknown.
        tools: Available tools; None when unknown.
    """
    found: list[PlanProblem] = []
    if not plan.goal.strip():
        found.append(PlanProblem("no-goal", values={"key": "goal"}))
    if not plan.steps:
        found.append(PlanProblem("no-steps", values={"key": "steps"}))
    if len(plan.steps) > MAX_STEPS:
        return [*found, _range("steps", len(plan.steps), "the plan", f"1–{MAX_STEPS}")]
    found += _plan_numbers(plan)
    steps = {step.id: step for step in plan.steps}
    if len(steps) < len(plan.steps):
        seen: set[str] = set()
        for step in plan.steps:
            if step.id in seen:
                values = {"key": step.id, "where": "the plan"}
                found.append(PlanProblem("same-id", step.id, values=values))
            seen.add(step.id)
    around = _Around(plan, steps, skills, tools)
    for step in plan.steps:
        found += _step_problems(step, around)
    return found + _circles(plan)


def errors_in(problems: list[PlanProblem]) -> list[PlanProblem]:
    """The problems that prevent a run."""
    return [problem for problem in problems if problem.severity == "error"]


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
    errors = errors_in(check(goal.plan))
    if errors:
        raise refusal(errors)


def refusal(errors: list[PlanProblem]) -> InvalidInput:
    """The errors of a plan as one exception."""
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


def _circles(plan: Plan) -> list[PlanProblem]:
    left = needs_in(plan)
    found: list[PlanProblem] = []
    while len(found) < _MAX_CYCLES_SHOWN and (path := find_cycle(left)):
        if len(path) > 2:  # a step that needs itself is reported elsewhere
            shown = " → ".join(f"`{name}`" for name in path)
            found.append(PlanProblem("circle", path[0], values={"path": shown}))
        for name in path:
            left.pop(name, None)
    return found
