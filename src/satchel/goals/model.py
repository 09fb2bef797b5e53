"""Records of goals, plans, steps and their results, all of which are JSON data."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

ActionType = Literal["llm", "skill", "tool", "human", "notify"]
"""`notify` is never in a plan: it sends what `Plan.notify` asks for."""
StepState = Literal["waiting", "running", "asking", "done", "failed", "skipped", "cancelled"]
"""`asking`: waits for a person. The last four are final."""
GoalState = Literal[
    "queued",
    "running",
    "asking",
    "cancelling",
    "done",
    "partial",
    "failed",
    "cancelled",
    "damaged",
]
"""`asking`: only a person can continue it. `cancelling`: it was cancelled, and a step has not ended
yet. `partial`: it ended, and some steps failed. `damaged`: its journal cannot be read to the end,
so no step of it runs again."""
OnFailure = Literal["fail_fast", "continue", "skip_dependents"]
"""Effect of a failed step: stop everything; run its dependents without its output; or skip its
dependents."""

FINAL_STEP_STATES: frozenset[str] = frozenset(("done", "failed", "skipped", "cancelled"))
FINAL_GOAL_STATES: frozenset[str] = frozenset(("done", "partial", "failed", "cancelled", "damaged"))


DEFAULT_PRIORITY, MAX_PRIORITY = 3, 5
"""Of goals, from 1: lower numbers go first."""


class Retry(NamedTuple):
    """How often a step is attempted, and the delays in between."""

    attempts: int = 3
    """How many attempts at most, the first one included."""
    first: float = 1.0
    """Seconds before the second attempt; multiplied by `factor` for each further one."""
    factor: float = 2.0
    """What a delay is multiplied by for the next one."""
    most: float = 60.0
    """Seconds of the longest delay."""
    jitter: float = 0.2
    """Each delay varies by up to this share, so that many steps do not retry at the same moment."""


class ForEach(NamedTuple):
    """A list whose items a step works on, each in a substep `STEP.NUMBER`."""

    items: Any
    """A list, or a text that is one reference to a list."""
    at_once: int = 8
    """How many items are worked on at the same time."""
    most: int = 100
    """A longer list fails the step."""
    failures: int = 0
    """How many items may fail; the outputs of those are None."""


class Condition(NamedTuple):
    """A comparison of values, which may be references; all that is set must hold."""

    value: Any
    """What is compared."""
    equals: Any = None
    """It is equal to this."""
    differs: Any = None
    """It is not equal to this."""
    above: Any = None
    """It is a number larger than this."""
    below: Any = None
    """It is a number smaller than this."""
    contains: Any = None
    """It is a text or a list with this in it."""


class Notify(NamedTuple):
    """Who is notified of events of a goal, by signed HTTP requests."""

    url: str
    """Where a request is sent, with `https`."""
    secret: str
    """The name of the secret that signs it, in the keyring or environment of the worker."""
    events: tuple[str, ...] = ("asking", "done", "partial", "failed")
    """`asking`: a step waits for a person. The others: the goal ended in that state."""


class Step(NamedTuple):
    """One step of a plan."""

    id: str
    """The id, for `needs` and references."""
    action_type: ActionType = "llm"
    """Who does it: a model, a model with a skill, a tool, or a person."""
    title: str = ""
    """Display name; the id when empty."""
    prompt: str = ""
    """Text for the model or the person. May use `{{steps.ID.output}}` and `{{inputs.X}}`."""
    skill: str = ""
    """For `skill`: the skill whose SKILL.md is the system context."""
    tool: str = ""
    """For `tool`: the name of the tool."""
    arguments: Mapping[str, Any] = {}
    """For `tool`: its arguments. A text that is a single reference keeps the type of its value."""
    needs: tuple[str, ...] = ()
    """Steps that must end first; those referenced in its templates are added."""
    output: Mapping[str, Any] = {}
    """JSON schema of the output; a text when empty."""
    model: str = ""
    """The model; the runner's default when empty."""
    retry: Retry | None = None
    """The plan's policy when None."""
    timeout: float | None = None
    """Seconds for one attempt; the plan's limit when None."""
    on_failure: OnFailure | None = None
    """The plan's policy when None."""
    for_each: ForEach | None = None
    """The step is done once for each item of a list, and its output is the list of outputs."""
    when: Condition | None = None
    """The step is left out when it does not hold."""
    deadline: float | None = None
    """For `human`: seconds after which the step ends without an answer; None means no limit."""
    default: Any = None
    """For `human`: the output when no answer came; without it the step fails then."""


def resource_of(step: Step) -> str:
    """What a worker needs to have for a step: `skill:NAME` or `tool:NAME`; empty for others."""
    name = {"skill": step.skill, "tool": step.tool}.get(step.action_type, "")
    return f"{step.action_type}:{name}" if name else ""


class GoalBudget(NamedTuple):
    """Limits of a whole goal. None means no limit."""

    tokens: int | None = None
    """Tokens of all prompts and replies."""
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None
    """From its first run; time spent waiting for people does not count."""


class Plan(NamedTuple):
    """The steps of a goal, with its inputs and limits.

    Example:
        from satchel.goals import Goal, Plan, Step

        plan = Plan(
            "Publish the notes",
            (
                Step("draft", prompt="Write release notes for {{inputs.version}}"),
                Step("check", "human", prompt="Publish {{steps.draft.output}}?"),
            ),
            inputs={"version": "1.2"},
        )
        goal = Goal.of(plan)
        assert goal.id.startswith("publish-the-notes-")
    """

    goal: str
    """The goal in one sentence."""
    steps: tuple[Step, ...]
    """The steps; `needs` puts them in order."""
    inputs: Mapping[str, Any] = {}
    """Values for `{{inputs.NAME}}` in prompts and arguments."""
    on_failure: OnFailure = "fail_fast"
    """What happens to other steps when one fails, unless the step says it."""
    retry: Retry = Retry()
    """How often a step is attempted, unless the step says it."""
    timeout: float | None = 600.0
    """Seconds for one attempt of a step; None means no limit."""
    budget: GoalBudget = GoalBudget()
    """Limits of the whole goal."""
    parallel: int = 64
    """How many steps may run at the same time."""
    notify: Notify | None = None
    """Who is notified when a person is needed, and when the goal ends."""


class Goal(NamedTuple):
    """A plan with an id, ready to be submitted to an engine."""

    id: str
    """Submitting the same id again means the same goal. Letters, digits, `-` and `_`."""
    plan: Plan
    """What is to be done."""
    versions: Mapping[str, str] = {}
    """Skill or tool (`skill:NAME`, `tool:NAME`) -> the digest that its steps must run with. Workers
    that have another digest leave these steps to others."""
    priority: int = DEFAULT_PRIORITY
    """From 1 to 5. When more goals wait than workers can take, those with the lowest number go
    first."""

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Make a goal with a new id: the first words of the plan's goal, and random digits.

        Args:
            plan: The plan.
        """
        words = re.findall(r"[a-z0-9]+", plan.goal.lower())
        name = "-".join(words)[:32].strip("-") or "goal"
        return cls(f"{name}-{os.urandom(4).hex()}", plan)


class Schedule(NamedTuple):
    """A goal that an engine starts at fixed times."""

    name: str
    """The id of each of its goals begins with it."""
    cron: str
    """Minute, hour, day, month and weekday, in UTC."""
    next: float = 0.0
    """When the next goal starts, in seconds since the epoch; 0 when unknown."""


class Usage(NamedTuple):
    """Requests, tokens and cost."""

    requests: int = 0
    """Requests to a model."""
    input_tokens: int = 0
    """Tokens of all prompts."""
    output_tokens: int = 0
    """Tokens of all replies."""
    cost: float | None = None
    """US dollars; None when no price is known."""


NO_USAGE = Usage()
"""Shared record for "nothing used, or usage unknown"."""


class StepError(NamedTuple):
    """Why a step failed."""

    code: str
    """The kind of error; the page on errors lists the codes."""
    message: str
    """What happened."""
    hint: str = ""
    """What to do."""
    retryable: bool = True
    """Whether another attempt may succeed."""


class StepResult(NamedTuple):
    """The outcome of a step, or its question to a person."""

    step: str
    """The step's id; readers of an output verify it."""
    state: StepState
    """How far the step is."""
    output: Any = None
    """JSON; `{"$artefact": DIGEST, "size": N, "head": "…"}` when it is large. In state `asking`:
    the question."""
    error: StepError | None = None
    """Why it failed; None otherwise."""
    attempts: int = 0
    """How many attempts there were."""
    usage: Usage = NO_USAGE
    """What its attempts used."""
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    """How long its attempts took."""
    skills: tuple[str, ...] = ()
    """The skills whose text was loaded."""
    tools: tuple[str, ...] = ()
    """The tools that were called."""
    notes: tuple[str, ...] = ()
    """Further remarks: truncated, repaired, a limit that was exceeded."""
    worker: str = ""
    """In state `running`: the process that runs it, as `PID@HOST`."""
    version: str = ""
    """The digest of the skill or tool skill that ran it; empty for other steps."""


class StepBegun(NamedTuple):
    """The record of a step that has begun and has no result yet; written before each attempt."""

    step: str
    """The step's id."""
    attempts: int = 0
    """Attempts that have begun, those of lost workers included."""
    failures: int = 0
    """Attempts that failed."""
    deaths: int = 0
    """Attempts during which the worker died."""
    usage: Usage = NO_USAGE
    """What the ended attempts used."""
    started: float = 0.0
    """When the current worker began it, in seconds since the epoch."""
    worker: str = ""
    """The worker of the current attempt; empty between attempts."""
    notes: tuple[str, ...] = ()
    """Remarks of the ended attempts."""
    version: str = ""
    """The digest of the skill or tool skill of the current attempt."""
    waits_for: str = ""
    """Why the last worker that was asked cannot run it."""


DEADLINE = "deadline"
"""`Answer.by` of a default."""


class Answer(NamedTuple):
    """A person's answer to a step that waits for one."""

    approved: bool = True
    """False fails the step."""
    value: Any = None
    """The step's output: a text, or a value of its schema; `"approved"` when None."""
    by: str = ""
    """Who answered, for the record; `DEADLINE` when no person did in time."""
    note: str = ""
    """A remark, for the record."""


class GoalReport(NamedTuple):
    """The state of a goal and the results of its steps."""

    id: str
    """The id of the goal."""
    state: GoalState
    """`asking` waits for an answer; `partial` ended with some failed steps."""
    plan: Plan
    """The plan of this revision."""
    steps: Mapping[str, StepResult]
    """Every step of the plan, in order."""
    engine: str = ""
    """The name of the engine."""
    started: float = 0.0
    """Time of its first run, in seconds since the epoch."""
    seconds: float = 0.0
    """Time during which at least one step was running; waiting for people is not included."""
    usage: Usage = NO_USAGE
    """What all steps used."""
    reason: str = ""
    """Why it is not `done`."""
    revision: int = 1
    """Starts at 1; each retry or change of the plan adds one."""
    ended: float = 0.0
    """End time in seconds since the epoch; 0 while it runs, or when unknown."""
    substeps: Mapping[str, StepResult] = {}
    """`STEP.NUMBER` -> result of an item of `for_each`; `STEP.list` has their number, and
    `STEP.notify` and `notify.end` are notifications."""

    @property
    def results(self) -> dict[str, StepResult]:
        """Return the results of all steps and substeps."""
        return {**self.steps, **self.substeps}


class GoalSummary(NamedTuple):
    """One row of a list of goals."""

    id: str
    """The id of the goal."""
    state: GoalState
    """As in `GoalReport`."""
    goal: str
    """The goal in one sentence."""
    engine: str
    """The name of the engine."""
    started: float = 0.0
    """Time of its first run, in seconds since the epoch."""
    seconds: float = 0.0
    """How long its steps ran."""
    done: int = 0
    """How many steps have ended."""
    steps: int = 0
    """How many steps it has."""


class StepCall(NamedTuple):
    """One step with its inputs, as a worker gets it."""

    goal: str
    step: Step
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    """Step id -> output (maybe an artifact reference) of the steps referenced in its templates."""
    text: str = ""
    """The goal in words, for `{{goal}}`."""
    revision: int = 1
    retry: Retry = Retry()
    timeout: float | None = None
    left: GoalBudget = GoalBudget()
    """The remaining budget when the step begins."""
    version: str = ""
    """The digest of the skill or tool that the goal wants; any when empty."""

    @property
    def key(self) -> str:
        """Idempotency key: the same for every attempt of this step."""
        return f"{self.goal}:{self.step.id}:{self.revision}"


class Work(NamedTuple):
    """One attempt of a step with all references filled in: the input of a `StepRunner`."""

    goal: str
    """The id of the goal."""
    step: Step
    """The step, as the plan has it."""
    prompt: str
    """The prompt, with all references filled in."""
    arguments: Mapping[str, Any]
    """The arguments, with all references filled in."""
    key: str
    """An idempotency key: the same for all attempts of the same work."""
    attempt: int = 1
    """The number of this attempt, from 1."""


class Done(NamedTuple):
    """The result of a `StepRunner`."""

    output: Any
    """The output: a text, or a value of the step's schema."""
    usage: Usage = NO_USAGE
    """What the attempt used."""
    skills: tuple[str, ...] = ()
    """The skills whose text was loaded."""
    tools: tuple[str, ...] = ()
    """The tools that were called."""
    notes: tuple[str, ...] = ()
    """Remarks for the report."""


class StepRunner(Protocol):
    """Runs the steps of goals: any object with this method, such as `AgentSteps`.

    Example:
        from satchel.goals import Done, Work


        class Shout:
            async def run(self, work: Work) -> Done:
                return Done(work.prompt.upper())
    """

    async def run(self, work: Work) -> Done:
        """Run one attempt.

        Args:
            work: The step, with its prompt and arguments.

        Raises:
            StepFailed: the step failed; `retryable` allows another attempt.
        """
        ...
