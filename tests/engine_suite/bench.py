"""The test bench of a case: an open engine, goals with unique ids, and scripted work.

An engine may work in another thread with a loop of its own: so a `Gate` polls instead of waking a
waiter, and the record of what was done is only ever appended to.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from satchel.errors import StepFailed
from satchel.goals.model import Done, Goal, Plan, Retry, Step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from satchel.errors import SatchelError
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalState, StepRunner, Work

    Act = Callable[[Work], Awaitable[Any]]

Kind = Literal["began", "ended", "broke", "cancelled"]
QUICK = Retry(attempts=3, first=0.01, factor=2.0, most=0.1, jitter=0.0)


class Setup(NamedTuple):
    """An engine, as the suite gets it."""

    open: Callable[[StepRunner], AbstractAsyncContextManager[Engine]]
    """Opens it with a worker in this process, at the same place each time."""
    client: Callable[[], AbstractAsyncContextManager[Engine]] | None = None
    """Opens a second one at the same place, without a worker; `open` does it when None."""
    patience: float = 20.0
    """Seconds after which a case waits no more."""


class Gate:
    """Holds work back until it is opened."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    async def passed(self) -> None:
        while not self.is_open:  # noqa: ASYNC110 - it may be another loop's
            await asyncio.sleep(0.005)


class Script:
    """What the steps of one goal do, and what was done."""

    def __init__(self, acts: dict[str, Act]) -> None:
        self.acts = acts
        self.moments: list[tuple[Kind, Work]] = []

    def times(self, step: str, kind: Kind = "began") -> int:
        return sum(found == kind and work.step.id == step for found, work in self.moments)

    def works(self, step: str) -> list[Work]:
        """Every try of a step, in order."""
        return [work for kind, work in self.moments if kind == "began" and work.step.id == step]

    def work(self, step: str) -> Work:
        """The last try of a step."""
        return self.works(step)[-1]

    def counts(self) -> dict[str, int]:
        """Step id -> how often it was begun."""
        steps = [work.step.id for kind, work in self.moments if kind == "began"]
        return {step: steps.count(step) for step in steps}


class Stage:
    """A `StepRunner` that gives each goal's work to its own script."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.versions: dict[str, str | None] = {}
        """Skill -> its digest in this worker; None when it is missing."""

    def version_of(self, step: Step) -> str | None:
        return self.versions.get(step.skill, "v1")

    async def run(self, work: Work) -> Done:
        script = self.scripts[work.goal]
        script.moments.append(("began", work))
        kind: Kind = "cancelled"
        try:
            found = await script.acts.get(work.step.id, own_name)(work)
            kind = "ended"
        except Exception:
            kind = "broke"
            raise
        finally:
            script.moments.append((kind, work))
        return found if isinstance(found, Done) else Done(found)


class Bench:
    """An engine that stays open for all cases."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.patience = setup.patience
        self._stage = Stage()
        self._mark = os.urandom(4).hex()
        self._count = 0
        self._held: AbstractAsyncContextManager[Engine] | None = None
        self.engine: Engine

    @property
    def versions(self) -> dict[str, str | None]:
        """Skill -> its digest in the worker of this bench; None when it is missing."""
        return self._stage.versions

    async def open(self) -> None:
        """Open the engine, unless it is."""
        if self._held is None:
            held = self.setup.open(self._stage)
            self.engine = await held.__aenter__()
            self._held = held

    async def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.__aexit__(None, None, None)

    async def reopen(self) -> Engine:
        await self.close()
        await self.open()
        return self.engine

    def another(self) -> AbstractAsyncContextManager[Engine]:
        """A second engine at the same place."""
        return self.setup.client() if self.setup.client else self.setup.open(self._stage)

    def goal(self, *steps: Step, work: Mapping[str, Act] | None = None, **fields: Any) -> Goal:
        """A goal with a name that no other has.

        Args:
            steps: The plan's.
            work: Step id -> what it does; a step that is not in it gives its own name.
            fields: Further fields of the plan.
        """
        self._count += 1
        goal = Goal(f"suite-{self._mark}-{self._count}", self.plan(*steps, **fields))
        self._stage.scripts[goal.id] = Script(dict(work or {}))
        return goal

    def expect(self, goal: Goal, **work: Act) -> None:
        """Get ready for a goal that the engine itself makes."""
        self._stage.scripts[goal.id] = Script(work)

    def plan(self, *steps: Step, **fields: Any) -> Plan:
        """A plan that is tried quickly, and never hangs."""
        given: dict[str, Any] = {
            "goal": "Check", "retry": QUICK, "timeout": self.patience, **fields,
        }  # fmt: skip
        return Plan(steps=steps, **given)

    def script(self, goal: Goal) -> Script:
        return self._stage.scripts[goal.id]

    async def run(self, goal: Goal, state: GoalState = "done") -> GoalReport:
        """Submit a goal and wait until it is in this state."""
        await self.engine.submit(goal)
        return await self.finish(goal, state)

    async def finish(self, goal: Goal, state: GoalState = "done") -> GoalReport:
        """Wait for a goal that was submitted, and look at the state it comes to."""
        report = await self.engine.wait(goal.id, self.patience)
        assert report.state == state, f"{report.state}: {report.reason}; {dict(report.steps)}"
        assert list(report.steps) == [step.id for step in report.plan.steps]
        assert [result.step for result in report.steps.values()] == list(report.steps)
        return report

    async def answered(self, goal: Goal, step: str, answer: Any) -> None:
        """Wait until a step asks, then answer."""
        await self.in_state(goal, step, "asking")
        await self.engine.answer(goal.id, step, answer)

    async def in_state(self, goal: Goal, step: str, *states: str) -> None:
        """Wait until the report shows a step in one of these states."""

        async def there() -> bool:
            return (await self.engine.report(goal.id)).steps[step].state in states

        await self.until(there)

    async def until(self, held: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(self.patience):
            while True:
                found = held()
                if await found if inspect.isawaitable(found) else found:
                    return
                await asyncio.sleep(0.01)

    async def began(self, goal: Goal, *steps: str) -> None:
        """Wait until these steps are at work."""
        script = self.script(goal)
        await self.until(lambda: all(script.times(step) for step in steps))


def work(name: str, *needs: str, prompt: str = "", **fields: Any) -> Step:
    """A step that the script does."""
    return Step(name, "llm", prompt=prompt or f"Do {name}", needs=needs, **fields)


def skilled(name: str, skill: str, *needs: str, **fields: Any) -> Step:
    """A step that needs a skill, and that the script does."""
    return Step(name, "skill", prompt=f"Do {name}", skill=skill, needs=needs, **fields)


def person(name: str, *needs: str, prompt: str = "May it go on?", **fields: Any) -> Step:
    """A step that a person does."""
    return Step(name, "human", prompt=prompt, needs=needs, **fields)


def states(report: GoalReport, **wanted: str) -> None:
    """Compare the states of some steps."""
    assert {name: report.steps[name].state for name in wanted} == wanted


async def refused(kind: type[SatchelError], doing: Awaitable[Any]) -> None:
    with pytest.raises(kind):
        await doing


def name_of(goal: str, step: str) -> str:
    """The default output of a step, unique among all steps."""
    return f"{step} of {goal}"


async def own_name(work: Work) -> str:
    await asyncio.sleep(0)
    return name_of(work.goal, work.step.id)


def gives(output: Any) -> Act:
    async def act(_: Work) -> Any:
        return output

    return act


def holds(gate: Gate, error: Exception | None = None) -> Act:
    """It waits at a gate, then fails with this, if anything."""

    async def act(_: Work) -> Any:
        await gate.passed()
        if error is not None:
            raise error
        return "held"

    return act


def fails_until(gate: Gate, error: Exception | None = None) -> Act:
    """It fails for good as long as a gate is closed."""

    async def act(_: Work) -> Any:
        if not gate.is_open:
            raise error or broken()
        return "at last"

    return act


def broken() -> StepFailed:
    return StepFailed("It is broken", code="BROKEN", retryable=False)
