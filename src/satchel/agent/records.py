"""What goes into a turn of the agent and what comes out of it: plain records, no model package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Limits(NamedTuple):
    """Limits of one turn, its sub-agents included. None means no limit."""

    requests: int | None = 50
    """Answers of the model; the turn ends when it wants one more."""
    tool_calls: int | None = None
    """Calls of tools, failed ones too. Further ones are refused, and the model told to finish."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    """US dollars. It cannot hold where the price of the model is not known; the report says so."""
    seconds: float | None = None
    """The turn ends after so long, whatever it waits for: some SDKs wait as long as a provider's
    `Retry-After` says."""
    depth: int = 3
    """How many sub-agents may work one for another."""
    http_retries: int = 4
    """Times that a request is sent again when a provider is busy or not there."""
    history: int = 400_000
    """Characters of the conversation that are kept; beyond it the oldest are dropped."""


class SubAgent(NamedTuple):
    """A sub-agent that the model may start, with some of the agent's skills and tools."""

    description: str
    """When to give it a task: the model reads this."""
    instructions: str = ""
    """Its system prompt, before its skills."""
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
    """All of them, those that came from the provider's cache too."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    """US dollars; None when the price is not known."""
    tools: tuple[str, ...] = ()
    """The tools that were called, in order; those of sub-agents as `agent/tool`."""
    skills: tuple[str, ...] = ()
    """The skills whose text was loaded."""
    seconds: float = 0.0
    stopped: str = ""
    """Which limit ended the turn; empty when the model did."""
    notes: tuple[str, ...] = ()
    """What else is to be known, such as a limit that could not be kept."""

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
    """The sub-agent that calls; empty for the agent itself."""


class ToolEnded(NamedTuple):
    """A tool call ended."""

    name: str
    status: Literal["success", "partial", "error"]
    text: str
    """What the model reads."""
    seconds: float = 0.0
    call_id: str = ""
    agent: str = ""


class SkillLoaded(NamedTuple):
    """A skill was loaded."""

    name: str
    digest: str
    characters: int
    again: bool = False
    """It was there already: only a pointer was given."""
    agent: str = ""


class TurnDone(NamedTuple):
    """The turn ended."""

    text: str
    report: TurnReport


Event = TextDelta | ToolStarted | ToolEnded | SkillLoaded | TurnDone
"""What `Agent.stream` gives, in the order in which it happens."""
