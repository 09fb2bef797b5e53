"""Inputs, events and results of a turn, as records; and `Turn`, which counts while it runs.

No model package is imported here: programs without a model use these records too.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_ai.usage import RunUsage


class Limits(NamedTuple):
    """Limits of one turn, its sub-agents included. None means no limit.

    Example:
        from satchel.agent import Agent, Limits

        limits = Limits(requests=20, tool_calls=30, cost=0.5, seconds=120)
        agent = Agent.for_project(".", model="anthropic:claude-sonnet-5", limits=limits)
        agent.close()
    """

    requests: int | None = 50
    """Responses of the model; the turn ends before one more."""
    tool_calls: int | None = None
    """Failed calls included. Further ones are refused, and the model is asked to finish."""
    input_tokens: int | None = None
    """Tokens of all prompts."""
    output_tokens: int | None = None
    """Tokens of all replies."""
    total_tokens: int | None = None
    """Tokens of prompts and replies."""
    cost: float | None = None
    """US dollars. Not enforced where the model's price is unknown; the report says so."""
    seconds: float | None = None
    """The turn ends after this time, even while waiting: some SDKs wait as long as a provider's
    `Retry-After` asks."""
    depth: int = 3
    """Maximum nesting of sub-agents."""
    http_retries: int = 4
    """Repetitions of a request when a provider is busy or unreachable."""
    history: int = 400_000
    """Characters of the conversation; the oldest turns beyond it are dropped."""


class SubAgent(NamedTuple):
    """A sub-agent that the model may start, with some of the agent's skills and tools.

    Example:
        from satchel.agent import Agent, SubAgent

        reviewer = SubAgent(
            "Reviews one file and answers with its faults.",
            "You review code.",
            include=("code-*",),
            tools=("Skill", "ReadFile"),
        )
        agent = Agent.for_project(
            ".",
            model="anthropic:claude-sonnet-5",
            sub_agents={"reviewer": reviewer},
        )
        agent.close()
    """

    description: str
    """When to use it; part of the model's tool description."""
    instructions: str = ""
    """Its system prompt, before the skills."""
    model: Any = None
    """A model or its name; the agent's own when None."""
    include: tuple[str, ...] = ()
    """Only skills that match one of these patterns."""
    exclude: tuple[str, ...] = ()
    """No skills that match one of these."""
    tools: tuple[str, ...] | None = None
    """Patterns of the tools that it may call; all of the agent's when None."""


class TurnReport(NamedTuple):
    """Usage of a turn, its sub-agents included."""

    requests: int = 0
    """Requests to the model."""
    input_tokens: int = 0
    """Cached tokens included."""
    output_tokens: int = 0
    """Tokens of all replies."""
    cache_read_tokens: int = 0
    """Input tokens that came from the provider's cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to the cache."""
    cost: float | None = None
    """US dollars; None when the price is unknown."""
    tools: tuple[str, ...] = ()
    """Called tools in order; those of sub-agents as `agent/tool`."""
    skills: tuple[str, ...] = ()
    """Skills whose text was loaded."""
    seconds: float = 0.0
    """How long the turn took."""
    stopped: str = ""
    """The limit that ended the turn; empty when the model did."""
    notes: tuple[str, ...] = ()
    """Further remarks, such as a limit that could not be enforced."""

    @property
    def cached(self) -> float:
        """The share of input tokens that came from the provider's cache."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else 0.0


class TurnResult(NamedTuple):
    """The answer of the model in one turn; `str()` returns its text."""

    text: str
    """The answer."""
    report: TurnReport
    """What the turn used."""

    def __str__(self) -> str:
        return self.text


class TextDelta(NamedTuple):
    """The next part of the answer."""

    text: str
    """The text."""


class ToolStarted(NamedTuple):
    """A tool call began."""

    name: str
    """The name of the tool."""
    arguments: Mapping[str, Any]
    """The arguments of the call."""
    call_id: str = ""
    """The provider's id of the call."""
    agent: str = ""
    """The calling sub-agent; empty for the agent itself."""


class ToolEnded(NamedTuple):
    """A tool call ended."""

    name: str
    """The name of the tool."""
    status: Literal["success", "partial", "error"]
    """As in `Envelope`."""
    text: str
    """What the model reads."""
    seconds: float = 0.0
    """How long the call took."""
    call_id: str = ""
    """The provider's id of the call."""
    agent: str = ""
    """The calling sub-agent; empty for the agent itself."""


class SkillLoaded(NamedTuple):
    """A skill was loaded."""

    name: str
    """The name of the skill."""
    digest: str
    """The digest of its instructions."""
    characters: int
    """The length of its text."""
    again: bool = False
    """Loaded before: the model got only a reference."""
    agent: str = ""
    """The sub-agent that loaded it; empty for the agent itself."""


class TurnDone(NamedTuple):
    """The turn ended."""

    text: str
    """The answer."""
    report: TurnReport
    """What the turn used."""


Event = TextDelta | ToolStarted | ToolEnded | SkillLoaded | TurnDone
"""Events of `Agent.stream`, in order of occurrence."""


# --- turn state ---------------------------------------------------------------------------


class Turn:
    """Counts and reports what happens in a turn; a sub-agent's turn shares the outer counters."""

    def __init__(
        self,
        limits: Limits,
        on_event: Callable[[Event], None] | None = None,
        *,
        outer: Turn | None = None,
        agent: str = "",
    ) -> None:
        from pydantic_ai.usage import RunUsage  # tool steps need these records and no model

        self.limits = limits
        self.agent = f"{outer.agent}/{agent}" if outer is not None and outer.agent else agent
        self.depth: int = outer.depth + 1 if outer is not None else 0
        self.usage: RunUsage = outer.usage if outer is not None else RunUsage()
        self.on_event = outer.on_event if outer is not None else on_event
        self.tools: list[str] = outer.tools if outer is not None else []
        self.skills: list[str] = outer.skills if outer is not None else []
        self.changes: list[str] = outer.changes if outer is not None else []
        """Which files its tools changed, as lines for the report."""
        self.untrusted_notice = ""
        """The number of untrusted skills, as a line for the report."""
        self.load_lock = asyncio.Lock()
        """Skills are loaded one at a time: of two calls only the first returns the text."""
        self._started = time.monotonic()

    def emit(self, event: Event) -> None:
        """Emit an event."""
        if self.on_event is not None:
            self.on_event(event)

    def count_call(self, tool: str) -> bool:
        """Count a call; False when it exceeds the limit."""
        limit = self.limits.tool_calls
        if limit is not None and len(self.tools) >= limit:
            return False
        self.tools.append(f"{self.agent}/{tool}" if self.agent else tool)
        return True

    def count_skill(self, skill: str) -> None:
        """Count a loaded skill."""
        if skill not in self.skills:
            self.skills.append(skill)

    def limit_reached(self) -> str:
        """Return the exceeded limit on requests, tokens or cost; empty when none is."""
        limits, usage = self.limits, self.usage
        if limits.cost is not None and usage.cost is not None and usage.cost > limits.cost:
            return limit_notice("cost", f"{limits.cost:g}")
        if limits.total_tokens is not None and usage.total_tokens > limits.total_tokens:
            return limit_notice("total_tokens", f"{limits.total_tokens:,}")
        if limits.input_tokens is not None and usage.input_tokens > limits.input_tokens:
            return limit_notice("input_tokens", f"{limits.input_tokens:,}")
        if limits.output_tokens is not None and usage.output_tokens > limits.output_tokens:
            return limit_notice("output_tokens", f"{limits.output_tokens:,}")
        if limits.requests is not None and usage.requests >= limits.requests:
            return limit_notice("requests", f"{limits.requests:,}")
        return ""

    def report(self, stopped: str = "") -> TurnReport:
        """Return the usage so far."""
        usage = self.usage
        notes = [self.untrusted_notice] if self.untrusted_notice else []
        notes += self.changes
        if self.limits.cost is not None and usage.cost is None and usage.requests:
            notes.append(
                say("The limit `cost` was not applied: the price of the model is not known")
            )
        return TurnReport(
            requests=usage.requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost=None if usage.cost is None else float(usage.cost),
            tools=tuple(self.tools),
            skills=tuple(self.skills),
            seconds=round(time.monotonic() - self._started, 3),
            stopped=stopped,
            notes=tuple(notes),
        )


def limit_notice(name: str, value: object) -> str:
    """Return the sentence that says which limit ended a turn."""
    return say("Limit reached: {limit}", limit=f"`{name}` = {value}")
