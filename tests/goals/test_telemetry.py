"""Logs and metrics of steps and goals."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from satchel.errors import StepFailed
from satchel.goals import telemetry
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, Plan, Retry, Step, Usage

pytestmark = pytest.mark.timeout(60)
PROMPT, OUTPUT, SECRET = "the words of a prompt", "the words of an output", "sk-0123456789"


class Runner:
    """Fails in the ways that `step.id` names."""

    async def run(self, work):
        if work.step.id == "broken":
            raise ValueError(f"cannot read {work.prompt} with {SECRET}")
        if work.step.id == "refused":
            raise StepFailed(f"The provider refused: {work.prompt}", code="X", retryable=False)
        if work.step.id == "missing":
            message = f"There is no file `{work.prompt}`, only `{OUTPUT}`"
            raise StepFailed(message, code="NOT_FOUND", retryable=False)
        if work.step.id == "program":
            raise StepFailed(OUTPUT, retryable=False)
        if work.step.id == "provider":
            raise StepFailed(OUTPUT, code="MODEL_FAILED", retryable=False)
        if work.step.id == "flaky" and work.attempt == 1:
            raise StepFailed("Too many requests", code="RATE_LIMITED")
        return Done(OUTPUT, Usage(1, 10, 20, 0.5))


async def run_goal(*steps: str) -> Goal:
    plan = Plan(
        "Try it",
        tuple(Step(name, prompt=PROMPT) for name in steps),
        retry=Retry(attempts=2, first=0.001),
        on_failure="continue",
    )
    goal = Goal.of(plan)
    async with LocalEngine(Runner()) as engine:
        await engine.submit(goal)
        await engine.wait(goal.id)
    return goal


async def test_each_event_of_a_step_is_a_record(caplog):
    caplog.set_level(logging.INFO, "satchel.goals")
    goal = await run_goal("flaky")
    records = [record for record in caplog.records if record.name == telemetry.__name__]
    assert {record.goal for record in records} == {goal.id}
    begun, retried, ended, over = records
    assert (begun.event, begun.step, begun.attempt, begun.engine) == (
        "step.begun", "flaky", 1, "local",
    )  # fmt: skip
    assert (retried.event, retried.levelname, retried.code) == (
        "step.retried", "WARNING", "RATE_LIMITED",
    )  # fmt: skip
    assert (retried.attempt, retried.reason) == (1, "Too many requests")
    assert (ended.event, ended.state, ended.tokens, ended.cost) == ("step.ended", "done", 30, 0.5)
    assert 0 < ended.seconds < 30
    assert ended.getMessage().endswith("s, 30 tokens, $0.5000")
    assert (over.event, over.state) == ("goal.ended", "done")


async def test_no_prompt_output_or_foreign_text_is_logged(caplog):
    caplog.set_level(logging.DEBUG, "satchel.goals")
    await run_goal("broken", "refused", "missing", "program", "provider", "fine")
    failed = {
        record.step: (record.code, record.reason)
        for record in caplog.records
        if record.event == "step.ended" and record.state == "failed"
    }
    assert failed == {
        "broken": ("EXECUTION_ERROR", "ValueError"),
        "refused": ("X", "The provider refused"),
        "missing": ("NOT_FOUND", "There is no file `…`"),
        "program": ("EXECUTION_ERROR", ""),
        "provider": ("MODEL_FAILED", ""),
    }
    for record in caplog.records:
        values = str(record.__dict__)
        assert not any(words in values for words in (PROMPT, OUTPUT, SECRET))


async def test_nothing_is_printed_without_a_handler(capfd):
    await run_goal("broken")
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def read_metrics():
    """Reads (metric, attributes) -> sum; a process has one provider for good."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))

    def read():
        data = reader.get_metrics_data()
        return {
            (metric.name, frozenset(point.attributes.items())): getattr(
                point, "value", getattr(point, "sum", 0)
            )
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    return read


async def test_usage_is_counted_for_each_attempt(read_metrics):
    before = read_metrics()
    goal = await run_goal("fine", "flaky")
    gained = {key: value - before.get(key, 0) for key, value in read_metrics().items()}
    engine = {"satchel.engine": "local", "satchel.action_type": "llm"}
    tokens = {
        dict(attributes)["gen_ai.token.type"]: value
        for (name, attributes), value in gained.items()
        if name == "gen_ai.client.token.usage"
    }
    assert tokens == {"input": 20, "output": 40}
    assert gained["satchel.step.cost", frozenset(engine.items())] == 1.0
    assert goal.id not in str(gained)


def test_without_opentelemetry_goals_run(tmp_path):
    program = """
import asyncio, sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
from satchel.goals import Done, Goal, LocalEngine, Plan, Step


class Runner:
    async def run(self, work):
        return Done("fine")


async def main():
    async with LocalEngine(Runner()) as engine:
        goal = Goal.of(Plan("Try it", (Step("a", prompt="x"),)))
        await engine.submit(goal)
        return (await engine.wait(goal.id)).state


print(asyncio.run(main()))
assert not any(name.startswith("opentelemetry") for name in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
