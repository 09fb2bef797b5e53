"""Temporal's own cases: lost and frozen workers, message limits, no worker at all.

What every engine must do is in `tests/goals/test_conformance.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.service import RetryConfig

from satchel.errors import InvalidInput, Refused, ServerFailed, StepFailed
from satchel.goals.engines import temporal
from satchel.goals.engines.temporal import TemporalEngine, connect
from satchel.goals.engines.temporal_workflow import GoalWorkflow
from satchel.goals.model import Answer, Goal, Plan, Retry, Step
from temporal_server import TemporalServer
from temporal_work import Logged, WorkerProcess, moments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


QUICK = Retry(attempts=2, first=0.05)
HISTORY = os.path.join(os.path.dirname(__file__), "temporal_history.json")


@pytest.fixture
def queue() -> str:
    """A queue that no other test's worker uses."""
    return f"queue-{uuid4().hex[:12]}"


def goal(*steps: Step, **fields: Any) -> Goal:
    fields = {"retry": QUICK, **fields}
    return Goal(f"goal-{uuid4().hex[:12]}", Plan("Try Temporal", steps, **fields))


def chain(*prompts: str) -> tuple[Step, ...]:
    """One step after the other."""
    return tuple(
        Step(f"s{n}", prompt=prompt, needs=(f"s{n - 1}",) if n else ())
        for n, prompt in enumerate(prompts)
    )


async def until(held: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not held():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.02)


def began(folder: Path, step: str) -> list[Any]:
    return [one for one in moments(str(folder)) if one.kind == "began" and one.step == step]


@pytest.mark.timeout(90)
async def test_a_killed_workers_step_is_done_by_the_next_and_recorded_ones_are_not(
    temporal_server, queue, tmp_path
):
    async with TemporalEngine(address=temporal_server.address, queue=queue) as engine:
        wanted = goal(*chain("one", "hang first", "three"))
        with WorkerProcess(temporal_server.address, queue, str(tmp_path)) as first:
            await engine.submit(wanted)
            await until(lambda: bool(began(tmp_path, "s1")))
            first.kill()
        with WorkerProcess(temporal_server.address, queue, str(tmp_path)):
            report = await engine.wait(wanted.id, 60)
        assert report.state == "done"
        assert len(began(tmp_path, "s0")) == 1
        assert len(began(tmp_path, "s1")) == 2
        assert len({one.key for one in began(tmp_path, "s1")}) == 1
        assert len(began(tmp_path, "s2")) == 1


@pytest.mark.timeout(120)
async def test_a_worker_that_was_frozen_does_not_begin_what_is_recorded(
    temporal_server, queue, tmp_path
):
    """Attempt one fails, then the worker is frozen before its second try; another one does it."""

    wanted = goal(Step("a", prompt="fail once"), retry=Retry(attempts=3, first=2, jitter=0))
    async with TemporalEngine(address=temporal_server.address, queue=queue) as engine:
        with WorkerProcess(temporal_server.address, queue, str(tmp_path)) as first:
            await engine.submit(wanted)
            await until(lambda: bool(began(tmp_path, "a")))
            first.tell(signal.SIGSTOP)
            with WorkerProcess(temporal_server.address, queue, str(tmp_path)) as second:
                report = await engine.wait(wanted.id, 60)
                assert report.state == "done"
                so_far = len(moments(str(tmp_path)))
                first.tell(signal.SIGCONT)
                # It is a good worker again, and did not begin what it had.
                second.kill()
                another = goal(Step("b", prompt="hello"))
                await engine.submit(another)
                assert (await engine.wait(another.id, 30)).state == "done"
                done = [one.step for one in moments(str(tmp_path))[so_far:]]
                assert done == ["b", "b"]


@pytest.mark.timeout(60)
async def test_a_worker_that_is_stopped_drains_and_releases_long_steps(
    temporal_server, queue, tmp_path
):
    async with TemporalEngine(address=temporal_server.address, queue=queue) as engine:
        wanted = goal(Step("short", prompt="sleep 1"), Step("long", prompt="hang first"))
        with WorkerProcess(temporal_server.address, queue, str(tmp_path)) as first:
            await engine.submit(wanted)
            await until(lambda: len(moments(str(tmp_path))) == 2)
            first.tell(signal.SIGTERM)
            assert await asyncio.to_thread(first.wait, 20) == 0
        with WorkerProcess(temporal_server.address, queue, str(tmp_path)):
            report = await engine.wait(wanted.id, 40)
        assert report.state == "done"
        assert len(began(tmp_path, "short")) == 1
        assert len(began(tmp_path, "long")) == 2
        client = await connect(temporal_server.address, "")
        history = await client.get_workflow_handle(wanted.id).fetch_history()
        last = [one.activity_task_started_event_attributes for one in history.events]
        kinds = {one.last_failure.application_failure_info.type for one in last}
        assert "WorkerGoing" in kinds  # given back, and not lost by its silence


@pytest.mark.timeout(60)
async def test_the_server_is_killed_in_the_middle(queue, tmp_path, caplog):
    caplog.set_level(logging.INFO, "satchel.goals")
    with TemporalServer(tmp_path / "server") as server:
        runner = Logged(str(tmp_path))
        client = await Client.connect(
            server.address, retry_config=RetryConfig(max_elapsed_time_millis=500)
        )
        async with TemporalEngine(runner, client=client, queue=queue) as engine:
            wanted = goal(*chain("one", "sleep 1", "three", "four"))
            await engine.submit(wanted)
            await until(lambda: bool(began(tmp_path, "s1")))
            assert await engine.health() == ""
            server.kill()
            with pytest.raises(ServerFailed):
                await engine.health()
            with pytest.raises(ServerFailed):
                async with asyncio.timeout(20):
                    await engine.report(wanted.id)
            server.start()
            report = await engine.wait(wanted.id, 40)
            assert report.state == "done"
            assert len(began(tmp_path, "s0")) == 1
            assert await engine.health() == ""
            events = [getattr(record, "event", "") for record in caplog.records]
            assert events.count("goal.ended") == 1


@pytest.mark.timeout(40)
async def test_without_any_worker_goals_are_seen_answered_and_cancelled(
    temporal_server, queue, tmp_path, monkeypatch
):
    monkeypatch.setattr(temporal, "QUERY_TIMEOUT", timedelta(seconds=0.5))

    asks = goal(*chain("one"), Step("ask", "human", prompt="Go on?", needs=("s0",)))
    idle = goal(*chain("one"))
    async with TemporalEngine(address=temporal_server.address, queue=queue) as alone:
        await alone.submit(idle)
        assert (await alone.report(idle.id)).state == "queued"
        assert [one.id for one in await alone.list()] == [idle.id]
        with pytest.raises(Refused):
            await alone.work()
        with pytest.raises(Refused, match="retention"):
            await alone.forget(idle.id)
        worker = TemporalEngine(Logged(str(tmp_path)), address=temporal_server.address, queue=queue)
        async with worker:
            assert (await alone.wait(idle.id, 20)).state == "done"
            await alone.submit(asks)
            assert (await alone.wait(asks.id, 20)).state == "asking"
        report = await alone.report(asks.id)
        assert (report.state, report.plan) == ("asking", asks.plan)
        assert "start one" in report.reason
        assert [one.state for one in await alone.list(states=["asking"])] == ["asking"]


@pytest.mark.timeout(60)
async def test_answers_that_are_too_large_together_are_refused(temporal_server, queue, tmp_path):
    asks = goal(*(Step(f"a{number}", "human", prompt="Well?") for number in range(4)))
    runner = Logged(str(tmp_path))
    async with TemporalEngine(runner, address=temporal_server.address, queue=queue) as engine:
        await engine.submit(asks)
        assert (await engine.wait(asks.id, 20)).state == "asking"
        large = Answer(value="x" * 600_000)
        for step in ("a0", "a1"):
            await engine.answer(asks.id, step, large)
        with pytest.raises(InvalidInput):
            await engine.answer(asks.id, "a2", large)
        report = await engine.report(asks.id)
        assert (report.state, report.steps["a0"].state) == ("asking", "done")


@pytest.mark.timeout(30)
async def test_a_workflow_that_was_terminated_is_cancelled_and_can_be_retried(
    temporal_server, queue, tmp_path
):
    runner = Logged(str(tmp_path))
    async with TemporalEngine(runner, address=temporal_server.address, queue=queue) as engine:
        wanted = goal(*chain("one"), Step("ask", "human", prompt="?", needs=("s0",)))
        await engine.submit(wanted)
        await engine.wait(wanted.id, 20)
        client = await connect(temporal_server.address, "")
        await client.get_workflow_handle(wanted.id).terminate(reason="by hand")
        report = await engine.report(wanted.id)
        assert (report.state, report.reason) == ("cancelled", "")
        assert (report.steps["s0"].state, report.steps["ask"].state) == ("done", "cancelled")
        assert [one.state for one in await engine.list()] == ["cancelled"]
        await engine.retry(wanted.id)
        assert (await engine.wait(wanted.id, 20)).state == "asking"
        await engine.answer(wanted.id, "ask", Answer(by="me"))
        report = await engine.wait(wanted.id, 20)
        assert (report.state, report.revision) == ("done", 2)
        assert len(began(tmp_path, "s0")) == 1


async def test_a_plan_that_no_message_can_carry_is_refused(temporal_server, queue):
    async with TemporalEngine(address=temporal_server.address, queue=queue) as engine:
        with pytest.raises(InvalidInput, match="bytes more than Temporal can carry"):
            await engine.submit(goal(Step("a", prompt="x"), inputs={"text": "y" * 1_300_000}))


async def test_a_missing_server_is_an_error(queue):
    with pytest.raises(ServerFailed, match="no Temporal server"):
        async with TemporalEngine(address="127.0.0.1:1", queue=queue):
            pass


@pytest.mark.timeout(30)
async def test_goals_that_ran_under_an_earlier_version_can_still_be_replayed(caplog):
    """When this fails, code between `execute` and the workflow orders its calls otherwise.

    Goals that run at that moment would stand still: guard the change with `workflow.patched`.
    `temporal workflow show --output json` writes the history of a goal.
    """
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

    with open(HISTORY, encoding="utf-8") as file:  # noqa: ASYNC230 - a small one
        history = WorkflowHistory.from_json("recorded", file.read())

    caplog.set_level(logging.INFO, "satchel.goals")
    replayer = Replayer(workflows=[GoalWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    await replayer.replay_workflow(history)
    assert caplog.records == [], "the end of a goal is reported when it happens, not in replays"


async def test_outputs_of_goals_that_the_server_removed_are_removed(
    temporal_server, queue, tmp_path
):
    known = goal(*chain("one"))
    where = {"address": temporal_server.address, "queue": queue}
    async with TemporalEngine(Logged(str(tmp_path)), str(tmp_path / "large"), **where) as engine:
        assert await engine.ended_before(time.time() + 9) == []
        await engine.submit(known)
        await engine.wait(known.id, 20)
        names = [await engine.artifacts.of(one).put(b"[]") for one in (known.id, "gone")]
        assert await engine.ended_before(time.time() - 60) == []
        assert await engine.ended_before(time.time() + 9) == ["gone"]
        assert await engine.forget_all(["gone"]) == ["gone"]
        assert await engine.artifacts.get(names[0]) == b"[]"
        with pytest.raises(StepFailed, match="is missing"):
            await engine.artifacts.get(names[1])


async def test_namespaces_keep_projects_apart(temporal_server, queue, tmp_path):
    ours = goal(*chain("one"))
    theirs = ours._replace(plan=goal(*chain("two")).plan)
    where = {"address": temporal_server.address, "queue": queue}
    async with (
        TemporalEngine(Logged(str(tmp_path)), **where) as one,
        TemporalEngine(**where, namespace="staging") as other,
    ):
        await other.submit(theirs)
        await one.submit(ours)
        assert (await one.wait(ours.id, 20)).plan == ours.plan
        assert (await other.report(ours.id)).state == "queued"
        await other.cancel(ours.id)
        assert [line.state for line in await one.list()] == ["done"]
