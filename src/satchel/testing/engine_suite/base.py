"""What is a case of the suite, what does it work with, and how does it say what is off?"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from satchel.goals.model import Goal, Plan, Retry, Step
from satchel.testing.engine_suite.script import Script, Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from satchel.errors import SatchelError
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, GoalState, StepRunner
    from satchel.testing.engine_suite.script import Act

Trait = Literal["keeps", "shares", "goes-on"]
"""What not every engine can do.

`keeps`: goals are still there when it is closed and opened again. `shares`: it may be open twice
at the same place. `goes-on`: a goal that ran when it was closed is finished by the next one.
"""

QUICK = Retry(attempts=3, first=0.01, factor=2.0, most=0.1, jitter=0.0)
"""Three tries without much waiting."""
_CLOCKS = 2.0
"""Seconds by which the clock of a server may differ from ours, or that it does not count."""


class CaseFailed(AssertionError):
    """The engine does not do what it must."""


class Setup(NamedTuple):
    """An engine, as the suite gets it."""

    open: Callable[[StepRunner], AbstractAsyncContextManager[Engine]]
    """Opens it with a worker in this process that gives steps to this runner; again at the same
    place, where it has one, each time."""
    traits: frozenset[Trait] = frozenset()
    client: Callable[[], AbstractAsyncContextManager[Engine]] | None = None
    """Opens a second one at the same place, without a worker; `open` does it when None."""
    patience: float = 20.0
    """Seconds after which a case waits no more. Nothing takes so long that works."""


class Bench:
    """What a case gets: an open engine, goals with names of their own, and scripted work."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.patience = setup.patience
        self._stage = Stage()
        self._mark = os.urandom(4).hex()
        self._count = 0
        self._held: AbstractAsyncContextManager[Engine] | None = None
        self._engine: Engine | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the engine, unless it is."""
        if self._held is None:
            held = self.setup.open(self._stage)
            self._engine = await held.__aenter__()
            self._held = held

    async def close(self) -> None:
        """Close the engine, if it is open."""
        held, self._held, self._engine = self._held, None, None
        if held is not None:
            await held.__aexit__(None, None, None)

    @property
    def engine(self) -> Engine:
        """The engine that is open."""
        if self._engine is None:
            raise RuntimeError("A bench is used in `async with`")
        return self._engine

    async def reopen(self) -> Engine:
        """Close the engine, and open it again at the same place."""
        await self.close()
        await self.open()
        return self.engine

    def another(self) -> AbstractAsyncContextManager[Engine]:
        """A second engine at the same place."""
        return self.setup.client() if self.setup.client else self.setup.open(self._stage)

    def goal(
        self,
        *steps: Step,
        work: Mapping[str, Act] | None = None,
        length: int = 0,
        **fields: Any,
    ) -> Goal:
        """A goal with a name that no other has.

        Args:
            steps: The plan's.
            work: Step id -> what it does; a step that is not in it gives its own name.
            length: Of its name, at least.
            fields: Further fields of the plan.
        """
        self._count += 1
        name = f"suite-{self._mark}-{self._count}"
        goal = Goal(f"{name:_<{length}}", self.plan(*steps, **fields))
        self._stage.scripts[goal.id] = Script(dict(work or {}))
        return goal

    def plan(self, *steps: Step, **fields: Any) -> Plan:
        """A plan that is tried quickly, and never hangs."""
        all_fields: dict[str, Any] = {
            "goal": "Check an engine",
            "retry": QUICK,
            "timeout": self.patience,
            **fields,
        }
        return Plan(steps=steps, **all_fields)

    def script(self, goal: Goal) -> Script:
        """What was done for a goal."""
        return self._stage.scripts[goal.id]

    async def run(self, goal: Goal, state: GoalState = "done") -> GoalReport:
        """Submit a goal and wait until it is in this state."""
        await self.engine.submit(goal)
        return await self.finish(goal, state)

    async def finish(self, goal: Goal, state: GoalState = "done") -> GoalReport:
        """Wait for a goal that was submitted, and look at the state it comes to."""
        report = await self.engine.wait(goal.id, self.patience)
        if report.state != state:
            raise CaseFailed(f"the goal is `{report.state}`, not `{state}`: {_told(report)}")
        same(list(report.steps), [step.id for step in report.plan.steps], "the report's steps")
        for name, result in report.steps.items():
            same(result.step, name, "the step that a result names")
        return report

    async def answered(self, goal: Goal, step: str, answer: Any) -> None:
        """Wait until a step asks, then answer."""
        await self.in_state(goal, step, "asking")
        await self.engine.answer(goal.id, step, answer)

    async def in_state(self, goal: Goal, step: str, *states: str) -> None:
        """Wait until the report shows a step in one of these states."""

        async def there() -> bool:
            return (await self.engine.report(goal.id)).steps[step].state in states

        await self.until(there, f"`{step}` is {' or '.join(states)}")

    async def until(self, held: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Wait until something holds."""
        try:
            async with asyncio.timeout(self.patience):
                while True:
                    found = held()
                    if await found if inspect.isawaitable(found) else found:
                        return
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise CaseFailed(f"never came: {what}") from None

    async def began(self, goal: Goal, *steps: str) -> None:
        """Wait until these steps are at work."""
        script = self.script(goal)
        await self.until(
            lambda: all(script.times(step) for step in steps), f"{', '.join(steps)} at work"
        )


class Case(NamedTuple):
    """One thing that an engine must do."""

    name: str
    proves: str
    """In one sentence."""
    run: Callable[[Bench], Awaitable[None]]
    """Ends, or raises `CaseFailed`."""
    needs: frozenset[Trait] = frozenset()
    """Only for engines that can do this."""


def case(*needs: Trait) -> Callable[[Callable[[Bench], Awaitable[None]]], Case]:
    """Make a case of a function: its name, and its docstring as what it proves."""

    def make(run: Callable[[Bench], Awaitable[None]]) -> Case:
        name = getattr(run, "__name__", "").replace("_", "-")
        return Case(name, inspect.getdoc(run) or "", run, frozenset(needs))

    return make


def work(name: str, *needs: str, prompt: str = "", **fields: Any) -> Step:
    """A step that the script does."""
    return Step(name, "llm", prompt=prompt or f"Do {name}", needs=needs, **fields)


def person(name: str, *needs: str, prompt: str = "May it go on?", **fields: Any) -> Step:
    """A step that a person does."""
    return Step(name, "human", prompt=prompt, needs=needs, **fields)


def expect(held: object, what: str) -> None:
    """Say what is off, unless it holds."""
    if not held:
        raise CaseFailed(what)


def same(found: Any, wanted: Any, what: str) -> None:
    """Say what is off, unless the two are equal."""
    if found != wanted:
        raise CaseFailed(f"{what}: {_short(found)} instead of {_short(wanted)}")


def states(report: GoalReport, **wanted: str) -> None:
    """Compare the states of some steps."""
    same({name: report.steps[name].state for name in wanted}, wanted, "the states of the steps")


def ended_after(report: GoalReport, step: str) -> None:
    """A goal is over after its last step, and not in the future; an engine need not know when."""
    if not report.ended:
        return
    result = report.steps[step]
    over = result.started + result.seconds - _CLOCKS <= report.ended <= time.time() + _CLOCKS
    expect(over, f"it was over at {report.ended}, with its last step at {result.started}")


async def refused(kind: type[SatchelError], doing: Awaitable[Any], what: str) -> None:
    """Say what is off, unless it raises this error."""
    try:
        await doing
    except kind:
        return
    except Exception as exc:
        raise CaseFailed(f"{what}: {exc!r} instead of `{kind.__name__}`") from exc
    raise CaseFailed(f"{what}: no `{kind.__name__}`")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"


def _told(report: GoalReport) -> str:
    steps = ", ".join(
        f"{name} {result.state}" + (f" ({result.error.message})" if result.error else "")
        for name, result in list(report.steps.items())[:20]
    )
    return f"{report.reason or 'no reason'}; {steps}"
