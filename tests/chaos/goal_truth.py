"""Compare the status of an engine with what the workers of a test wrote down.

A row of a status is untrue when it contradicts the truth both just before and just after it was
read. The truth are the lines of the workers (`goal_worker`), the moments at which the test started
and killed them, and when it knew that a goal had ended. A step is recorded a moment before its
worker calls the runner, and until its result is stored, so a step may be shown as running until
something proves that it was stored: a later step of the goal, or the end of the goal.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.goal_worker import FAIL, FAIL_ONCE
from satchel.goals.model import FINAL_GOAL_STATES, Goal, Plan, Retry, Step
from satchel.goals.step_runner import MAX_WORKER_DEATHS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.goal_killing import Line, Workers
    from satchel.goals.status import GoalStatus, StepStatus

STEPS = 5
LAST = f"s{STEPS - 1}"
RECORDING_S = 4.0
"""Between the record of a step and the call of the runner, on a busy machine."""
LONGEST_STEP_S = 60.0
"""From its record until the proof that it was stored."""
_INFINITE = float("inf")


class Sample(NamedTuple):
    """A status, and when it was asked for and received."""

    before: float
    after: float
    status: GoalStatus


class Attempt(NamedTuple):
    """One attempt of a step; `end` is infinite when its worker was killed in it."""

    goal: str
    step: str
    process: int
    begin: float
    end: float
    has_failed: bool


def plan_of(number: int) -> Plan:
    """A chain of steps; of some goals a step fails once, or for good, or lacks its skill."""
    prompts = [f"take {random.uniform(0.4, 1.6):.2f} s" for _ in range(STEPS)]
    if number % 5 == 1:
        prompts[2] = FAIL_ONCE
    if number % 9 == 4:
        prompts[3] = FAIL
    steps = [
        Step(f"s{n}", prompt=prompt, needs=(f"s{n - 1}",) if n else ())
        for n, prompt in enumerate(prompts)
    ]
    if lacks_skill(number):
        steps[0] = Step("s0", "skill", skill="missing", prompt="Do it")
    return Plan("Survive", tuple(steps), retry=Retry(2, 0.4, jitter=0.0))


def lacks_skill(number: int) -> bool:
    return number % 25 == 7


class Scene:
    """Goals that run with faults while their status is read."""

    def __init__(self, client: Any, workers: Workers, goals: int) -> None:
        self.client = client
        self.workers = workers
        self.at_once = goals
        self.submitted: dict[str, tuple[float, float]] = {}
        """Goal -> when its submission began, and was over."""
        self.ended: dict[str, tuple[float, str]] = {}
        """Goal -> when its end was known, and its state."""
        self.lacking: set[str] = set()
        self.started: dict[int, float] = {}
        self.gone: dict[int, float] = {}
        """When a killed process did not exist any more; on a busy machine that takes a while."""
        self.samples: list[Sample] = []
        self._waits: set[asyncio.Task[None]] = set()

    async def run(self, samples: int, worker_count: int, seconds_between_kills: float) -> None:
        """Read the status so often; kill workers, and keep so many goals open."""
        for _ in range(worker_count):
            self._start_worker()
        faults = asyncio.create_task(self._kill_again_and_again(seconds_between_kills))
        try:
            while len(self.samples) < samples:
                await self._submit_missing()
                before = time.time()
                status = await self.client.status()
                self.samples.append(Sample(before, time.time(), status))
                await asyncio.sleep(random.uniform(0, 0.1))
        finally:
            faults.cancel()
            for wait in self._waits:
                wait.cancel()

    def _start_worker(self) -> None:
        now = time.time()
        self.started[self.workers.start({})] = now

    async def _submit_missing(self) -> None:
        while len(self.submitted) - len(self.ended) < self.at_once:
            number = len(self.submitted)
            name = f"g{number}"
            before = time.time()
            await self.client.submit(Goal(name, plan_of(number)))
            self.submitted[name] = (before, time.time())
            if lacks_skill(number):
                self.lacking.add(name)
            task = asyncio.create_task(self._wait(name))
            self._waits.add(task)
            task.add_done_callback(self._waits.discard)

    async def _wait(self, name: str) -> None:
        report = await self.client.wait(name)
        assert report.state in FINAL_GOAL_STATES
        self.ended[name] = (time.time(), report.state)

    async def _kill_again_and_again(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * seconds)
            victim = random.choice(self.workers.alive)
            self.workers.kill(victim)
            self.gone[victim] = await asyncio.to_thread(_wait_until_gone, victim)
            await asyncio.sleep(random.uniform(0, 1))
            self._start_worker()


class Truth:
    """What was so, by the lines of the workers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.killed = {process: moment for moment, process in scene.workers.killed}
        self.attempts = sorted(_attempts(scene.workers.lines()), key=lambda attempt: attempt.begin)
        self.begins = [attempt.begin for attempt in self.attempts]
        self.by_process: dict[int, list[Attempt]] = {}
        self.by_step: dict[tuple[str, str], list[Attempt]] = {}
        for attempt in self.attempts:
            self.by_process.setdefault(attempt.process, []).append(attempt)
            self.by_step.setdefault((attempt.goal, attempt.step), []).append(attempt)
        self.outcome_ends = sorted(
            attempt.end for attempt in self.attempts if attempt.end < _INFINITE
        )
        done = {goal: self._first_end(goal, "done") for goal in scene.submitted}
        failed = {goal: self._first_end(goal, "failed") for goal in scene.submitted}
        self.may_be_over = {
            "done": sorted(done.values()),
            "failed": sorted(failed.values()),
            "": sorted(min(done[goal], failed[goal]) for goal in done),
        }
        """State -> the moments from which on each goal may be in it; any state when empty."""

    def recent(self, sample: Sample) -> list[Attempt]:
        """The attempts that may matter at a sample: the others were over long before."""
        first = bisect_left(self.begins, sample.before - LONGEST_STEP_S)
        return self.attempts[first : bisect_right(self.begins, sample.after + RECORDING_S)]

    def is_alive_throughout(self, process: int, sample: Sample) -> bool:
        is_started = self.scene.started.get(process, _INFINITE) <= sample.before
        return is_started and self.killed.get(process, _INFINITE) > sample.after

    def is_dead(self, process: int, sample: Sample) -> bool:
        return self.scene.gone.get(process, _INFINITE) <= sample.before

    def is_running_throughout(self, attempt: Attempt, sample: Sample) -> bool:
        is_inside = attempt.begin <= sample.before and attempt.end >= sample.after
        return is_inside and self.is_alive_throughout(attempt.process, sample)

    def is_stored(self, goal: str, step: str, moment: float) -> bool:
        """Whether it is proven that the result of a step was stored at a moment."""
        following = f"s{int(step[1:]) + 1}"
        begins = (attempt.begin for attempt in self.by_step.get((goal, following), ()))
        return min(begins, default=_INFINITE) <= moment or self.end_of(goal)[0] <= moment

    def end_of(self, goal: str) -> tuple[float, str]:
        return self.scene.ended.get(goal, (_INFINITE, ""))

    def may_run(self, goal: str, step: str, process: int, sample: Sample) -> bool:
        """Whether a worker may have had a step at some moment of the sample."""
        if self.is_stored(goal, step, sample.before) or self.is_dead(process, sample):
            return False
        attempts = self.by_step.get((goal, step), ())
        return self.may_be_uncalled(goal, step, process, sample) or any(
            attempt.process == process
            and attempt.begin <= sample.after + RECORDING_S
            and not (attempt.has_failed and attempt.end < sample.before - RECORDING_S)
            for attempt in attempts
        )

    def is_about_to_die(self, process: int, sample: Sample) -> bool:
        """Whether a worker was killed during a sample or so soon after it that a record is all."""
        death = self.killed.get(process, _INFINITE)
        return sample.before <= death <= sample.after + RECORDING_S

    def may_be_uncalled(self, goal: str, step: str, process: int, sample: Sample) -> bool:
        """Whether a worker may have recorded a step and was killed before it called the runner."""
        if not self.is_about_to_die(process, sample):
            return False
        first, last = self.span_of(goal, step)
        if not first <= self.killed[process] <= last:
            return False
        attempts = self.by_step.get((goal, step), ())
        return not any(self.is_running_throughout(attempt, sample) for attempt in attempts)

    def span_of(self, goal: str, step: str) -> tuple[float, float]:
        """From when on a step could begin, and until when it had no result."""
        former = self.by_step.get((goal, f"s{int(step[1:]) - 1}"), ())
        ends = [attempt.end for attempt in former if not attempt.has_failed]
        first = min(ends, default=_INFINITE) if step != "s0" else self.scene.submitted[goal][0]
        following = self.by_step.get((goal, f"s{int(step[1:]) + 1}"), ())
        return first, min((attempt.begin for attempt in following), default=_INFINITE)

    def possible_deaths(self, goal: str, step: str, until: float) -> list[float]:
        """When workers were killed that may have had a step: it could begin, and had no result.

        A worker may die between the record of a step and the call of the runner.
        """
        first, last = self.span_of(goal, step)
        return sorted(
            moment for moment in self.killed.values() if first <= moment <= min(last, until)
        )

    def open_goals(self, sample: Sample) -> list[str]:
        """The goals that may have been open at some moment of a sample."""
        return [
            goal
            for goal, (asked, _) in self.scene.submitted.items()
            if asked <= sample.after and self.end_of(goal)[0] >= sample.before
        ]

    # Rows

    def untrue_rows(self, sample: Sample) -> Iterator[str]:
        """The rows of a status that contradict the truth."""
        status = sample.status
        yield from self._untrue_oldest(sample)
        yield from self._untrue_workers(sample)
        for step in status.stuck:
            if self._is_untrue_stuck(step, sample):
                yield f"stuck {step}"
        waiting = {step.goal for step in status.waiting}
        yield from (f"waiting {goal}" for goal in waiting - self.scene.lacking)
        yield from self._untrue_counts(sample)

    def _untrue_oldest(self, sample: Sample) -> Iterator[str]:
        oldest = sample.status.oldest
        running = [
            attempt
            for attempt in self.recent(sample)
            if self.is_running_throughout(attempt, sample)
        ]
        if oldest is None:
            if running:
                yield f"no oldest step, but {running[0]}"
            return
        process = _process(oldest.worker)
        if not self.may_run(oldest.goal, oldest.step, process, sample):
            yield f"oldest {oldest}"
        older = [attempt for attempt in running if attempt.begin < oldest.since]
        if older:
            yield f"oldest {oldest}, but {older[0]}"

    def _untrue_workers(self, sample: Sample) -> Iterator[str]:
        rows = {_process(worker.name): worker for worker in sample.status.workers}
        recent = self.recent(sample)
        for process, worker in rows.items():
            if worker.is_alive and self.is_dead(process, sample):
                yield f"alive {worker}"
            if not worker.is_alive and self.is_alive_throughout(process, sample):
                yield f"dead {worker}"
            attempts = [attempt for attempt in recent if attempt.process == process]
            least = sum(self.is_running_throughout(attempt, sample) for attempt in attempts)
            steps = {(attempt.goal, attempt.step) for attempt in attempts}
            if self.is_about_to_die(process, sample):
                goals = self.open_goals(sample)
                steps.update((goal, f"s{number}") for goal in goals for number in range(STEPS))
            most = sum(self.may_run(*step, process, sample) for step in steps)
            if worker.is_alive and not least <= (worker.steps or 0) <= most:
                yield f"{least} to {most} steps: {worker}"
        for process, attempts in self.by_process.items():
            has_begun = attempts[0].begin <= sample.before
            if has_begun and process not in rows and self.is_alive_throughout(process, sample):
                yield f"no worker {process}"

    def _is_untrue_stuck(self, step: StepStatus, sample: Sample) -> bool:
        if self.is_stored(step.goal, step.step, sample.before):
            return True
        attempts = self.by_step.get((step.goal, step.step), ())
        if "is gone" in step.reason:
            process = _process(step.worker)
            again = [attempt.begin for attempt in attempts if attempt.process != process]
            death = self.killed.get(process, _INFINITE)
            return death > sample.after or any(
                death < begin < sample.before - RECORDING_S for begin in again
            )
        count = int(step.reason.partition("died ")[2].split()[0])
        return len(self.possible_deaths(step.goal, step.step, sample.after)) < count

    def _untrue_counts(self, sample: Sample) -> Iterator[str]:
        status, scene = sample.status, self.scene
        goals = status.goals
        submitted = [times for times in scene.submitted.values() if times[1] <= sample.before]
        asked = [times for times in scene.submitted.values() if times[0] <= sample.after]
        for state in ("done", "failed"):
            known = sum(
                moment <= sample.before and ended == state for moment, ended in scene.ended.values()
            )
            most = bisect_right(self.may_be_over[state], sample.after)
            if not known <= goals[state] <= most:
                yield f"{known} to {most} {state}: {goals[state]}"
        known = sum(moment <= sample.before for moment, _ in scene.ended.values())
        over = bisect_right(self.may_be_over[""], sample.after)
        least, most = len(submitted) - over, len(asked) - known
        if not least <= status.open <= most:
            yield f"{least} to {most} open: {status.open}"
        running = {
            attempt.goal
            for attempt in self.recent(sample)
            if self.is_running_throughout(attempt, sample)
        }
        if goals["running"] < len(running):
            yield f"{len(running)} running: {goals['running']}"
        if goals["queued"] > most - len(running):
            yield f"at most {most - len(running)} queued: {goals['queued']}"
        used = bisect_right(self.outcome_ends, sample.after)
        if status.usage.requests > used:
            yield f"at most {used} requests: {status.usage.requests}"

    def _first_end(self, goal: str, state: str) -> float:
        """From when on a goal may have ended in a state: when its attempts allow it."""
        step, has_failed = (LAST, False) if state == "done" else ("s3", True)
        attempts = self.by_step.get((goal, step), ())
        ends = [attempt.end for attempt in attempts if attempt.has_failed == has_failed]
        if state == "failed":
            ends.append(self._lost_too_often(goal))
        return min(ends, default=_INFINITE)

    def _lost_too_often(self, goal: str) -> float:
        """When so many workers may have died with a step that it fails."""
        moments: list[float] = []
        for step in range(STEPS):
            deaths = self.possible_deaths(goal, f"s{step}", self.end_of(goal)[0])
            moments += deaths[MAX_WORKER_DEATHS - 1 : MAX_WORKER_DEATHS]
        return min(moments, default=_INFINITE)


def _wait_until_gone(process: int) -> float:
    while os.path.exists(f"/proc/{process}"):
        time.sleep(0.005)
    return time.time()


def row_count(status: GoalStatus) -> int:
    """How many rows of a status are compared: steps, workers, and numbers."""
    return len(status.workers) + len(status.stuck) + len(status.waiting) + 7


def _process(worker: str) -> int:
    return int(worker.partition("@")[0])


def _attempts(lines: list[Line]) -> Iterator[Attempt]:
    ends = {(line.goal, line.step, line.run): line for line in lines if line.what != "begin"}
    for line in lines:
        if line.what == "begin":
            end = ends.get((line.goal, line.step, line.run))
            moment = end.at if end else _INFINITE
            has_failed = end is not None and end.what == "fail"
            yield Attempt(line.goal, line.step, line.process, line.at, moment, has_failed)
