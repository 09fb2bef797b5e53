"""CPU and event loop stalls of one run of a pydantic-ai agent with 3,000 skills, and without any.

    PYTHONPATH=src:tests python benchmarks/agent_cost.py [--skills 3000] [--runs 20]

It writes the skills into a temporary folder, runs the same agent with and without Satchel against
the scripted model server of the tests (two requests and one tool call a run, each run a new
conversation), and prints medians: milliseconds of CPU of a run, and the longest time that the event
loop stood still in it. The server is a process of its own: its work is in neither number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from pydantic_ai import Agent

from model_server import ModelServer, Reply
from satchel import Satchel
from satchel.integrations.pydantic_ai import SkillsCapability
from satchel.testing import make_skill

MODEL = "anthropic:claude-sonnet-5"
WORDS = (
    "bake", "bread", "deploy", "servers", "review", "code", "write", "letters", "plan", "trips",
)  # fmt: skip
_TICK = 0.001


class Cost(NamedTuple):
    """What one run took, in milliseconds."""

    cpu: float
    wall: float
    stall: float
    """The longest time in which the event loop did not come round."""


def write_skills(folder: str, count: int) -> None:
    """Write skills of a few words each."""
    for number in range(count):
        words = [WORDS[(number * step) % len(WORDS)] for step in (1, 3, 7)]
        make_skill(folder, f"skill-{number:04d}", f"Helps to {' and '.join(words)}, way {number}.")


def look() -> str:
    """Look at something."""
    return "Do the thing."


def script(request: Any) -> Any:
    """Load a skill, or look where there are none, then answer."""
    if request.results:
        return "Done."
    name, given = ("Skill", "skill-0001") if "Skill" in request.tools else ("look", "")
    called = (name, {"name": given} if given else {})
    return Reply(calls=[called])


async def measure(agent: Agent[Any, Any]) -> Cost:
    """One run, in a loop that ticks."""
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(_TICK)
            now = time.perf_counter()
            gaps.append(now - last - _TICK)
            last = now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(2 * _TICK)
    gaps.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    await agent.run("Please bake some bread for the trip")
    cost = Cost(
        1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall), 1e3 * max(gaps)
    )
    ticking.cancel()
    return cost


async def series(agents: list[Agent[Any, Any]], runs: int) -> list[Cost]:
    """Medians over runs, the agents in turn; the first two, which build, are left out."""
    found = [[await measure(agent) for agent in agents] for _ in range(runs + 2)][2:]
    return [
        Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))
        for costs in zip(*found, strict=True)
    ]


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=3_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help="only be the model")
    given = parser.parse_args()
    if given.serve:
        with ModelServer(script) as server:
            print(json.dumps(dict(server.environment())), flush=True)
            sys.stdin.read()
        return
    with tempfile.TemporaryDirectory() as folder:
        write_skills(f"{folder}/.agents/skills", given.skills)
        satchel = Satchel.for_project(folder, trust="all", builtin=False, packaged=False)
        satchel.prepare()
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, __file__, "--serve"], **pipes) as server:
            assert server.stdout is not None
            os.environ.update(json.loads(server.stdout.readline()))
            agents = [
                Agent(MODEL, tools=[look]),
                Agent(MODEL, tools=[look], capabilities=[SkillsCapability(satchel)]),
            ]
            plain, ours = asyncio.run(series(agents, given.runs))
            assert server.stdin is not None
            server.stdin.close()
        satchel.close()
    print(f"{'':24}{'CPU ms':>10}{'wall ms':>10}{'stall ms':>10}")
    for name, cost in (("without Satchel", plain), (f"{given.skills:,} skills", ours)):
        print(f"{name:24}{cost.cpu:10.1f}{cost.wall:10.1f}{cost.stall:10.1f}")
    print(f"goal: CPU at most {1.5 * plain.cpu + 20:.1f} ms, stall at most 10 ms")


if __name__ == "__main__":
    main()
