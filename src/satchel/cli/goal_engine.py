"""Opens the engine and makes the step runner of the goal commands, from settings and options."""

from __future__ import annotations

import json
import os
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from satchel._optional import must_be_installed
from satchel.cli.console import one_line
from satchel.cli.options import OneOf, allow_tools_option, model_option, wrong_form
from satchel.errors import InvalidInput, Refused, SettingsError
from satchel.goals.approvals import asks_model, first_unapproved, needs_model, retried_plan
from satchel.goals.engines import factory
from satchel.goals.engines.factory import ENGINES, chosen_engine, goals_folder, is_shared
from satchel.goals.templates import references_of
from satchel.i18n import did_you_mean, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.agent.tool_steps import ToolSteps
    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Plan
    from satchel.goals.rate_limits import Limit, SharedLimiter
    from satchel.session.permissions import Approve
    from satchel.settings import Settings


class RunOptions(NamedTuple):
    """Options of the commands that run steps of a goal."""

    engine: str | None
    detach: bool
    model: str | None
    allow_tools: bool
    as_json: bool
    ask_in_browser: bool = False
    """Whether `satchel ui` asks instead: it started this process."""

    def arguments(self) -> list[str]:
        """The command-line arguments for a process that continues the goal."""
        options = [] if self.engine is None else ["--engine", self.engine]
        options += [] if self.model is None else ["--model", self.model]
        return [*options, *(["--allow-tools"] if self.allow_tools else [])]


def run_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of `RunOptions`; the function gets them as `options`."""

    @wraps(function)
    def run(context: CliContext, **values: Any) -> int:
        values.setdefault("detach", False)
        options = RunOptions(
            **{name: values.pop(name) for name in RunOptions._fields if name in values}
        )
        return function(context, options=options, **values)

    decorated: Callable[..., Any] = run
    for option in (
        allow_tools_option(),
        model_option(),
        engine_option,
    ):
        decorated = option(decorated)
    return decorated


def require_allowed_tools(context: CliContext, plan: Plan) -> None:
    """Check that no step needs `--allow-tools`, before any step is run."""
    step = first_unapproved(context.satchel, plan.steps)
    if step is not None:
        raise Refused(
            say("Step `{step}` calls `{tool}`, which may write or use the network",
                step=step.id, tool=one_line(step.tool)),
            say("Pass `--allow-tools` to allow that"),
        )  # fmt: skip


def needs_allow_tools(context: CliContext, report: GoalReport) -> bool:
    """Whether a retry needs `--allow-tools`; never where workers run the steps."""
    if is_shared(context.satchel.settings, report.engine):
        return False
    return first_unapproved(context.satchel, retried_plan(report, "").steps) is not None


def engine_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--engine`, for every command about goals."""
    return click.option(
        "--engine", type=OneOf(ENGINES), help=say("Default: the setting `engine`.")
    )(function)


def open_engine(
    context: CliContext, name: str | None, runner: ToolSteps | None = None, **limits: Any
) -> Engine:
    """Open the named engine, or that of the settings; use it with `async with`.

    Without a runner no steps are run here. Of `limits`, `only` names the one goal whose steps are
    run, since `--allow-tools` for one goal must not apply to another; workers run the steps of all
    goals, `at_once` at the same time.
    """
    return factory.open_engine(context.satchel.settings, name, runner, **limits)


def make_runner(
    context: CliContext,
    model: str | None,
    engine: str | None,
    *,
    approve: Approve,
    plan: Plan | None = None,
) -> ToolSteps:
    """Make the runner for the steps of goals.

    If no step of `plan` calls a model, neither a model nor the extra `agent` is needed. `approve`
    decides about tools that write or use the network. All workers of an engine share the rate
    limits.
    """
    if plan is not None and not asks_model(plan) and not model:
        from satchel.agent.tool_steps import ToolSteps

        parse_limits(context.satchel.settings.limits)  # reports errors in this setting anyway
        return ToolSteps(context.satchel, approve=approve)
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    must_be_installed("pydantic_ai", "agent")
    name = None
    if plan is None or needs_model(plan) or model or context.satchel.settings.model:
        from satchel.cli.models import choose_model, make_agent

        name = choose_model(context, model)
        make_agent(context, name)  # raises before any step is run when the model is unavailable
    from satchel.agent.goal_steps import AgentSteps

    limiter = make_limiter(context.satchel.settings, engine)
    return AgentSteps(context.satchel, name, approve=approve, limiter=limiter)


def make_limiter(settings: Settings, engine: str | None) -> SharedLimiter | None:
    """Make the rate limiter; None when no limits are set.

    All workers of an engine share it: in PostgreSQL where that is the database, else in a file
    that all processes of this machine share.
    """
    limits = parse_limits(settings.limits)
    if not limits:
        return None
    from satchel.goals.rate_limits import SharedLimiter

    _, address = chosen_engine(settings, engine)
    if address.startswith("postgres"):
        return SharedLimiter(limits, address)
    return SharedLimiter(limits, os.path.join(goals_folder(settings), "limits.sqlite"))


def parse_limits(table: Any) -> dict[str, Limit]:
    """Parse the setting `limits`."""
    from satchel.goals.rate_limits import Limit

    limits: dict[str, Limit] = {}
    for provider, values in cast("dict[str, dict[str, Any]]", table).items():
        kinds = {"per_second": (int, float), "at_once": (int,)}
        if not all(
            type(value) in kinds.get(key, ()) and 0 < value < float("inf")
            for key, value in values.items()
        ):
            form = "{ per_second = 5, at_once = 3 }"
            raise SettingsError(wrong_form(f"limits.{provider}", form, str(values)).message)
        limits[provider] = Limit(**values)
    return limits


def read_inputs(pairs: Iterable[str], plan: Plan) -> dict[str, Any]:
    """Parse `--input name=value`; a value is JSON unless the plan's own value is a text."""
    referenced = {
        ref.name for step in plan.steps for ref in references_of(step) if ref.kind == "inputs"
    }
    inputs: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise wrong_form("--input", "NAME=VALUE", pair)
        if plan.steps and name not in plan.inputs and name not in referenced:
            raise InvalidInput(
                say("There is no {kind} `{name}`", kind=say("input"), name=one_line(name)),
                did_you_mean(map(one_line, sorted({*plan.inputs, *referenced}))),
            )
        plan_value = plan.inputs.get(name)
        if plan_value is None or isinstance(plan_value, str):
            inputs[name] = text
            continue
        try:
            inputs[name] = json.loads(text)
        except ValueError as exc:
            raise wrong_form(f"--input {name}", json.dumps(plan_value), text) from exc
    return inputs
