"""Does the suite notice? Engines that are broken on purpose: each is caught, by every case."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Budget, GoalReport, Plan, Retry, StepResult, Usage
from satchel.testing.engine_suite import CASES, Setup, check_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from satchel.goals.model import Answer, Done, Goal, GoalSummary, StepEvent, StepRunner, Work
    from satchel.testing.engine_suite import Case

BY_NAME = {case.name: case for case in CASES}


def test_there_are_enough_cases_and_each_says_what_it_proves():
    assert len(CASES) >= 40
    assert len(BY_NAME) == len(CASES)
    for case in CASES:
        assert case.proves.endswith("."), case.name
        assert "\n" not in case.proves, case.name


def _failures(open_engine: Callable[[StepRunner], Any], *cases: Case) -> set[str]:
    setup = Setup(open_engine, frozenset(("keeps", "shares", "goes-on")), patience=0.3)
    outcomes = asyncio.run(check_engine(setup, cases))
    assert len(outcomes) == len(cases)
    return {outcome.case.name for outcome in outcomes if outcome.error}


# --- an engine that does nothing and says yes ---------------------------------------------


class Nodding:
    """Every goal is done at once, whatever it is; nobody is ever refused."""

    name = "nodding"
    durable = False

    def __init__(self, runner: StepRunner) -> None:
        self.artefacts = None
        self.plans: dict[str, Plan] = {}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc: object):
        pass

    async def report(self, goal_id: str) -> GoalReport:
        plan = self.plans.get(goal_id, Plan("", ()))
        steps = {step.id: StepResult(step.id, "done") for step in plan.steps}
        return GoalReport(goal_id, "done", plan, steps, self.name)

    async def submit(self, goal: Goal) -> GoalReport:
        self.plans[goal.id] = goal.plan
        return await self.report(goal.id)

    async def wait(self, goal_id: str, *_: Any) -> GoalReport:
        return await self.report(goal_id)

    async def list(self, **which: Any) -> list[GoalSummary]:
        return []

    async def answer(self, *what: Any) -> None:
        pass

    async def cancel(self, goal_id: str) -> None:
        pass

    async def retry(self, goal_id: str, **how: Any) -> GoalReport:
        return await self.report(goal_id)

    async def resume(self, goal_id: str) -> GoalReport:
        return await self.report(goal_id)

    async def forget(self, goal_id: str) -> None:
        pass

    async def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        for event in ():
            yield event


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_case_passes_on_an_engine_that_does_nothing(case: Case):
    assert _failures(Nodding, case) == {case.name}


# --- engines with one fault ----------------------------------------------------------------


class Meddling:
    """Somebody between an engine and its runner."""

    def __init__(self, runner: StepRunner) -> None:
        self.runner = runner
        self.before: Any = None

    async def run(self, work: Work) -> Done:
        return await self.runner.run(work)


class Twice(Meddling):
    async def run(self, work: Work) -> Done:
        await self.runner.run(work)
        return await self.runner.run(work)


class Swapped(Meddling):
    """Two outputs that come close together are exchanged, as after a replay in another order."""

    async def run(self, work: Work) -> Done:
        done = await self.runner.run(work)
        before, self.before = self.before, done.output
        return done._replace(output=done.output if before is None else before)


class FreshKeys(Meddling):
    async def run(self, work: Work) -> Done:
        return await self.runner.run(work._replace(key=str(random.random())))


class OldKeys(Meddling):
    async def run(self, work: Work) -> Done:
        return await self.runner.run(work._replace(key=work.key.rpartition(":")[0] + ":1"))


class ReadAgain(Meddling):
    async def run(self, work: Work) -> Done:
        prompt = work.prompt.replace("{{inputs.key}}", "hidden")
        return await self.runner.run(work._replace(prompt=prompt))


class Shortened(Meddling):
    async def run(self, work: Work) -> Done:
        return await self.runner.run(work._replace(prompt=work.prompt[:65_536]))


class OnlyAscii(Meddling):
    async def run(self, work: Work) -> Done:
        done = await self.runner.run(work)
        if isinstance(done.output, str):
            return done._replace(output=done.output.encode("ascii", "replace").decode())
        return done


class OnlyText(Meddling):
    async def run(self, work: Work) -> Done:
        done = await self.runner.run(work)
        return done._replace(output=str(done.output))


class DeafToCancelling(Meddling):
    async def run(self, work: Work) -> Done:
        return await asyncio.shield(asyncio.ensure_future(self.runner.run(work)))


class NoUsage(Meddling):
    async def run(self, work: Work) -> Done:
        return (await self.runner.run(work))._replace(usage=Usage())


def with_runner(meddling: type[Meddling]) -> Callable[[StepRunner], Any]:
    return lambda runner: LocalEngine(meddling(runner))


def with_plan(change: Callable[[Plan], Plan]) -> Callable[[StepRunner], Any]:
    class Changing(LocalEngine):
        async def submit(self, goal: Goal) -> GoalReport:
            return await super().submit(goal._replace(plan=change(goal.plan)))

    return Changing


def each_step(plan: Plan, **fields: Any) -> Plan:
    return plan._replace(steps=tuple(step._replace(**fields) for step in plan.steps))


class LosesAnswers(LocalEngine):
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        if (await self.report(goal_id)).steps[step].state == "done":
            await super().answer(goal_id, step, answer)


class HearsOneAnswer(LocalEngine):
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        report = await self.report(goal_id)
        if report.state == "asking" and step not in {"ask1", "one"}:
            await super().answer(goal_id, step, answer)


class TakesEveryAnswer(LocalEngine):
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        if (await self.report(goal_id)).state == "asking":
            await super().answer(goal_id, step, answer)


class NeverCancels(LocalEngine):
    async def cancel(self, goal_id: str) -> None:
        await self.report(goal_id)


class TakesEveryPlan(LocalEngine):
    async def submit(self, goal: Goal) -> GoalReport:
        known = await self.list(limit=1000)
        if goal.id in {one.id for one in known}:
            return await self.report(goal.id)
        return await super().submit(goal)


class ForgetsResults(LocalEngine):
    async def retry(self, goal_id: str, *, from_step: str = "", plan: Plan | None = None):
        report = await self.report(goal_id)
        plan = plan or report.plan
        changed = each_step(plan, title=f"again {report.revision}")
        return await super().retry(goal_id, from_step=from_step, plan=changed)


class IgnoresNewPlans(LocalEngine):
    async def retry(self, goal_id: str, *, from_step: str = "", plan: Plan | None = None):
        return await super().retry(goal_id, from_step=from_step)


class OldestFirst(LocalEngine):
    async def list(self, **which: Any) -> list[GoalSummary]:
        return (await super().list(**which))[::-1]


class TellsBackwards(LocalEngine):
    async def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        for event in [event async for event in super().watch(goal_id)][::-1]:
            yield event


class TellsTwice(LocalEngine):
    async def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        async for event in super().watch(goal_id):
            yield event
            yield event


class SubmitsSlowly(LocalEngine):
    async def submit(self, goal: Goal) -> GoalReport:
        await super().submit(goal)
        return await self.wait(goal.id, 1)


class NeverForgets(LocalEngine):
    async def forget(self, goal_id: str) -> None:
        if (await self.report(goal_id)).state not in {"done", "failed", "partial", "cancelled"}:
            await super().forget(goal_id)


class ForgetsEverything(LocalEngine):
    async def forget(self, goal_id: str) -> None:
        await self.cancel(goal_id)
        await super().forget(goal_id)


class ForgetsOutputsOfAll(LocalEngine):
    async def forget(self, goal_id: str) -> None:
        await super().forget(goal_id)
        for one in await self.list(limit=1000):
            await self.artefacts.forget(one.id)


class KeepsOutputs(LocalEngine):
    async def forget(self, goal_id: str) -> None:
        del self._shelf.here[(await self.report(goal_id)).id]


class LatestChangeFirst(LocalEngine):
    async def list(self, **which: Any) -> list[GoalSummary]:
        found = await super().list(**{**which, "limit": 1000})
        order = list(self._shelf.here)[::-1]  # who ended last is last in it
        return sorted(found, key=lambda one: order.index(one.id))[: which.get("limit", 50)]


class ForgetsOnClose(LocalEngine):
    """Says that it keeps goals, and has only its memory."""


NO_BUDGET = Budget()
ONE_TRY = Retry(attempts=1)
MUTANTS: dict[str, tuple[Callable[[StepRunner], Any], tuple[str, ...]]] = {
    "runs steps twice": (with_runner(Twice), ("one-step", "plan-of-200", "same-plan-again")),
    "swaps outputs": (
        with_runner(Swapped),
        ("outputs-carry-identity", "fan-of-100", "plan-of-200"),
    ),
    "ignores order": (
        with_plan(lambda plan: each_step(plan, needs=())),
        ("chain-of-three", "plan-in-any-order", "diamond", "slow-and-quick-need", "chain-of-50"),
    ),
    "one step after the other": (
        with_plan(lambda plan: plan._replace(parallel=1)),
        ("diamond", "independent-steps-run-together", "parallel-cap"),
    ),
    "loses answers": (LosesAnswers, ("answer-goes-on", "value-of-answer-flows", "person-refuses")),
    "hears one answer of two": (
        HearsOneAnswer,
        ("two-people-at-once", "answers-at-the-same-moment", "answer-while-another-branch-runs"),
    ),
    "takes every answer": (TakesEveryAnswer, ("other-answer-is-a-conflict",)),
    "never cancels": (NeverCancels, ("cancel-running", "cancel-asking", "cancel-at-once")),
    "is deaf to cancelling": (
        with_runner(DeafToCancelling),
        ("cancel-running", "timeout-per-try", "fail-fast-stops-siblings"),
    ),
    "never tries again": (
        with_plan(lambda plan: each_step(plan._replace(retry=ONE_TRY), retry=None)),
        ("retry-then-success", "retries-exhausted", "mismatch-is-retried", "own-policy-wins"),
    ),
    "tries again at once": (
        with_plan(lambda plan: each_step(plan, retry=Retry(4, 0.0, 1.0, 0.0, 0.0))),
        ("backoff-grows",),
    ),
    "has no timeouts": (
        with_plan(lambda plan: each_step(plan._replace(timeout=None), timeout=None)),
        ("timeout-per-try", "timeout-then-success"),
    ),
    "checks no output": (
        with_plan(lambda plan: each_step(plan, output={})),
        ("mismatch-is-retried", "mismatch-fails"),
    ),
    "has no limit": (
        with_plan(lambda plan: plan._replace(parallel=1000)),
        ("parallel-cap", "one-at-a-time", "cancel-queued-steps"),
    ),
    "has no budget": (
        with_plan(lambda plan: plan._replace(budget=NO_BUDGET)),
        ("budget-of-tokens", "budget-of-money", "budget-of-time"),
    ),
    "counts nothing": (with_runner(NoUsage), ("usage-is-summed", "budget-of-tokens")),
    "goes on after every failure": (
        with_plan(lambda plan: each_step(plan, on_failure="continue")),
        ("fail-fast-stops-siblings", "skip-dependents", "own-meaning-wins", "person-refuses"),
    ),
    "stops after every failure": (
        with_plan(lambda plan: each_step(plan, on_failure="fail_fast")),
        ("continue-runs-dependents", "skip-dependents", "partial-has-reason-and-outputs"),
    ),
    "new key for each try": (with_runner(FreshKeys), ("key-is-the-same-for-every-try",)),
    "same key for each revision": (with_runner(OldKeys), ("key-differs-between-revisions",)),
    "reads outputs as templates": (with_runner(ReadAgain), ("output-is-no-template",)),
    "shortens what is large": (with_runner(Shortened), ("large-output-by-reference",)),
    "knows only ASCII": (with_runner(OnlyAscii), ("unicode-survives",)),
    "knows only text": (with_runner(OnlyText), ("any-json-survives", "fields-flow")),
    "takes every plan": (TakesEveryPlan, ("other-plan-is-a-conflict", "two-plans-at-once")),
    "forgets results": (
        ForgetsResults,
        ("retry-of-failed-only", "retry-from-a-step", "changed-plan-keeps-what-holds"),
    ),
    "ignores new plans": (
        IgnoresNewPlans,
        ("changed-plan-keeps-what-holds", "plan-with-another-step", "changed-input-is-a-change"),
    ),
    "lists the oldest first": (OldestFirst, ("list-by-state-and-order",)),
    "lists the latest change first": (LatestChangeFirst, ("list-by-submission",)),
    "never forgets": (
        NeverForgets,
        ("forget-what-is-over", "forget-and-submit-again", "forget-large-outputs"),
    ),
    "forgets what is not over": (ForgetsEverything, ("forget-what-runs", "forget-what-asks")),
    "forgets the outputs of others": (ForgetsOutputsOfAll, ("forget-large-outputs",)),
    "keeps the outputs of what is gone": (KeepsOutputs, ("forget-large-outputs",)),
    "tells backwards": (TellsBackwards, ("watch-is-causal-and-ends", "watch-of-what-is-over")),
    "tells everything twice": (TellsTwice, ("watch-is-causal-and-ends",)),
    "submits slowly": (SubmitsSlowly, ("submit-comes-back-at-once",)),
    "forgets when it is closed": (
        ForgetsOnClose,
        ("finished-goals-are-kept", "question-survives", "running-goal-goes-on"),
    ),
}


def test_there_are_many_ways_to_be_broken():
    assert len(MUTANTS) >= 6


@pytest.mark.timeout(30)
@pytest.mark.parametrize("fault", MUTANTS)
def test_a_broken_engine_is_noticed(fault: str):
    broken, noticed_by = MUTANTS[fault]
    assert _failures(broken, *(BY_NAME[name] for name in noticed_by)) == set(noticed_by)
