"""Makes a plan from a goal in words: asks a model, and asks again with the problems found.

The detector chooses skills for the goal, and the prompt names them in place of `{{skills}}`. What
comes back is checked like a plan that a person wrote, and against what this agent may use: a plan
never has a skill or a tool that its steps would be refused. Every choice and every try is in the
trace. Who asks the model is a `Planner`; `satchel.agent.planner` has one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from satchel._language import say
from satchel.errors import InvalidInput, ModelFailed
from satchel.goals.model import Plan, Step, Usage
from satchel.goals.planning_prompt import TEMPLATE, fill
from satchel.tools.selecting import GOAL_IN_TRACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.detect.base import Answer
    from satchel.facade import Satchel
    from satchel.goals.problems import Problem
    from satchel.tools.session import Reach, Session
    from satchel.trace import Event

REPAIRS = 3
"""Times that a model may put a plan right."""
SKILLS = 8
"""Skills that are named to it at most: a goal is wider than a request."""
_SHOWN = 20
"""Problems that a model is told of at once."""
_PLANNED = (
    "id", "action_type", "title", "prompt", "skill", "tool", "arguments", "needs", "output",
    "on_failure",
)  # fmt: skip
"""What a model decides about a step. Models, tries and times are for people: they cost money."""
_STEP = frozenset(Step._fields)
_PLAN = frozenset(Plan._fields)
_AGAIN = (
    "The plan was not accepted:\n{problems}\n\nSend the whole plan again, with all of this put"
    " right."
)


class PlanRequest(NamedTuple):
    """What a planner is asked."""

    system: str
    """The template, filled."""
    message: str
    """The goal, as the user said it."""
    schema: Mapping[str, Any]
    """What a plan looks like, as JSON schema."""
    before: tuple[tuple[Any, str], ...] = ()
    """Plans that were not accepted, each with what is wrong with it; the oldest first."""


class Proposal(NamedTuple):
    """What a planner answers."""

    plan: Any
    """JSON; whatever the model made of it."""
    usage: Usage = Usage()


class Planner(Protocol):
    """Asks a model for a plan."""

    async def plan(self, request: PlanRequest) -> Proposal:
        """Ask once.

        Raises:
            ModelFailed: the model cannot be reached, or gives no plan at all.
        """
        ...


class Attempt(NamedTuple):
    """One try of the model."""

    proposal: Any
    """What it answered."""
    problems: tuple[str, ...]
    """What was wrong with it; empty when nothing was."""
    dropped: tuple[str, ...] = ()
    """What it decided and may not."""
    usage: Usage = Usage()


class Decomposed(NamedTuple):
    """A plan, and how it came about."""

    plan: Plan
    skills: tuple[str, ...]
    """The skills that were named to the model, best first."""
    answer: Answer
    """What the detector said about them."""
    attempts: tuple[Attempt, ...]
    """The last one was accepted."""
    usage: Usage
    system: str
    """What the model was told."""
    trace: tuple[Event, ...] = ()
    """What was recorded of it: `selected`, and `planned` for each try."""


async def decompose(  # noqa: PLR0913 - one keyword for each part
    text: str,
    *,
    satchel: Satchel,
    planner: Planner,
    template: str | None = None,
    repairs: int = REPAIRS,
    session: Session | None = None,
    inputs: Mapping[str, Any] | None = None,
    limit: int = SKILLS,
    use: Sequence[str] = (),
    never: Sequence[str] = (),
) -> Decomposed:
    """Make a plan from a goal in words, with the skills and tools of a project.

    Args:
        text: What is to be reached.
        satchel: The skills.
        planner: Who asks the model.
        template: What the model is told, with `{{skills}}` and maybe `{{tools}}` and `{{inputs}}`.
        repairs: Times that it may put a plan right.
        session: What the steps may use; that of an agent without anybody to ask when None. Give
            `AgentSteps.session()` to plan for those steps.
        inputs: What the user gives; the plan uses it as `{{inputs.NAME}}`.
        limit: Skills that are named to the model at most.
        use: Name these skills, whatever the goal says.
        never: Do not name these skills.

    Raises:
        InvalidInput: the goal is empty, or the template has no `{{skills}}`.
        ModelFailed: the model cannot be reached, or its plan was still wrong in the end.
    """
    if not text.strip():
        raise InvalidInput(say("The goal is empty"), say("Say what is to be reached"))
    if repairs < 0:
        raise InvalidInput(say("`repairs` is below 0"), say("Give 0 or more"))
    given = _as_json(inputs or {})
    seen: list[Event] = []

    def hear(event: Event) -> None:
        mine = event.values.get("goal") == text[:GOAL_IN_TRACE]
        if mine and event.kind in {"selected", "planned"}:
            seen.append(event)

    stop = satchel.trace.listen(hear)
    try:
        where = session or await asyncio.to_thread(satchel.session)
        answer = await asyncio.to_thread(where.which, text, limit=limit, use=use, never=never)
        reach = await asyncio.to_thread(where.within_reach)
        wanted = [match.skill for match in answer.matches if match.name in reach.skills]
        filled = fill(template if template is not None else TEMPLATE, wanted, reach.tools, given)
        chosen = tuple(skill.name for skill in wanted)
        request = PlanRequest(filled.text, text, schema_for_models())
        attempts: list[Attempt] = []
        while True:
            proposal = await planner.plan(request)
            plan, attempt = _judge(proposal, text, given, reach)
            attempts.append(attempt)
            satchel.trace.record(
                "planned",
                chosen,
                goal=text[:GOAL_IN_TRACE],
                attempt=len(attempts),
                steps=len(plan.steps) if plan is not None else 0,
                problems=list(attempt.problems),
                dropped=list(attempt.dropped),
                tools_by_name_only=list(filled.named_only),
                input_tokens=proposal.usage.input_tokens,
                output_tokens=proposal.usage.output_tokens,
            )
            if plan is not None and not attempt.problems:
                break
            if len(attempts) > repairs:
                raise _given_up(attempts)
            told = _AGAIN.format(
                problems="\n".join(f"- {one}" for one in attempt.problems[:_SHOWN])
            )
            request = request._replace(before=(*request.before, (proposal.plan, told)))
    finally:
        stop()
    usage = _total(attempt.usage for attempt in attempts)
    return Decomposed(plan, chosen, answer, tuple(attempts), usage, filled.text, tuple(seen))


def _as_json(inputs: Mapping[str, Any]) -> dict[str, Any]:
    import json

    try:
        return json.loads(json.dumps(dict(inputs), allow_nan=False))
    except (TypeError, ValueError) as exc:
        raise InvalidInput(
            say("An input is something that JSON cannot say: {reason}", reason=str(exc)),
            say("Give texts, numbers, lists and tables"),
        ) from exc


def schema_for_models() -> dict[str, Any]:
    """The schema of a plan, without what a model does not decide."""
    from satchel.goals.plan_file import plan_schema

    whole = plan_schema()
    steps: dict[str, Any] = dict(whole["properties"]["steps"])
    step: dict[str, Any] = dict(steps["items"])
    step["properties"] = {
        name: rule for name, rule in step["properties"].items() if name in _PLANNED
    }
    steps["items"] = step
    return {
        "type": "object",
        "properties": {"steps": steps},
        "required": ["steps"],
        "additionalProperties": False,
    }


def _judge(
    proposal: Proposal, text: str, inputs: Mapping[str, Any], reach: Reach
) -> tuple[Plan | None, Attempt]:
    """A proposal as a plan, and what is wrong with it, in English: a model reads it."""
    import json

    from satchel.goals.graph import errors_in
    from satchel.goals.plan_file import read_plan

    table, dropped = _allowed(proposal.plan)
    table |= {"goal": text, "inputs": dict(inputs)}
    given = json.dumps(table, ensure_ascii=False)
    plan, found = read_plan(given, skills=reach.skills, tools=reach.tools)
    told = [_told(problem, inputs) for problem in errors_in(found)]
    for step in plan.steps:
        if step.action_type == "tool" and step.tool in reach.tools:
            told += _slips(step, reach.tools[step.tool])
    problems = tuple(dict.fromkeys(told))
    return plan, Attempt(proposal.plan, problems, tuple(dropped), proposal.usage)


def _told(problem: Problem, inputs: Mapping[str, Any]) -> str:
    message, hint = problem.for_model()
    if problem.code == "missing-input":  # a person would add it; a model may not
        names = ", ".join(f"`{name}`" for name in inputs)
        hint = f"The inputs are {names}" if names else "There are no inputs: use none"
    return f"{message}. {hint}" if hint else message


def _allowed(proposal: Any) -> tuple[dict[str, Any], list[str]]:
    """A proposal without what a model does not decide, and what that was.

    What means nothing at all stays: the model is told of it.
    """
    dropped: list[str] = []
    if not isinstance(proposal, dict):
        return {"steps": proposal}, dropped
    table = dict(cast("dict[str, Any]", proposal))
    for name in _PLAN - {"goal", "steps"}:
        if name in table:
            dropped.append(f"`{name}`")
            del table[name]
    steps = table.get("steps")
    if isinstance(steps, list):
        rows: list[Any] = []
        for row in cast("list[Any]", steps):
            kept = row
            if isinstance(row, dict):
                known = cast("dict[str, Any]", row)
                extra = [name for name in known if name in _STEP and name not in _PLANNED]
                dropped += [f"`{name}` of step `{known.get('id')}`" for name in extra]
                kept = {name: value for name, value in known.items() if name not in extra}
            rows.append(kept)
        table["steps"] = rows
    return table, dropped


def _slips(step: Step, tool: Mapping[str, Any]) -> list[str]:
    """Arguments that a tool does not know, and those that it must have.

    Their values are looked at when it is called: many are outputs that are not there yet.
    """
    rules: dict[str, Any] = tool.get("inputSchema") or {}
    known: Mapping[str, Any] = rules.get("properties") or {}
    names = ", ".join(f"`{name}`" for name in known) or "none"
    found = [
        f"Step `{step.id}` gives `{step.tool}` no `{name}`. Add it to its `arguments`"
        for name in rules.get("required") or ()
        if name not in step.arguments
    ]
    if rules.get("additionalProperties", True) is False:
        found += [
            f"Step `{step.id}` gives `{step.tool}` an argument `{name}`, which it does not have."
            f" Its arguments are {names}"
            for name in step.arguments
            if name not in known
        ]
    return found


def _total(usages: Any) -> Usage:
    from satchel.goals.reports import total

    return total(usages)


def _given_up(attempts: Sequence[Attempt]) -> ModelFailed:
    last = attempts[-1].problems
    shown = "\n".join(f"  - {one}" for one in last[:_SHOWN])
    count = len(attempts)
    said = (
        say("The model gave no sound plan:")
        if count == 1
        else say("The model gave no sound plan in {count} tries:", count=count)
    )
    return ModelFailed(
        f"{said}\n{shown}",
        say("Try another model, say the goal in other words, or write the plan yourself"),
    )
