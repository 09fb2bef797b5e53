"""Plans of goals that are not started yet: the files of a project, and what a plan would do."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain
from satchel.errors import SatchelError
from satchel.goals.model import GoalReport, StepResult
from satchel.goals.plan_file import read_plan
from satchel.goals.plan_graph import needs_in, order
from satchel.goals.plan_rules import errors_in
from satchel.i18n import render, say
from satchel.presentation.goal_forms import input_fields
from satchel.presentation.goals import find_tool_to_allow, show_step_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.goals.model import Goal, Plan
    from satchel.goals.plan_rules import PlanProblem
    from satchel.presentation.goal_forms import AnswerField
    from satchel.presentation.goals import StepRow
    from satchel.satchel import Satchel

_PLAN_SUFFIXES = (".yaml", ".yml", ".json")
_STEPS_KEY = re.compile(rb"""^\s*["']?steps["']?\s*:""", re.MULTILINE)
_MAX_SCANNED_ENTRIES = 2_000
MAX_PLAN_BYTES = 1 << 20
MAX_PLANS_SHOWN = 100


class PlanPreview(NamedTuple):
    """A plan before it is started."""

    goal: str
    steps: tuple[StepRow, ...]
    fields: tuple[AnswerField, ...]
    errors: tuple[tuple[str, str], ...]
    """Message and hint of each error; missing inputs are fields instead."""
    warnings: tuple[str, ...]
    tool_to_allow: str
    """The tool that needs permission; empty when none does."""


def find_plans(project: str) -> list[str]:
    """Return the paths of plan files in a project and in its folders, relative to it."""
    paths: list[str] = []
    remaining_entries = _MAX_SCANNED_ENTRIES
    folders = [project]
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                remaining_entries -= 1
                if remaining_entries < 0 or len(paths) == MAX_PLANS_SHOWN:
                    return paths
                if entry.name.startswith(".") or entry.name == "node_modules":
                    continue
                if entry.is_dir(follow_symlinks=False) and folder == project:
                    folders.append(entry.path)
                elif entry.name.endswith(_PLAN_SUFFIXES) and _is_plan(entry.path):
                    paths.append(os.path.relpath(entry.path, project))
    return paths


def _is_plan(path: str) -> bool:
    try:
        return _STEPS_KEY.search(read_plain(path, MAX_PLAN_BYTES)) is not None
    except (OSError, SatchelError):
        return False


def check_plan(satchel: Satchel, text: str) -> tuple[Plan, list[PlanProblem]]:
    """Read a plan, and check it against the skills and tools of a project."""
    available = satchel.session(approve=True).available_tools()
    # A text without a line break would be taken for a path.
    return read_plan(f"{text}\n", skills=available.skills, tools=available.tools)


def plan_errors(problems: Sequence[PlanProblem]) -> list[PlanProblem]:
    """Return the errors that inputs cannot correct."""
    return [problem for problem in errors_in(list(problems)) if problem.code != "missing-input"]


def preview_plan(
    satchel: Satchel, plan: Plan, problems: Sequence[PlanProblem], *, shared: bool
) -> PlanPreview:
    """Return what a person should see before a goal is started."""
    errors = plan_errors(problems)
    needs = {} if errors else needs_in(plan)
    steps = plan.steps if errors else order(plan)
    warnings = [
        problem for problem in problems if problem.code != "missing-input" and problem not in errors
    ]
    return PlanPreview(
        goal=" ".join(plan.goal.split()),
        steps=tuple(
            show_step_row(step, StepResult(step.id, "waiting"), needs.get(step.id, ()))
            for step in steps
        ),
        fields=input_fields(plan),
        errors=tuple((_message_with_line(error), render(error.hint)) for error in errors),
        warnings=tuple(map(_message_with_line, warnings)),
        tool_to_allow="" if errors else find_tool_to_allow(satchel, plan, shared=shared),
    )


def _message_with_line(problem: PlanProblem) -> str:
    prefix = say("line {number}: ", number=problem.line) if problem.line else ""
    return prefix + render(problem.message)


def queued_report(goal: Goal, engine: str) -> GoalReport:
    """Return the report of a goal before its first run."""
    steps = {step.id: StepResult(step.id, "waiting") for step in goal.plan.steps}
    return GoalReport(goal.id, "queued", goal.plan, steps, engine)
