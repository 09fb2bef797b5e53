"""Who does the work of a case? A script instead of a model, and it writes down what it did.

An engine may work in another thread with a loop of its own: so a `Gate` is looked at again and
again instead of waking somebody, and what is written down is only ever appended.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import StepFailed
from satchel.goals.model import Done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.model import Work

    Act = Callable[[Work], Awaitable[Any]]

Kind = Literal["began", "ended", "broke", "cancelled"]


class Moment(NamedTuple):
    """Something that the script did."""

    kind: Kind
    work: Work
    at: float
    """Seconds of a clock that only goes forward."""


class Gate:
    """Holds work back until it is opened."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> None:
        """Let everybody through, from now on."""
        self.is_open = True

    async def passed(self) -> None:
        """Wait until it is open."""
        while not self.is_open:  # noqa: ASYNC110 - it may be another loop's
            await asyncio.sleep(0.005)


class Script:
    """What the steps of one goal do, and what was done."""

    def __init__(self, acts: dict[str, Act]) -> None:
        self.acts = acts
        """Step id -> what it does; may be changed between revisions."""
        self.moments: list[Moment] = []

    def times(self, step: str, kind: Kind = "began") -> int:
        """How often something was done."""
        return sum(one.kind == kind and one.work.step.id == step for one in self.moments)

    def works(self, step: str) -> list[Work]:
        """Every try of a step, in order."""
        return [
            one.work for one in self.moments if one.kind == "began" and one.work.step.id == step
        ]

    def work(self, step: str) -> Work:
        """The last try of a step."""
        found = self.works(step)
        if not found:
            raise AssertionError(f"the step `{step}` was never done")
        return found[-1]

    def place(self, kind: Kind, step: str) -> int:
        """When something last happened, as a place in the order of everything; -1 for never."""
        for place in range(len(self.moments) - 1, -1, -1):
            if self.moments[place].kind == kind and self.moments[place].work.step.id == step:
                return place
        return -1

    def clock(self, kind: Kind, step: str) -> list[float]:
        """When something happened, in seconds."""
        return [one.at for one in self.moments if one.kind == kind and one.work.step.id == step]

    def most_at_once(self) -> int:
        """How many steps were at work at the same time, at most."""
        now = most = 0
        for one in list(self.moments):
            now += 1 if one.kind == "began" else -1
            most = max(most, now)
        return most

    def counts(self) -> dict[str, int]:
        """Step id -> how often it was begun."""
        found: dict[str, int] = {}
        for one in self.moments:
            if one.kind == "began":
                found[one.work.step.id] = found.get(one.work.step.id, 0) + 1
        return found


class Stage:
    """A `StepRunner` that gives each goal's work to its own script."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}

    async def run(self, work: Work) -> Done:
        """Do it as the script says, and write down how it went."""
        script = self.scripts.get(work.goal)
        if script is None:
            raise StepFailed("UNKNOWN_GOAL", f"No case has a goal `{work.goal}`", retryable=False)
        script.moments.append(Moment("began", work, time.perf_counter()))
        kind: Kind = "cancelled"
        try:
            found = await script.acts.get(work.step.id, own_name)(work)
            kind = "ended"
        except Exception:
            kind = "broke"
            raise
        finally:
            script.moments.append(Moment(kind, work, time.perf_counter()))
        return found if isinstance(found, Done) else Done(found)


def name_of(goal: str, step: str) -> str:
    """What a step gives when the script says nothing: nobody else gives the same."""
    return f"{step} of {goal}"


async def own_name(work: Work) -> str:
    """Give the step's own name, so that a swap of outputs shows; not before others had a turn."""
    await asyncio.sleep(0)
    return name_of(work.goal, work.step.id)


def gives(output: Any) -> Act:
    """It gives this."""

    async def act(_: Work) -> Any:
        return output

    return act


def holds(gate: Gate, output: Any = "held") -> Act:
    """It waits at a gate, then gives this."""

    async def act(_: Work) -> Any:
        await gate.passed()
        return output

    return act


def sleeps(seconds: float, output: Any = "slept") -> Act:
    """It takes a while."""

    async def act(_: Work) -> Any:
        await asyncio.sleep(seconds)
        return output

    return act


def fails(
    times: int = 1_000_000,
    error: Callable[[], Exception] = lambda: StepFailed("BUSY", "The server is busy"),
    then: Any = "at last",
) -> Act:
    """Its first tries fail, then it gives this."""

    async def act(work: Work) -> Any:
        if work.attempt <= times:
            raise error()
        return then

    return act


def fails_until(gate: Gate, then: Any = "at last") -> Act:
    """It fails for good as long as a gate is closed, then it gives this."""

    async def act(_: Work) -> Any:
        if not gate.is_open:
            raise StepFailed("BROKEN", "It is broken for now", retryable=False)
        return then

    return act
