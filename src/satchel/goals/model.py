"""Records of goals, plans, steps and their results, all of which are JSON data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

ActionType = Literal["llm", "skill", "tool", "human"]
StepState = Literal["waiting", "running", "asking", "done", "failed", "skipped", "cancelled"]
"""`asking`: a person's word is wanted. The last four are ends."""
GoalState = Literal[
    "queued", "running", "asking", "done", "partial", "failed", "cancelled", "damaged"
]
"""`asking`: nothing can go on without a person. `partial`: it ended, and some steps failed.
`damaged`: its journal cannot be read to the end, so no step of it runs again."""
OnFailure = Literal["fail_fast", "continue", "skip_dependents"]
"""What a failed step means for the rest: stop everything; run even what depends on it, with no
output of it; or leave out only what depends on it."""

ENDS: frozenset[str] = frozenset(("done", "failed", "skipped", "cancelled"))
"""States of a step that do not change any more."""
OVER: frozenset[str] = frozenset(("done", "partial", "failed", "cancelled", "damaged"))
"""States of a goal that do not change by themselves."""


class Retry(NamedTuple):
    """How often a step is tried, and how long to wait in between."""

    attempts: int = 3
    """All tries together."""
    first: float = 1.0
    """Seconds before the second try; then `factor` times as long each time."""
    factor: float = 2.0
    most: float = 60.0
    jitter: float = 0.2
    """Each wait is longer or shorter by up to this share, so that many do not come back at once."""


class Step(NamedTuple):
    """One step of a plan."""

    id: str
    action_type: ActionType = "llm"
    title: str = ""
    """What people read; the id when empty."""
    prompt: str = ""
    """What the model, or the person, is told. May use `{{steps.ID.output}}` and `{{inputs.X}}`."""
    skill: str = ""
    """For `skill`: whose SKILL.md is the system context."""
    tool: str = ""
    """For `tool`: what is called."""
    arguments: Mapping[str, Any] = {}
    """For `tool`: with what. A text that is one reference and nothing else keeps its type."""
    needs: tuple[str, ...] = ()
    """Steps that must end before it; those that its templates mention are added."""
    output: Mapping[str, Any] = {}
    """A JSON schema of what it gives; a text when empty."""
    model: str = ""
    """Who is asked; the runner's own when empty."""
    retry: Retry | None = None
    """As the plan says when None."""
    timeout: float | None = None
    """Seconds for one try."""
    on_failure: OnFailure | None = None
    """As the plan says when None."""


class Budget(NamedTuple):
    """What a whole goal may take. None means no limit."""

    tokens: int | None = None
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None
    """From when it first ran; time that it waits for people does not count."""


class Plan(NamedTuple):
    """The steps of a goal, with its inputs and limits."""

    goal: str
    """What is to be reached, in words."""
    steps: tuple[Step, ...]
    inputs: Mapping[str, Any] = {}
    """Values for `{{inputs.X}}`."""
    on_failure: OnFailure = "fail_fast"
    retry: Retry = Retry()
    timeout: float | None = 600.0
    budget: Budget = Budget()
    parallel: int = 64
    """Steps that run at once, at most."""


class Goal(NamedTuple):
    """A plan with an id, ready to be submitted to an engine."""

    id: str
    """Submitting the same id again is the same goal. Letters, digits, `-` and `_`."""
    plan: Plan

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Make a goal with a new id: the first words of the plan's goal, and random digits."""
        import os
        import re

        words = re.findall(r"[a-z0-9]+", plan.goal.lower())
        name = "-".join(words)[:32].strip("-") or "goal"
        return cls(f"{name}-{os.urandom(4).hex()}", plan)


class Usage(NamedTuple):
    """What something took."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; None when no price is known."""


NO_USAGE = Usage()
"""The one record that stands wherever nothing was used, or nothing is known of it."""


class StepError(NamedTuple):
    """Why a step failed."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = True


class StepResult(NamedTuple):
    """How a step ended, or that it waits for a person."""

    step: str
    """Its id: every output carries it, and who reads an output checks it."""
    state: StepState
    output: Any = None
    """JSON; `{"$artefact": DIGEST, "size": N, "head": "…"}` when it is large, with a preview as
    `fields` when it is a list or an object. While it is `asking`: what the person is asked."""
    error: StepError | None = None
    attempts: int = 0
    usage: Usage = NO_USAGE
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    skills: tuple[str, ...] = ()
    """Skills whose text was loaded."""
    tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else is to be known: truncated, repaired, a limit that did not hold."""


class Answer(NamedTuple):
    """A person's answer to a step that waits for one."""

    approved: bool = True
    """False fails the step."""
    value: Any = None
    """The step's output: a text, or what its schema says; `"approved"` when None."""
    by: str = ""
    note: str = ""


class GoalReport(NamedTuple):
    """The state of a goal and the results of its steps."""

    id: str
    state: GoalState
    plan: Plan
    steps: Mapping[str, StepResult]
    """Every step of the plan, in its order."""
    engine: str = ""
    started: float = 0.0
    """When it first ran, in seconds since the epoch."""
    seconds: float = 0.0
    """How long some step of it was at work; time that only people were waited for is not in it."""
    usage: Usage = NO_USAGE
    reason: str = ""
    """Why it is not `done`."""
    revision: int = 1
    """How often it was retried or its plan changed, from 1."""
    ended: float = 0.0
    """When it was over, in seconds since the epoch; 0 while it is not, or nobody knows."""


class GoalSummary(NamedTuple):
    """One line of a list."""

    id: str
    state: GoalState
    goal: str
    engine: str
    started: float = 0.0
    seconds: float = 0.0
    done: int = 0
    steps: int = 0


class StepEvent(NamedTuple):
    """Something happened to a step; `step` is empty when it happened to the whole goal."""

    goal: str
    step: str
    state: str
    """A state of a step or of the goal, or `retrying`."""
    at: float
    text: str = ""
    result: StepResult | None = None


class StepCall(NamedTuple):
    """One step, ready to be done: what a worker gets."""

    goal: str
    """The goal's id."""
    step: Step
    inputs: Mapping[str, Any]
    """The plan's inputs."""
    outputs: Mapping[str, Any]
    """Step id -> output (maybe an artefact's reference), of those that its templates mention."""
    text: str = ""
    """The goal in words, for `{{goal}}`."""
    revision: int = 1
    retry: Retry = Retry()
    timeout: float | None = None
    left: Budget = Budget()
    """What is left of the goal's budget when it begins."""

    @property
    def key(self) -> str:
        """The same for every try of this step: what has side effects is given it."""
        return f"{self.goal}:{self.step.id}:{self.revision}"


class Work(NamedTuple):
    """One try of a step, every reference filled in: what a `StepRunner` gets."""

    goal: str
    step: Step
    prompt: str
    arguments: Mapping[str, Any]
    key: str
    attempt: int = 1


class Done(NamedTuple):
    """What a `StepRunner` gives back."""

    output: Any
    usage: Usage = NO_USAGE
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class StepRunner(Protocol):
    """Who does the work of a step: models, skills and tools are its business alone."""

    async def run(self, work: Work) -> Done:
        """Do it.

        Raises:
            StepFailed: it cannot be done; `retryable` says whether to try again.
        """
        ...
