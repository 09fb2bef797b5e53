"""Plans for tests: drawn by hypothesis, and runners that do next to nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from satchel.goals.artifacts import FolderArtifacts
from satchel.goals.model import Done, Plan, Retry, Step
from satchel.goals.step_runner import StepContext, perform

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.model import Answer, StepCall, StepResult, Work

QUICK = Retry(attempts=3, first=0.001, most=0.01)


@st.composite
def dags(draw: st.DrawFn, most: int = 12) -> Plan:
    """A sound plan: steps in any order, each needing some of those before it in a hidden one."""
    count = draw(st.integers(1, most))
    steps: list[Step] = []
    for index in range(count):
        before = [step.id for step in steps]
        needs = draw(st.lists(st.sampled_from(before), unique=True, max_size=4)) if before else []
        said = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
        prompt = "do " + " ".join(f"{{{{steps.{name}.output}}}}" for name in said)
        steps.append(Step(f"s{index}", prompt=prompt, needs=tuple(needs)))
    return Plan("a goal", tuple(draw(st.permutations(steps))), retry=QUICK)


class Runner:
    """Does what the prompt says: `fail`, `die`, `wait`, `flaky`; else gives its id and prompt."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.work: list[Work] = []
        self.cancelled: list[str] = []
        self.running = 0
        self.most = 0

    async def run(self, work: Work) -> Done:
        name = work.step.id
        self.began.append(name)
        self.work.append(work)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if "wait" in work.prompt:
                await asyncio.sleep(30)
            if "fail" in work.prompt or ("flaky" in work.prompt and work.attempt < 3):
                raise ValueError("it failed")
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.running -= 1
        self.ended.append(name)
        return Done(f"{name}<{work.prompt}>")


class Execution:
    """The smallest engine: remembers nothing."""

    def __init__(self, runner: Any = None, answers: dict[str, Answer] | None = None) -> None:
        self.runner = runner or Runner()
        self.bench = StepContext(self.runner, FolderArtifacts("unused"))
        self.answers = answers or {}
        self.recorded: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.clock = 1_000.0

    def now(self) -> float:
        self.clock += 0.001
        return self.clock

    async def record(self, step: Step, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        self.recorded.append(step.id)
        return await body()

    async def perform(self, call: StepCall) -> StepResult:
        return await perform(call, self.bench)

    async def ask(self, step: Step, text: str) -> Answer | None:
        self.asked.append((step.id, text))
        return self.answers.get(step.id)
