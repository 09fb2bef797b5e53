"""Opens the engine and makes the step runner of the goal commands, from settings and options."""

from __future__ import annotations

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
from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.agent.tool_steps import ToolSteps
    from satchel.cli.context import CliContext
    from satchel.goals.engines.base import Engine
    from satchel.goals.model import GoalReport, Plan
    from satchel.goals.rate_limits import Limit, SharedLimiter
    from satchel.settings import Settings


class RunOptions(NamedTuple):
    """Options of the commands that run steps of a goal."""

    engine: str | None
    detach: bool
    model: str | None
    yes: bool
    """Value of `--allow-tools`."""
    as_json: bool

    def arguments(self) -> list[str]:
        """The command-line arguments for a process that continues the goal."""
        found = [] if self.engine is None else ["--engine", self.engine]
        found += [] if self.model is None else ["--model", self.model]
        return [*found, *(["--allow-tools"] if self.yes else [])]


def run_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of `RunOptions`; the function gets them as `options`."""

    @wraps(function)
    def run(context: CliContext, **given: Any) -> int:
        given.setdefault("detach", False)
        options = RunOptions(**{name: given.pop(name) for name in RunOptions._fields})
        return function(context, options=options, **given)

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
    context: CliContext, name: str | None, runner: ToolSteps | None = None, *, only: str = ""
) -> Engine:
    """Open the named engine, or that of the settings; use it with `async with`.

    Without a runner no steps are run here. `only` limits it to the steps of one goal, since
    `--allow-tools` for one goal must not apply to another; workers run the steps of all goals.
    """
    return factory.open_engine(context.satchel.settings, name, runner, only=only)


def make_runner(
    context: CliContext,
    model: str | None,
    engine: str | None,
    *,
    yes: bool,
    plan: Plan | None = None,
) -> ToolSteps:
    """Make the runner for the steps of goals.

    If no step of `plan` calls a model, neither a model nor the extra `agent` is needed. `yes`
    allows tools that write or use the network. All workers of an engine share the rate limits.
    """
    if plan is not None and not asks_model(plan) and not model:
        from satchel.agent.tool_steps import ToolSteps

        limits_of(context.satchel.settings.limits)  # reports errors in this setting anyway
        return ToolSteps(context.satchel, approve=True if yes else None)
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    must_be_installed("pydantic_ai", "agent")
    name = None
    if plan is None or needs_model(plan) or model or context.satchel.settings.model:
        from satchel.cli.models import choose_model, make_agent

        name = choose_model(context, model)
        make_agent(context, name)  # raises before any step is run when the model is unavailable
    from satchel.agent.goal_steps import AgentSteps

    limiter = make_limiter(context.satchel.settings, engine)
    return AgentSteps(context.satchel, name, approve=True if yes else None, limiter=limiter)


def make_limiter(settings: Settings, engine: str | None) -> SharedLimiter | None:
    """Make the rate limiter; None when no limits are set.

    All workers of an engine share it: in PostgreSQL where that is the database, else in a file
    that all processes of this machine share.
    """
    limits = limits_of(settings.limits)
    if not limits:
        return None
    from satchel.goals.rate_limits import SharedLimiter

    _, address = chosen_engine(settings, engine)
    if address.startswith("postgres"):
        return SharedLimiter(limits, address)
    return SharedLimiter(limits, os.path.join(goals_folder(settings), "limits.sqlite"))


def limits_of(table: Any) -> dict[str, Limit]:
    """Parse the setting `limits`."""
    from satchel.goals.rate_limits import Limit

    found: dict[str, Limit] = {}
    for provider, row in cast("dict[str, dict[str, Any]]", table).items():
        kinds = {"per_second": (int, float), "at_once": (int,)}
        if not all(
            type(one) in kinds.get(key, ()) and 0 < one < float("inf") for key, one in row.items()
        ):
            form = "{ per_second = 5, at_once = 3 }"
            raise SettingsError(wrong_form(f"limits.{provider}", form, str(row)).message)
        found[provider] = Limit(**row)
    return found


def read_inputs(pairs: Iterable[str], plan: Plan) -> dict[str, Any]:
    """Parse `--input name=value`; a value is JSON unless the plan's own value is a text."""
    import json

    wanted = {
        ref.name for step in plan.steps for ref in references_of(step) if ref.kind == "inputs"
    }
    given: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise wrong_form("--input", "NAME=VALUE", pair)
        if plan.steps and name not in plan.inputs and name not in wanted:
            known = join_names(f"`{one_line(one)}`" for one in sorted({*plan.inputs, *wanted}))
            raise InvalidInput(
                say("There is no {kind} `{name}`", kind=say("input"), name=one_line(name)),
                say("Did you mean {names}?", names=known) if known else "",
            )
        usual = plan.inputs.get(name)
        if usual is None or isinstance(usual, str):
            given[name] = text
            continue
        try:
            given[name] = json.loads(text)
        except ValueError as exc:
            raise wrong_form(f"--input {name}", json.dumps(usual), text) from exc
    return given
