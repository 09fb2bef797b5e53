"""Goals: work in several steps that survives a crash.

    from satchel.goals import Goal, LocalEngine, read_plan

    plan, problems = read_plan("weekly.yaml")
    async with LocalEngine(runner) as engine:
        goal = Goal.of(plan)
        await engine.submit(goal)
        report = await engine.wait(goal.id)

Reading order: `model` (the records), `plan_file` and `plan_checks` (plan files and their problems),
`templates` (outputs that later steps use), `decomposition` (makes a plan from a text), `executor`
(the order of steps, for every engine), `step_runner` (one step, on the machine that runs it),
`engines` (where goals are stored). No module here calls a model: a `StepRunner` does, such as
`satchel.agent.AgentSteps`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.goals.decomposition import decompose
    from satchel.goals.engines.base import Engine
    from satchel.goals.engines.dbos import DbosEngine
    from satchel.goals.engines.local import LocalEngine
    from satchel.goals.engines.temporal import TemporalEngine
    from satchel.goals.model import Answer, Done, Goal, GoalReport, Plan, Step, StepRunner, Work
    from satchel.goals.plan_file import read_plan

_HOMES = {
    "Answer": "model",
    "DbosEngine": "engines.dbos",
    "Done": "model",
    "Engine": "engines.base",
    "Goal": "model",
    "GoalReport": "model",
    "LocalEngine": "engines.local",
    "Plan": "model",
    "Step": "model",
    "StepRunner": "model",
    "TemporalEngine": "engines.temporal",
    "Work": "model",
    "decompose": "decomposition",
    "read_plan": "plan_file",
}
"""Exported name -> its module, imported on first use."""

__all__ = [
    "Answer",
    "DbosEngine",
    "Done",
    "Engine",
    "Goal",
    "GoalReport",
    "LocalEngine",
    "Plan",
    "Step",
    "StepRunner",
    "TemporalEngine",
    "Work",
    "decompose",
    "read_plan",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `satchel.goals` has no attribute `{name}`")

    from satchel._optional import require

    if name == "DbosEngine":
        require("dbos", "dbos")
    elif name == "TemporalEngine":
        require("temporalio", "temporal")
    value = getattr(import_module(f"satchel.goals.{home}"), name)
    globals()[name] = value
    return value
