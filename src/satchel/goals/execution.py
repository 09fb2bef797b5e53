"""What do `execute` and `perform` need of an engine? Two small things that each engine brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from satchel.goals.model import StepResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.artefacts import Artefacts
    from satchel.goals.model import Answer, Step, StepCall, StepRunner


class Workbench(NamedTuple):
    """What a worker needs to do a step."""

    runner: StepRunner
    artefacts: Artefacts
    large: int = 32_768
    """Outputs of more bytes than this are kept as artefacts."""


class Progress:
    """What can be seen of a run from outside, while it goes on."""

    __slots__ = ("results", "running", "tries")

    def __init__(self) -> None:
        self.results: dict[str, StepResult] = {}
        """Of steps that ended or ask."""
        self.running: dict[str, float] = {}
        """Step -> since when it is at work."""
        self.tries: dict[str, tuple[str, ...]] = {}
        """Step -> notes about its tries that failed, where the engine hears of them."""

    def seen(self) -> dict[str, StepResult]:
        """The results, with those of steps that are at work."""
        return self.results | {
            name: StepResult(name, "running", started=since, notes=self.tries.get(name, ()))
            for name, since in self.running.items()
        }


class Execution(Protocol):
    """One run of a goal, as `execute` sees the engine."""

    def now(self) -> float:
        """Seconds since the epoch; the same in a replay where the engine replays."""
        ...

    def record(
        self, step: Step, body: Callable[[], Awaitable[StepResult]]
    ) -> Awaitable[StepResult]:
        """Run the body once and remember what it gave; in a replay give that, and do not run it.

        It is called for every step in the order of the plan's `order`, before any of them waits
        for another: the body waits for what the step needs. So the order of calls never depends
        on who finished first.
        """
        ...

    def perform(self, call: StepCall) -> Awaitable[StepResult]:
        """Do one step on a worker: `perform.perform` with that worker's `Workbench`."""
        ...

    def ask(self, step: Step, text: str) -> Awaitable[Answer | None]:
        """A person's word; None when it is not there yet, and the run shall end without it."""
        ...
