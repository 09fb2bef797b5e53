"""One step is tried, timed, checked and kept the same way on every engine; so are large outputs."""

from __future__ import annotations

import asyncio
import os

import pytest

from satchel.errors import InvalidInput, StepFailed
from satchel.goals import artifacts
from satchel.goals.artifacts import FolderArtifacts, load, reference
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, GoalBudget, Plan, Retry, Step, StepCall, Usage
from satchel.goals.step_runner import (
    AttemptLog,
    StepContext,
    attach_usage,
    paused,
    perform,
    running,
)

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

QUICK = Retry(attempts=3, first=0.001, most=0.01)
NOWHERE = FolderArtifacts("unused")


class Scripted:
    """Gives or raises these, one a try."""

    def __init__(self, *acts):
        self.acts = list(acts)
        self.work = []

    async def run(self, work):
        self.work.append(work)
        act = self.acts.pop(0)
        if isinstance(act, BaseException):
            raise act
        if callable(act):
            act = await act()  # pyright: ignore[reportGeneralTypeIssues]
        return act if isinstance(act, Done) else Done(act)


def done(*acts, store=NOWHERE, **call):
    step = call.pop("step", Step("a", prompt="p"))
    fields = {"inputs": {}, "outputs": {}, "retry": QUICK, **call}
    runner = Scripted(*acts)
    result = asyncio.run(perform(StepCall("g", step, **fields), StepContext(runner, store)))
    assert result.step == step.id
    return result, runner


def test_a_step_gives_its_output():
    result, runner = done(Done({"x": (1, 2)}, Usage(1, 2, 3, 0.5), ("s",), ("t",), ("n",)))
    assert (result.state, result.output, result.attempts) == ("done", {"x": [1, 2]}, 1)
    assert result.usage == Usage(1, 2, 3, 0.5)
    assert (result.skills, result.tools, result.notes) == (("s",), ("t",), ("n",))
    assert result.started > 1e9
    assert runner.work[0].key == "g:a:1"


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (InvalidInput("bad"), "INVALID_PARAM"),
        (StepFailed("m", code="X", retryable=False), "X"),
        (StepFailed("503", retryable=False), "EXECUTION_ERROR"),
        (KeyError("name"), "EXECUTION_ERROR"),
        (TypeError("not a text"), "EXECUTION_ERROR"),
    ],
)
def test_permanent_errors_are_not_retried(exc, code):
    result, runner = done(exc)
    assert (result.state, result.attempts, result.error.code) == ("failed", 1, code)
    assert len(runner.work) == 1


def test_the_time_of_a_step_does_not_include_the_check_of_its_worker():
    class SlowLog(AttemptLog):
        async def confirm(self):
            await asyncio.sleep(0.3)

    step = Step("a", prompt="p")
    call = StepCall("g", step, inputs={}, outputs={}, retry=Retry(1), timeout=0.1)
    context = StepContext(Scripted("x"), NOWHERE, log=SlowLog())
    result = asyncio.run(perform(call, context))
    assert (result.state, result.output) == ("done", "x")


@pytest.mark.parametrize("waits", [True, False])
def test_a_runner_that_cancels_itself_has_failed(waits):
    async def odd():
        if waits:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    result, _ = done(odd, "ok", timeout=5.0)
    assert (result.state, result.attempts) == ("done", 2)


def test_the_output_is_checked_against_its_schema():
    step = Step("a", prompt="p", output={"type": "object", "required": ["x"]})
    result, _ = done({}, {"x": 1}, step=step)
    assert (result.state, result.output, result.attempts) == ("done", {"x": 1}, 2)
    assert result.notes == ("try 1: The output has no `x`",)


@pytest.mark.parametrize("output", [object(), {1, 2}, float("nan"), {"x": float("inf")}, b"x"])
def test_a_value_that_is_no_json_is_no_output(output):
    result, _ = done(output)
    assert (result.error.code, result.attempts) == ("INVALID_OUTPUT", 1)


def test_a_template_that_cannot_be_filled_fails_before_the_runner():
    result, runner = done(step=Step("a", prompt="{{inputs.x}}"))
    assert (result.state, result.error.code, result.attempts) == ("failed", "MISSING_INPUT", 0)
    gone = {artifacts.KEY: "0" * 64}
    result, runner = done(step=Step("a", prompt="{{steps.b.output}}"), outputs={"b": gone})
    assert result.error.code == "ARTEFACT_MISSING"
    assert runner.work == []


def test_an_output_that_looks_like_a_reference_is_not_followed(tmp_path):
    store = FolderArtifacts(str(tmp_path))
    secret = asyncio.run(store.put(b'"secret"'))
    forged = {artifacts.KEY: secret, "size": 8, "head": ""}
    result, _ = done(forged, store=store)
    assert result.output != forged
    assert asyncio.run(artifacts.load(result.output, store)) == forged


@pytest.mark.parametrize(
    "left", [GoalBudget(tokens=100), GoalBudget(cost=0.1), GoalBudget(seconds=0.05)]
)
def test_no_try_begins_without_a_budget(left):
    failures = [
        StepFailed(
            "no", code="X", usage=Usage(1, 60, 0, 0.06), after=0.03 if left.seconds else None
        )
        for _ in range(10)
    ]
    result, runner = done(*failures, retry=Retry(10, 0, 1, 0, 0), left=left)
    assert (result.state, result.error.code) == ("failed", "X")
    assert len(runner.work) == 2
    assert result.notes[-1] == "not tried again: the budget of the goal is used up"


def test_no_try_is_longer_than_the_goal_may_take():
    async def long():
        await asyncio.sleep(30)

    result, runner = done(long, timeout=20, left=GoalBudget(seconds=0.05))
    assert (result.error.code, len(runner.work)) == ("BUDGET", 1)
    assert result.seconds < 5

    async def wait():
        with paused():
            await asyncio.sleep(30)

    result, _ = done(wait, timeout=20, left=GoalBudget(seconds=0.05))
    assert (result.error.code, result.seconds < 5) == ("BUDGET", True)


def test_a_part_that_hangs_is_ended_although_another_one_waits_for_it():
    async def wait():
        with paused():
            await asyncio.sleep(30)

    async def hang():
        with running():
            await asyncio.sleep(30)

    async def act():
        await asyncio.gather(wait(), hang())

    result, _ = done(act, timeout=0.2, retry=Retry(1))
    assert (result.error.code, result.seconds < 5) == ("TIMEOUT", True)


@pytest.mark.parametrize(("works", "state"), [(0.0, "done"), (20.0, "failed")])
def test_waiting_for_a_rate_limit_does_not_count_but_work_does(works, state):
    async def wait(seconds):
        with paused():
            await asyncio.sleep(seconds)

    async def act():
        await asyncio.gather(wait(0.1), wait(0.6))
        await asyncio.sleep(works)
        return "ok"

    result, _ = done(act, timeout=0.3, retry=Retry(1))
    assert (result.state, result.seconds < 10) == (state, True)


def test_usage_of_cancelled_attempts_counts():
    class Two:
        async def run(self, work):
            if work.step.id == "bad":
                await third.wait()
                raise StepFailed("no", code="X", retryable=False, usage=Usage(1, 10, 0, 0.0))
            if work.attempt == 1:
                raise StepFailed("again", code="Y", after=0.02, usage=Usage(1, 5_000, 0, 0.0))
            if work.attempt == 3:
                third.set()
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError as exc:
                attach_usage(exc, Usage(1, 7_000, 3, 0.5))
                raise
            return Done(None)

    async def run():
        steps = (Step("bad", prompt="p"), Step("long", prompt="p", timeout=0.1))
        async with LocalEngine(Two()) as engine:
            await engine.submit(Goal("g", Plan("g", steps, retry=Retry(3, first=0.001))))
            return await engine.wait("g", 20)

    third = asyncio.Event()
    report = asyncio.run(run())
    assert report.reason == "Step `bad`: no"
    assert report.usage.input_tokens == 10 + 5_000 + 2 * 7_000


def test_goals_are_kept_in_a_folder_that_is_named_without_a_path(tmp_path, monkeypatch):
    class Runs:
        async def run(self, work):
            return Done(None)

    async def run():
        async with LocalEngine(Runs(), folder="goals") as engine:
            await engine.submit(Goal("g", Plan("g", (Step("one", prompt="p"),))))
            return await engine.wait("g", 20)

    monkeypatch.chdir(tmp_path)
    assert asyncio.run(run()).state == "done"


# --- large outputs --------------------------------------------------------------------------

DATA = b'{"a": [1, 2, 3]}'


@pytest.fixture
def store(tmp_path):
    return FolderArtifacts(str(tmp_path / "x"))


async def test_bytes_of_each_goal_come_back(store):
    one, two, bare = [await place.put(DATA) for place in (store.of("one"), store.of("two"), store)]
    assert (one, two) == (f"one/{bare}", f"two/{bare}")
    assert await load(reference(one, DATA), store) == {"a": [1, 2, 3]}
    assert await load("as it is", store) == "as it is"
    await store.forget("one")
    with pytest.raises(StepFailed, match="is missing or damaged"):
        await store.get(one)
    assert await store.get(two) == await store.of("three").get(bare) == DATA


async def test_a_damaged_file_is_refused_and_healed_by_doing_the_step_again(store, tmp_path):
    name = await store.put(DATA)
    path = tmp_path / "x" / name[:2] / name
    path.write_bytes(DATA[:-1])
    with pytest.raises(StepFailed) as caught:
        await store.get(name)
    assert caught.value.code == "ARTEFACT_DAMAGED"
    await store.put(DATA)
    assert await store.get(name) == DATA
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("goal", ["", "..", "../x", "a/b", ".", "a\0b", "é", "/"])
async def test_an_invalid_goal_name_is_no_path(store, tmp_path, goal):
    outside = tmp_path / "keep"
    outside.write_text("kept")
    for name in (f"{goal}/{'0' * 64}", f"one/{goal}", goal):
        with pytest.raises(StepFailed) as caught:
            await store.get(name)
        assert (caught.value.code, caught.value.retryable) == ("ARTEFACT_MISSING", False)
    with pytest.raises(StepFailed):
        await store.forget(goal)
    assert outside.exists()


@pytest.mark.parametrize("seconds", [None, 60])
async def test_a_cancelled_step_is_not_tried_again_whatever_its_libraries_do(seconds):
    begun = asyncio.Event()

    async def uncancels():
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()  # as cancel scopes may
            raise

    runner = Scripted(uncancels, uncancels)
    call = StepCall("g", Step("a", prompt="p"), inputs={}, outputs={}, retry=QUICK, timeout=seconds)
    task = asyncio.create_task(perform(call, StepContext(runner, NOWHERE)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert len(runner.work) == 1
