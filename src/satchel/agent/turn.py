"""What is counted and told while one turn runs: shared by the agent and its sub-agents."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pydantic_ai.usage import RunUsage

from satchel._language import say
from satchel.agent.records import TurnReport
from satchel.tools.presence import news_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.agent.records import Event, Limits


class Turn:
    """One turn, as seen from one agent. A sub-agent's shares the counts with the outer one."""

    def __init__(
        self,
        limits: Limits,
        sink: Callable[[Event], None] | None = None,
        *,
        outer: Turn | None = None,
        agent: str = "",
    ) -> None:
        """Begin.

        Args:
            limits: What it may take.
            sink: Who is told what happens.
            outer: The turn in which a sub-agent works.
            agent: The sub-agent's name.
        """
        self.limits = limits
        self.agent = f"{outer.agent}/{agent}" if outer is not None and outer.agent else agent
        self.depth: int = outer.depth + 1 if outer is not None else 0
        self.usage: RunUsage = outer.usage if outer is not None else RunUsage()
        self.sink = outer.sink if outer is not None else sink
        self.tools: list[str] = outer.tools if outer is not None else []
        self.skills: list[str] = outer.skills if outer is not None else []
        self.notes: list[str] = []
        """What this agent was told of changes, to see later whether it is in its conversation."""
        self.waiting = ""
        """How many skills wait for trust, in a line for the report."""
        self.loading = asyncio.Lock()
        """Skills are loaded one at a time: of two calls the first has the text."""
        self._started = time.monotonic()

    def note(self, text: str) -> str:
        """Remember what a text tells of changes."""
        self.notes += news_in(text)
        return text

    def tell(self, event: Event) -> None:
        """Hand an event to whoever listens."""
        if self.sink is not None:
            self.sink(event)

    def may_call(self, tool: str) -> bool:
        """Count a call; False when it is one too many."""
        most = self.limits.tool_calls
        if most is not None and len(self.tools) >= most:
            return False
        self.tools.append(f"{self.agent}/{tool}" if self.agent else tool)
        return True

    def loaded(self, skill: str) -> None:
        """Count a skill's text."""
        if skill not in self.skills:
            self.skills.append(skill)

    def reached(self) -> str:
        """Which limit on requests, tokens or cost was met; empty when none was."""
        most, usage = self.limits, self.usage
        if most.cost is not None and usage.cost is not None and usage.cost > most.cost:
            return say("The turn cost more than {most} dollars", most=f"{most.cost:g}")
        if most.total_tokens is not None and usage.total_tokens > most.total_tokens:
            return say("The turn took more than {most} tokens", most=f"{most.total_tokens:,}")
        if most.input_tokens is not None and usage.input_tokens > most.input_tokens:
            return say("The turn sent more than {most} tokens", most=f"{most.input_tokens:,}")
        if most.output_tokens is not None and usage.output_tokens > most.output_tokens:
            return say("The model wrote more than {most} tokens", most=f"{most.output_tokens:,}")
        if most.requests is not None and usage.requests >= most.requests:
            if most.requests == 1:
                return say("The turn made its only request")
            return say("The turn made all {most} requests it may", most=f"{most.requests:,}")
        return ""

    def report(self, stopped: str = "") -> TurnReport:
        """What it took so far."""
        usage = self.usage
        notes = (self.waiting,) if self.waiting else ()
        if self.limits.cost is not None and usage.cost is None and usage.requests:
            unknown = say("The price of the model is not known: the limit on the cost did not hold")
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
