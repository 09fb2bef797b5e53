"""A process that is killed loses only the steps that were running; the next one goes on."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time

import pytest

from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Goal, Plan, Step
from sizes import sized

SRC = os.path.join(os.path.dirname(__file__), "..", "..", "..", "src")
WORKER = """
import asyncio, os, sys
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done

folder, log, goals = sys.argv[1], sys.argv[2], sys.argv[3:]

class Runner:
    async def run(self, work):
        with open(log, "a") as file:
            file.write(f"{work.key}\\n")
        await asyncio.sleep(0.03)
        return Done({"step": work.step.id, "saw": work.prompt})

async def main():
    async with LocalEngine(Runner(), folder) as engine:
        for goal in goals:
            await engine.resume(goal)
        print("ready", flush=True)
        await asyncio.gather(*(engine.wait(goal) for goal in goals))

asyncio.run(main())
"""


def plan_of(length: int) -> Plan:
    steps = [Step("s0", prompt="first", output={"type": "object"})]
    for n in range(1, length):
        prompt = f"{{{{steps.s{n - 1}.output.step}}}}"
        steps.append(Step(f"s{n}", prompt=prompt, output={"type": "object"}))
    return Plan("g", tuple(steps))


@pytest.mark.timeout(60)
def test_killed_again_and_again_it_still_ends(tmp_path):
    folder, log = str(tmp_path / "state"), str(tmp_path / "log")
    goals = [f"g{n}" for n in range(sized(3, 5))]

    async def begin():
        async with LocalEngine(None, folder) as client:
            for goal in goals:
                await client.submit(Goal(goal, plan_of(10)))

    async def look():
        async with LocalEngine(None, folder) as client:
            return {goal: await client.report(goal) for goal in goals}

    asyncio.run(begin())
    draw = random.Random(7)
    kills = 0
    known: dict[tuple[str, str], object] = {}
    command = [sys.executable, "-c", WORKER, folder, log, *goals]
    env = {**os.environ, "PYTHONPATH": SRC}
    while True:
        worker = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        worker.stdout.readline()
        if kills < sized(4, 8):
            time.sleep(draw.uniform(0.0, 0.15))
            worker.kill()
            kills += 1
        worker.wait()
        worker.stdout.close()
        reports = asyncio.run(look())
        for goal, report in reports.items():
            for name, result in report.steps.items():
                if result.state == "done":
                    # What was written down is never done again.
                    assert known.setdefault((goal, name), result) == result
        if all(report.state == "done" for report in reports.values()):
            break
        assert {report.state for report in reports.values()} <= {"queued", "done"}
    for goal in goals:
        for n in range(10):
            expected = {"step": f"s{n}", "saw": f"s{n - 1}" if n else "first"}
            assert reports[goal].steps[f"s{n}"].output == expected
    with open(log, encoding="utf-8") as file:
        tries = file.read().split()
    assert len(set(tries)) == 10 * len(goals)
    # Each kill can cost each goal the one step that it was at.
    assert len(tries) <= (10 + kills) * len(goals)
