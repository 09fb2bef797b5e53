"""Inputs, events and results of a turn: plain records without a model package."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_ai.usage import RunUsage


class Limits(NamedTuple):
    """Limits of one turn, its sub-agents included. None means no limit."""

    requests: int | None = 50
    """Responses of the model; the turn ends before one more."""
    tool_calls: int | None = None
    """Failed calls included. Further ones are refused, and the model is asked to finish."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
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
    """A sub-agent that the model may start, with some of the agent's skills and tools."""

    description: str
    """When to use it; part of the model's tool description."""
    instructions: str = ""
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
    input_tokens: int = 0
    """Cached tokens included."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    """US dollars; None when the price is unknown."""
    tools: tuple[str, ...] = ()
    """Called tools in order; those of sub-agents as `agent/tool`."""
    skills: tuple[str, ...] = ()
    """Skills whose text was loaded."""
    seconds: float = 0.0
    stopped: str = ""
    """The limit that ended the turn; empty when the model did."""
    notes: tuple[str, ...] = ()
    """Further remarks, such as a limit that could not be enforced."""

    @property
    def cached(self) -> float:
        """The share of input tokens that came from the provider's cache."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else 0.0


class TurnResult(NamedTuple):
    """The model's answer; `str()` returns its text."""

    text: str
    report: TurnReport

    def __str__(self) -> str:
        return self.text


class TextDelta(NamedTuple):
    """The next part of the answer."""

    text: str


class ToolStarted(NamedTuple):
    """A tool call began."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str = ""
    agent: str = ""
    """The calling sub-agent; empty for the agent itself."""


class ToolEnded(NamedTuple):
    """A tool call ended."""

    name: str
    status: Literal["success", "partial", "error"]
    text: str
    seconds: float = 0.0
    call_id: str = ""
    agent: str = ""


class SkillLoaded(NamedTuple):
    """A skill was loaded."""

    name: str
    digest: str
    characters: int
    again: bool = False
    """Loaded before: the model got only a reference."""
    agent: str = ""


class TurnDone(NamedTuple):
    """The turn ended."""

    text: str
    report: TurnReport


Event = TextDelta | ToolStarted | ToolEnded | SkillLoaded | TurnDone
"""Events of `Agent.stream`, in order of occurrence."""


# --- turn state ---------------------------------------------------------------------------


class Turn:
    """Counters and events of one turn. A sub-agent's turn shares the outer one's counters."""

    def __init__(
        self,
        limits: Limits,
        sink: Callable[[Event], None] | None = None,
        *,
        outer: Turn | None = None,
        agent: str = "",
    ) -> None:
        from pydantic_ai.usage import RunUsage  # tool steps need these records and no model

        self.limits = limits
        self.agent = f"{outer.agent}/{agent}" if outer is not None and outer.agent else agent
        self.depth: int = outer.depth + 1 if outer is not None else 0
        self.usage: RunUsage = outer.usage if outer is not None else RunUsage()
        self.sink = outer.sink if outer is not None else sink
        self.tools: list[str] = outer.tools if outer is not None else []
        self.skills: list[str] = outer.skills if outer is not None else []
        self.waiting = ""
        """The number of untrusted skills, as a line for the report."""
        self.loading = asyncio.Lock()
        """Skills are loaded one at a time: of two calls only the first returns the text."""
        self._started = time.monotonic()

    def emit(self, event: Event) -> None:
        """Emit an event."""
        if self.sink is not None:
            self.sink(event)

    def count_call(self, tool: str) -> bool:
        """Count a call; False when it exceeds the limit."""
        most = self.limits.tool_calls
        if most is not None and len(self.tools) >= most:
            return False
        self.tools.append(f"{self.agent}/{tool}" if self.agent else tool)
        return True

    def loaded(self, skill: str) -> None:
        """Count a loaded skill."""
        if skill not in self.skills:
            self.skills.append(skill)

    def limit_reached(self) -> str:
        """The exceeded limit on requests, tokens or cost; empty when none is."""
        most, usage = self.limits, self.usage
        if most.cost is not None and usage.cost is not None and usage.cost > most.cost:
            return limit_notice("cost", f"{most.cost:g}")
        if most.total_tokens is not None and usage.total_tokens > most.total_tokens:
            return limit_notice("total_tokens", f"{most.total_tokens:,}")
        if most.input_tokens is not None and usage.input_tokens > most.input_tokens:
            return limit_notice("input_tokens", f"{most.input_tokens:,}")
        if most.output_tokens is not None and usage.output_tokens > most.output_tokens:
            return limit_notice("output_tokens", f"{most.output_tokens:,}")
        if most.requests is not None and usage.requests >= most.requests:
            return limit_notice("requests", f"{most.requests:,}")
        return ""

    def report(self, stopped: str = "") -> TurnReport:
        """Usage so far."""
        usage = self.usage
        notes = (self.waiting,) if self.waiting else ()
        if self.limits.cost is not None and usage.cost is None and usage.requests:
            unknown = say("The limit `cost` was not applied: the price of the model is not known")
            notes = (*notes, unknown)
        return TurnReport(
            usage.requests,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            None if usage.cost is None else float(usage.cost),
            tuple(self.tools),
            tuple(self.skills),
            round(time.monotonic() - self._started, 3),
            stopped,
            notes,
        )


def limit_notice(name: str, most: object) -> str:
    """Say which limit ended a turn."""
    return say("Limit reached: {limit}", limit=f"`{name}` = {most}")
