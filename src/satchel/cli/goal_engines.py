"""Which engine keeps the goals, and who does their steps? Made from settings and options."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import click

from satchel._language import listed, render, say
from satchel._optional import must_be_installed
from satchel.cli.output import one_line
from satchel.cli.values import OneOf
from satchel.errors import InvalidInput, Refused, SatchelError, SettingsError
from satchel.goals.engines import opening
from satchel.goals.engines.opening import ENGINES, goals_folder, is_shared, other_projects
from satchel.goals.permission import asks_model, needs_model, unallowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.agent.tool_steps import ToolSteps
    from satchel.cli.session import Session
    from satchel.goals.engines.base import Engine
    from satchel.goals.limits.base import Limit, Limiter
    from satchel.goals.model import Done, GoalReport, Plan, Work
    from satchel.settings import Settings


def must_be_allowed(session: Session, plan: Plan) -> None:
    """Make sure that no step calls what nobody allowed: it would fail after all that came before.

    Raises:
        Refused: a step calls a tool that writes or uses the network.
    """
    step = unallowed(session.satchel, plan.steps)
    if step is not None:
        raise Refused(
            say("Step `{step}` calls `{tool}`, which may write or use the network",
                step=step.id, tool=one_line(step.tool)),
            say("Give `--allow-tools` to allow that"),
        )  # fmt: skip


def needs_yes(session: Session, report: GoalReport, from_step: str = "") -> bool:
    """Whether a retry does steps that somebody has to allow, here and not where workers are."""
    from satchel.goals.permission import done_again

    if is_shared(session.satchel.settings, report.engine):
        return False
    try:
        must_be_allowed(session, done_again(report, from_step))
    except Refused:
        return True
    return False


def worker_command(session: Session, report: GoalReport) -> str:
    """What starts a worker that can do all that is left of a goal."""
    left = (step for step in report.plan.steps if report.steps[step.id].state != "done")
    yes = "" if unallowed(session.satchel, left) is None else " --allow-tools"
    return f"satchel worker --engine {report.engine}{yes}"


__all__ = [
    "LateSteps", "engine_option", "is_shared", "limits_of", "make_limiter", "make_runner",
    "model_of", "model_options", "open_engine", "other_projects", "read_inputs",
]  # fmt: skip


_COMMAND = re.compile(r"`(satchel goal (?!plan\b)([a-z]+)(?: (?![^`]*--help)[^`]*)?)`")
"""A command about a goal that an engine keeps."""
_GO_ON = {"resume", "retry", "run"}
"""Commands that do steps."""


def complete_hints(function: Callable[..., int]) -> Callable[..., int]:
    """Give the commands that an error names the options of the command that failed.

    Without `--engine` they would be about another goal of the same name.
    """

    @wraps(function)
    def run(*given: Any, **options: Any) -> int:
        try:
            return function(*given, **options)
        except SatchelError as exc:
            words = ["--engine", options["engine"]] if options.get("engine") else []
            if options.get("yes") and "model" in options:  # where it allows tools, and no removal
                words.append("--allow-tools")
            exc.message = with_options(render(exc.message), words)
            exc.hint = with_options(render(exc.hint), words)
            raise

    return run


def with_options(text: str, options: Sequence[str]) -> str:
    """A text whose commands about goals have these options, where they know and lack them.

    Args:
        text: For people, with commands in backticks.
        options: `--engine` and its value, `--allow-tools`, or both.
    """

    def more(found: re.Match[str]) -> str:
        whole, verb = found[1], found[2]
        has = {word.partition("=")[0] for word in whole.split()}
        if "--engine" in options and "--engine" not in has:
            head = whole.removesuffix(" --allow-tools")
            whole = f"{head} {' '.join(options[:2])}{whole[len(head) :]}"
        if "--allow-tools" in options and "--allow-tools" not in has and verb in _GO_ON:
            whole += " --allow-tools"
        return f"`{whole}`"

    return _COMMAND.sub(more, text) if options else text


def engine_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--engine`, as every command about goals has it."""
    return click.option(
        "--engine", type=OneOf(ENGINES), help=say("Where the goal is kept; the setting by default.")
    )(function)


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--model` and `--allow-tools`, for commands that do steps."""
    help_text = say("Let every tool be called.")
    function = click.option("--allow-tools", "yes", is_flag=True, help=help_text)(function)
    return click.option("--model", metavar="PROVIDER:NAME", help=say("Who answers."))(function)


def open_engine(
    session: Session, name: str | None, runner: LateSteps | None = None, *, only: str = ""
) -> Engine:
    """The engine by its name, else by the setting; to be entered with `async with`.

    Args:
        session: The terminal.
        name: What `--engine` says.
        runner: Who does steps here; None looks and leaves work, and does none.
        only: The one goal whose steps it does; those of all goals when empty, as workers do. What
            somebody allows for one goal is allowed for no other.

    Raises:
        MissingExtra: its extra is not installed.
        SettingsError: its settings cannot be used.
    """
    return opening.open_engine(session.satchel.settings, name, runner, only=only)


def make_runner(
    session: Session, model: str | None, engine: str | None, *, yes: bool, plan: Plan | None = None
) -> LateSteps:
    """Who does the steps of goals here.

    Args:
        session: The terminal.
        model: What `--model` says.
        engine: What `--engine` says: all of its workers share the limits of providers.
        yes: Whether tools that write or use the network may be called.
        plan: What is to be done: when no step of it asks a model, none need be chosen, and the
            extra `agent` is not needed.

    Raises:
        MissingExtra: the extra `agent` is needed, and not installed.
        InvalidInput: no model is chosen, and one is needed.
    """
    if plan is not None and not asks_model(plan) and not model:
        limits_of(session.satchel.settings.limits)  # a slip in them is said whoever is asked
        return LateSteps(lambda: _tools_alone(session, yes=yes))
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # the screen is the person's
    must_be_installed("pydantic_ai", "agent")
    name = model_of(session, model, plan)
    if name is not None:
        _must_be_there(session, name)
        _tell_others(session, name, plan)
    limiter = make_limiter(session.satchel.settings, engine)

    def make() -> ToolSteps:
        from satchel.agent.delegation import resolve
        from satchel.agent.steps import AgentSteps

        if name is not None:
            resolve(name)  # its packages are imported here, and not while steps wait
        return AgentSteps(session.satchel, name, approve=True if yes else None, limiter=limiter)

    return LateSteps(make)


def _tools_alone(session: Session, *, yes: bool) -> ToolSteps:
    from satchel.agent.tool_steps import ToolSteps

    return ToolSteps(session.satchel, approve=True if yes else None)


def _must_be_there(session: Session, model: str) -> None:
    """Make sure that a model can be had, before anything is done that costs.

    Raises:
        MissingExtra: the package of its provider is not installed.
        ModelFailed: nobody knows it, or its key is missing.
    """
    from satchel.cli.chat.models import make_agent

    make_agent(session, model)  # says what is missing


def _tell_others(session: Session, model: str, plan: Plan | None) -> None:
    """Say which steps go to another provider than the one that somebody chose."""
    chosen = model.partition(":")[0]
    others: dict[str, list[str]] = {}
    for step in () if plan is None else plan.steps:
        if step.model and step.model.partition(":")[0] != chosen:
            others.setdefault(step.model, []).append(one_line(step.id))
    for other, steps in others.items():
        words = say("The plan sends these steps to `{model}`: {steps}",
                    model=one_line(other), steps=listed(steps))  # fmt: skip
        session.err.line(words, "yellow")


class LateSteps:
    """Who does the steps, made when the first one comes: people see the plan before that."""

    def __init__(self, make: Callable[[], ToolSteps]) -> None:
        self._make = make
        self._made: ToolSteps | None = None
        self._lock = threading.Lock()

    def ready(self) -> ToolSteps:
        """Who it is, made now at the latest."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    async def run(self, work: Work) -> Done:
        """Do a step.

        Raises:
            StepFailed: it cannot be done.
        """
        made = self._made or await asyncio.to_thread(self.ready)
        return await made.run(work)

    def close(self) -> None:
        """End what it holds."""
        if self._made is not None:
            self._made.close()


def model_of(session: Session, given: str | None, plan: Plan | None) -> str | None:
    """The model that answers where a step names none; None when every step does.

    Raises:
        InvalidInput: one is needed, and none is chosen.
    """
    from satchel.cli.chat.models import choose_model

    if plan is None or needs_model(plan) or given or session.satchel.settings.model:
        return choose_model(session, given)
    return None


def make_limiter(settings: Settings, engine: str | None) -> Limiter | None:
    """Who watches the limits of providers; nobody when there are none.

    All workers of an engine share it: in PostgreSQL where that is the database, else in a file
    that all processes of this machine share.

    Raises:
        SettingsError: a limit cannot be used.
    """
    limits = limits_of(settings.limits)
    if not limits:
        return None
    chosen = engine or settings.engine
    from satchel.goals.limits.shared import SharedLimiter

    if chosen != "local" and settings.database.startswith("postgres"):
        return SharedLimiter(limits, settings.database)
    return SharedLimiter(limits, os.path.join(goals_folder(settings), "limits.sqlite"))


def limits_of(table: Any) -> dict[str, Limit]:
    """The setting `limits` as records.

    Raises:
        SettingsError: a name or a number in it cannot be used.
    """
    from satchel.goals.limits.base import Limit

    found: dict[str, Limit] = {}
    for provider, row in cast("dict[str, dict[str, Any]]", table).items():
        strange = sorted(set(row) - {"per_second", "at_once"})
        if strange:
            raise SettingsError(
                say("`limits.{provider}` has `{name}`, which means nothing",
                    provider=provider, name=strange[0]),
                say("Write `per_second` and `at_once`"),
            )  # fmt: skip
        rate, most = row.get("per_second"), row.get("at_once")
        if not _is_number(rate, float) or not _is_number(most, int):
            raise SettingsError(
                say("`limits.{provider}` has a number that is none, or not above 0",
                    provider=provider),
                say("Write `per_second = 5` and `at_once = 3`"),
            )  # fmt: skip
        found[provider] = Limit(rate, most)
    return found


def _is_number(value: Any, kind: type) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        return False
    return 0 < cast("float", value) < float("inf")


def read_inputs(pairs: Iterable[str], plan: Plan) -> dict[str, Any]:
    """The values of `--input name=value`, by the type that the plan's own value has.

    Raises:
        InvalidInput: a pair has no `=`, a name is there twice, or a value has the wrong type.
    """
    import json

    from satchel.goals.templates import mentioned

    wanted = {ref.name for step in plan.steps for ref in mentioned(step) if ref.kind == "inputs"}
    given: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise InvalidInput(
                say("`--input` needs `name=value`, not `{value}`", value=pair),
                say("Write `--input week=46`"),
            )
        if name in given:
            raise InvalidInput(
                say("`--input {name}=…` is given twice", name=name), say("Give each input once")
            )
        if plan.steps and name not in plan.inputs and name not in wanted:
            known = sorted({*plan.inputs, *wanted})
            raise InvalidInput(
                say("The plan has no input `{name}`", name=one_line(name)),
                _which_input(name, known),
            )
        usual = plan.inputs.get(name)
        if usual is None or isinstance(usual, str):
            given[name] = text
            continue
        try:
            given[name] = json.loads(text)
        except ValueError as exc:
            raise InvalidInput(
                say("`--input {name}=…` is not JSON: {reason}", name=name, reason=exc),
                say("The plan has {value} there; give such a value", value=json.dumps(usual)),
            ) from exc
    return given


def _which_input(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return say("Did you mean {names}?", names=f"`{near[0]}`")
    if known:
        return say("It has {names}", names=listed(f"`{one_line(one)}`" for one in known))
    return say("It has none: write it under `inputs`, and use it as `{{{{inputs.{name}}}}}`",
               name=one_line(name))  # fmt: skip
