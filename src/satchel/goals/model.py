"""Records of goals, plans, steps and their results, all of which are JSON data."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

ActionType = Literal["llm", "skill", "tool", "human"]
StepState = Literal["waiting", "running", "asking", "done", "failed", "skipped", "cancelled"]
"""`asking`: waits for a person. The last four are final."""
GoalState = Literal[
    "queued", "running", "asking", "done", "partial", "failed", "cancelled", "damaged"
]
"""`asking`: only a person can continue it. `partial`: it ended, and some steps failed. `damaged`:
its journal cannot be read to the end, so no step of it runs again."""
OnFailure = Literal["fail_fast", "continue", "skip_dependents"]
"""Effect of a failed step: stop everything; run its dependents without its output; or skip its
dependents."""

ENDS: frozenset[str] = frozenset(("done", "failed", "skipped", "cancelled"))
OVER: frozenset[str] = frozenset(("done", "partial", "failed", "cancelled", "damaged"))


class Retry(NamedTuple):
    """How often a step is attempted, and the delays in between."""

    attempts: int = 3
    first: float = 1.0
    """Seconds before the second attempt; multiplied by `factor` for each further one."""
    factor: float = 2.0
    most: float = 60.0
    jitter: float = 0.2
    """Each delay varies by up to this share, so that many steps do not retry at the same moment."""


class Step(NamedTuple):
    """One step of a plan."""

    id: str
    action_type: ActionType = "llm"
    title: str = ""
    """Display name; the id when empty."""
    prompt: str = ""
    """Text for the model or the person. May use `{{steps.ID.output}}` and `{{inputs.X}}`."""
    skill: str = ""
    """For `skill`: the skill whose SKILL.md is the system context."""
    tool: str = ""
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
    on_failure: OnFailure | None = None
    """The plan's policy when None."""


class GoalBudget(NamedTuple):
    """Limits of a whole goal. None means no limit."""

    tokens: int | None = None
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None
    """From its first run; time spent waiting for people does not count."""


class Plan(NamedTuple):
    """The steps of a goal, with its inputs and limits."""

    goal: str
    steps: tuple[Step, ...]
    inputs: Mapping[str, Any] = {}
    on_failure: OnFailure = "fail_fast"
    retry: Retry = Retry()
    timeout: float | None = 600.0
    budget: GoalBudget = GoalBudget()
    parallel: int = 64


class Goal(NamedTuple):
    """A plan with an id, ready to be submitted to an engine."""

    id: str
    """Submitting the same id again means the same goal. Letters, digits, `-` and `_`."""
    plan: Plan

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Make a goal with a new id: the first words of the plan's goal, and random digits."""
        words = re.findall(r"[a-z0-9]+", plan.goal.lower())
        name = "-".join(words)[:32].strip("-") or "goal"
        return cls(f"{name}-{os.urandom(4).hex()}", plan)


class Usage(NamedTuple):
    """Requests, tokens and cost."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; None when no price is known."""


NO_USAGE = Usage()
"""Shared record for "nothing used, or usage unknown"."""


class StepError(NamedTuple):
    """Why a step failed."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = True


class StepResult(NamedTuple):
    """The outcome of a step, or its question to a person."""

    step: str
    """The step's id; readers of an output verify it."""
    state: StepState
    output: Any = None
    """JSON; `{"$artefact": DIGEST, "size": N, "head": "…"}` when it is large. In state `asking`:
    the question."""
    error: StepError | None = None
    attempts: int = 0
    usage: Usage = NO_USAGE
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Further remarks: truncated, repaired, a limit that was exceeded."""


class Answer(NamedTuple):
    """A person's answer to a step that waits for one."""

    approved: bool = True
    """False fails the step."""
    value: Any = None
    """The step's output: a text, or a value of its schema; `"approved"` when None."""
    by: str = ""
    note: str = ""


class GoalReport(NamedTuple):
    """The state of a goal and the results of its steps."""

    id: str
    state: GoalState
    plan: Plan
    steps: Mapping[str, StepResult]
    """Every step of the plan, in order."""
    engine: str = ""
    started: float = 0.0
    """Time of its first run, in seconds since the epoch."""
    seconds: float = 0.0
    """Time during which at least one step was running; waiting for people is not included."""
    usage: Usage = NO_USAGE
    reason: str = ""
    """Why it is not `done`."""
    revision: int = 1
    """Starts at 1; each retry or change of the plan adds one."""
    ended: float = 0.0
    """End time in seconds since the epoch; 0 while it runs, or when unknown."""


class GoalSummary(NamedTuple):
    """One row of a list of goals."""

    id: str
    state: GoalState
    goal: str
    engine: str
    started: float = 0.0
    seconds: float = 0.0
    done: int = 0
    steps: int = 0


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

    @property
    def key(self) -> str:
        """Idempotency key: the same for every attempt of this step."""
        return f"{self.goal}:{self.step.id}:{self.revision}"


class Work(NamedTuple):
    """One attempt of a step with all references filled in: the input of a `StepRunner`."""

    goal: str
    step: Step
    prompt: str
    arguments: Mapping[str, Any]
    key: str
    attempt: int = 1


class Done(NamedTuple):
    """The result of a `StepRunner`."""

    output: Any
    usage: Usage = NO_USAGE
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class StepRunner(Protocol):
    """Runs steps: models, skills and tools are used only here."""

    async def run(self, work: Work) -> Done:
        """Run one attempt.

        Raises:
            StepFailed: the step failed; `retryable` allows another attempt.
        """
        ...
