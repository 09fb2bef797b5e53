"""Validates plans: dependency order, cycles, and every problem with its rule, message and hint.

This module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

import math
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel.errors import InvalidInput
from satchel.goals import output_schema
from satchel.goals.model import GoalBudget, Retry
from satchel.goals.templates import ID, referenced_steps, references_in, references_of, texts_of
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
    from heapq import heapify, heappop, heappush

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
            f"The steps wait for each other in a circle: {path}", "Take one of these needs away"
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


RULES: dict[str, PlanRule] = {
    # The file.
    "not-yaml": PlanRule("error", "The plan cannot be read: {reason}", "Write it as YAML or JSON"),
    "not-a-plan": PlanRule(
        "error", "The plan is {kind}, not a mapping", "Write `goal:` and `steps:`"
    ),
    "unknown-key": PlanRule("error", "The key `{key}` of {where} means nothing", "Write {better}"),
    "wrong-type": PlanRule("error", "`{key}` of {where} is {kind}, not {wanted}", "Write {wanted}"),
    "key-twice": PlanRule("error", "`{key}` stands twice in {where}", "Keep one of them"),
    # The whole plan.
    "no-goal": PlanRule("error", "The plan does not say what it is for", "Write it under `goal`"),
    "no-steps": PlanRule("error", "The plan has no steps", "Write at least one under `steps`"),
    "many-steps": PlanRule(
        "error", "The plan has {count} steps, and {limit} is the most", "Make several goals of it"
    ),
    "circle": PlanRule(
        "error", "The steps wait for each other in a circle: {path}", "Take one of these needs away"
    ),
    "range": PlanRule("error", "`{key}` of {where} is {value}", "Give {wanted}"),
    "bad-choice": PlanRule("error", "`{key}` of {where} is `{value}`", "Give one of {wanted}"),
    # One step.
    "bad-id": PlanRule(
        "error",
        "`{value}` cannot be the id of a step",
        "Begin with a letter or digit; then letters, digits, `-` and `_`, at most 64",
    ),
    "same-id": PlanRule("error", "Two steps have the id `{step}`", "Give each an id of its own"),
    "unknown-need": PlanRule(
        "error", "Step `{step}` needs `{name}`, and there is no such step", "{better}"
    ),
    "needs-itself": PlanRule(
        "error", "Step `{step}` needs itself", "Take `{step}` out of its needs"
    ),
    "never-runs": PlanRule(
        "error",
        "Step `{step}` can never run, since it depends on {names}",
        "Put these steps right first",
    ),
    "no-prompt": PlanRule("error", "Step `{step}` has no prompt", "Write what is to be done"),
    "long-prompt": PlanRule(
        "error",
        "The prompt of step `{step}` has {count} characters, and {limit} is the most",
        "Put long text into `inputs`, or into a file that a tool reads",
    ),
    "no-skill": PlanRule(
        "error", "Step `{step}` does not say which skill it uses", "Write `skill:`"
    ),
    "no-tool": PlanRule("error", "Step `{step}` does not say which tool it calls", "Write `tool:`"),
    "unknown-skill": PlanRule(
        "error", "Step `{step}` uses the skill `{name}`, which is not here", "{better}"
    ),
    "unknown-tool": PlanRule(
        "error", "Step `{step}` calls the tool `{name}`, which is not here", "{better}"
    ),
    "odd-field": PlanRule(
        "error",
        "Step `{step}` is of the type `{kind}`, which has no `{key}`",
        "Take `{key}` away, or change `action_type`",
    ),
    "bad-reference": PlanRule(
        "error",
        "`{field}` of step `{step}` has `{{{{{text}}}}}`, which means nothing",
        "Write `{{{{steps.ID.output}}}}`, `{{{{inputs.NAME}}}}` or `{{{{goal}}}}`; "
        "`\\{{{{` for braces that mean nothing",
    ),
    "unknown-step": PlanRule(
        "error",
        "`{field}` of step `{step}` mentions `{name}`, and there is no such step",
        "{better}",
    ),
    "mentions-itself": PlanRule(
        "error", "Step `{step}` uses its own output", "Use the output of another step"
    ),
    "missing-input": PlanRule(
        "error",
        "`{field}` of step `{step}` uses the input `{name}`, which the plan does not give",
        "{better}",
    ),
    "unknown-field": PlanRule(
        "error",
        "`{field}` of step `{step}` uses `{path}` of step `{name}`, which does not promise it",
        "Add it to `output` of step `{name}`, or use {better}",
    ),
    "bad-schema": PlanRule(
        "error", "`output` of step `{step}` is no schema: {reason}", "Write a JSON schema"
    ),
    "unchecked": PlanRule(
        "warning",
        "`output` of step `{step}` says {names}, which is not checked",
        "Rely on it only if the model does",
    ),
    "unused-input": PlanRule(
        "warning", "Nothing uses the input `{name}`", "Take it away, or use it"
    ),
    "human-retries": PlanRule(
        "warning",
        "Step `{step}` waits for a person, so `{key}` does nothing",
        "Take `{key}` away",
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

    def to_dict(self) -> dict[str, Any]:
        """The JSON form for `--json`."""
        return {
            "code": self.code,
            "severity": self.severity,
            "step": self.step or None,
            "line": self.line or None,
            "message": self.message,
            "hint": self.hint,
        }


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


class _Around(NamedTuple):
    """The context in which a step is checked."""

    plan: Plan
    steps: Mapping[str, Step]
    skills: Collection[str] | None = None
    """None when unknown."""
    tools: Collection[str] | None = None
    guess: bool = True
    """Whether to suggest similar names: slow, and useless for hundreds of problems."""


def _step_problems(step: Step, around: _Around) -> Iterator[PlanProblem]:
    steps = around.steps
    if not _ID.fullmatch(step.id):
        yield PlanProblem("bad-id", step.id, values={"value": step.id})
    yield from _fields(step, around)
    yield from _numbers(step)
    for need in step.needs:
        if need == step.id:
            yield PlanProblem("needs-itself", step.id)
        elif need not in steps:
            yield PlanProblem(
                "unknown-need", step.id, values=_near(need, steps, guess=around.guess)
            )
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
        yield PlanProblem("no-prompt", step.id)
    if len(step.prompt) > MAX_PROMPT_CHARS:
        values = {"count": str(len(step.prompt)), "limit": str(MAX_PROMPT_CHARS)}
        yield PlanProblem("long-prompt", step.id, values=values)
    if kind == "skill":
        yield from _named(step, "skill", step.skill, around.skills, guess=around.guess)
    if kind == "tool":
        yield from _named(step, "tool", step.tool, around.tools, guess=around.guess)
    if kind == "human":
        for field in ("retry", "timeout"):
            if getattr(step, field) is not None:
                yield PlanProblem("human-retries", step.id, values={"key": field})


def _named(
    step: Step, kind: str, name: str, there: Collection[str] | None, *, guess: bool
) -> Iterator[PlanProblem]:
    if not name:
        yield PlanProblem(f"no-{kind}", step.id)
    elif there is not None and name not in there:
        yield PlanProblem(f"unknown-{kind}", step.id, values=_near(name, there, guess=guess))


def _reference(
    step: Step, around: _Around, field: str, reference: Reference
) -> Iterator[PlanProblem]:
    name = reference.name
    if reference.kind == "inputs":
        if name not in around.plan.inputs:
            otherwise = Message("Give it under {part}", part=f"`inputs`: `{name}: …`")
            near = _near(name, around.plan.inputs, guess=around.guess, otherwise=otherwise)
            yield PlanProblem("missing-input", step.id, values={"field": field, **near})
    elif reference.kind == "steps":
        if name == step.id:
            yield PlanProblem("mentions-itself", step.id)
        elif name not in around.steps:
            near = _near(name, around.steps, guess=around.guess)
            yield PlanProblem("unknown-step", step.id, values={"field": field, **near})
        elif reference.path:
            yield from _path(step, around.steps[name], field, reference)


def _path(step: Step, other: Step, field: str, reference: Reference) -> Iterator[PlanProblem]:
    """Check that the referenced step's schema has this path."""
    here: Any = other.output or {"type": "string"}
    for part in reference.path:
        rules = cast("dict[str, Any]", here) if isinstance(here, dict) else {}
        kind = rules.get("type")
        fields = output_schema.fields_of(rules)
        if kind == "array" and part.isdecimal():
            here = rules.get("items", {})
        elif fields is not None and part in fields:
            here = fields[part]
        elif (isinstance(kind, str) and kind in output_schema.TYPES and kind != "object") or fields:
            known = ", ".join(f"`{one}`" for one in (fields or ())) or "its whole output"
            values = {"field": field, "path": ".".join(reference.path), "name": other.id}
            yield PlanProblem("unknown-field", step.id, values={**values, "better": known})
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


def _numbers(step: Step) -> Iterator[PlanProblem]:
    where = Message("step {part}", part=f"`{step.id}`")
    if step.timeout is not None:
        yield from _seconds("timeout", step.timeout, where, step.id)
    if step.retry is not None:
        yield from _retry(step.retry, where, step.id)
    if step.on_failure is not None and step.on_failure not in POLICIES:
        yield _choice("on_failure", step.on_failure, where, POLICIES, step.id)


def _plan_numbers(plan: Plan) -> Iterator[PlanProblem]:
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


def _seconds(key: str, value: float, where: str, step: str = "") -> Iterator[PlanProblem]:
    if not 0 < value <= MAX_TIMEOUT_S:
        yield _range(key, value, where, "more than 0 and at most 604800", step)


def _retry(retry: Retry, where: str, step: str = "") -> Iterator[PlanProblem]:
    if not 1 <= retry.attempts <= MAX_ATTEMPTS:
        yield _range("retry.attempts", retry.attempts, where, "a whole number from 1 to 100", step)
    for key in ("first", "most"):
        value = getattr(retry, key)
        if not 0 <= value <= MAX_TIMEOUT_S:
            yield _range(f"retry.{key}", value, where, "0 to 604800", step)
    if not 1 <= retry.factor <= 100:
        yield _range("retry.factor", retry.factor, where, "1 to 100", step)
    if not 0 <= retry.jitter <= 1:
        yield _range("retry.jitter", retry.jitter, where, "0 to 1", step)


def _range(key: str, value: float, where: str, wanted: str, step: str = "") -> PlanProblem:
    values = {"key": key, "where": where, "value": f"{value:g}", "wanted": wanted}
    return PlanProblem("range", step, values=values)


def _choice(
    key: str, value: str, where: str, choices: Iterable[str], step: str = ""
) -> PlanProblem:
    wanted = ", ".join(f"`{one}`" for one in choices)
    values = {"key": key, "value": _short(value), "where": where, "wanted": wanted}
    return PlanProblem("bad-choice", step, values=values)


def _near(name: str, there: Iterable[str], *, guess: bool, otherwise: str = "") -> dict[str, str]:
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


__all__ = ["PlanProblem", "check", "errors_in", "needs_in", "needs_of", "order", "require_valid"]

GOAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Valid goal ids: engines use them as names of files, rows and workflows."""
_MAX_SUGGESTIONS = 20
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
        found.append(PlanProblem("no-goal"))
    if not plan.steps:
        found.append(PlanProblem("no-steps"))
    if len(plan.steps) > MAX_STEPS:
        values = {"count": str(len(plan.steps)), "limit": str(MAX_STEPS)}
        return [*found, PlanProblem("many-steps", values=values)]
    found += _plan_numbers(plan)
    found += _unused(plan)
    steps = {step.id: step for step in plan.steps}
    if len(steps) < len(plan.steps):
        seen: set[str] = set()
        for step in plan.steps:
            if step.id in seen:
                found.append(PlanProblem("same-id", step.id))
            seen.add(step.id)
    around = _Around(plan, steps, skills, tools)
    for step in plan.steps:
        if around.guess and len(found) > _MAX_SUGGESTIONS:
            around = around._replace(guess=False)
        found += _step_problems(step, around)
    return found + _unreachable(plan)


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
            say("`{id}` cannot be the id of a goal", id=goal.id),
            say("Begin with a letter or digit; then letters, digits, `-` and `_`, at most 100"),
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


def _unused(plan: Plan) -> list[PlanProblem]:
    if not plan.inputs:
        return []
    used = {ref.name for step in plan.steps for ref in references_of(step) if ref.kind == "inputs"}
    return [
        PlanProblem("unused-input", values={"name": name})
        for name in plan.inputs
        if name not in used
    ]


def _unreachable(plan: Plan) -> list[PlanProblem]:
    """Cycles, and steps that depend on something that can never run."""
    needs = needs_in(plan)
    found: list[PlanProblem] = []
    culprits: dict[str, str] = {
        step.id: step.id for step in plan.steps if any(need not in needs for need in needs_of(step))
    }
    left = dict(needs)
    while len(found) < _MAX_CYCLES_SHOWN and (path := find_cycle(left)):
        if len(path) > 2:  # a step that needs itself is reported elsewhere
            shown = " → ".join(f"`{name}`" for name in path)
            found.append(PlanProblem("circle", path[0], values={"path": shown}))
        for name in path:
            culprits[name] = name
            left.pop(name, None)
    if culprits:
        found += _broken_dependents(plan, dependents_of(needs), culprits)
    return found


def _broken_dependents(
    plan: Plan, dependents: dict[str, list[str]], culprits: dict[str, str]
) -> list[PlanProblem]:
    """Steps that depend on one of the broken steps, each with the first of them that is found."""
    blame = dict(culprits)
    todo = deque(culprits)
    while todo:
        name = todo.popleft()
        for other in dependents[name]:
            if other not in blame:
                blame[other] = blame[name]
                todo.append(other)
    return [
        PlanProblem("never-runs", step.id, values={"names": f"`{blame[step.id]}`"})
        for step in plan.steps
        if step.id in blame and step.id not in culprits
    ]
