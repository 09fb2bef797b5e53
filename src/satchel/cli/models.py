"""Chooses the model and makes agents for commands."""

from __future__ import annotations

import os
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from satchel._optional import require
from satchel.cli.console import one_line
from satchel.cli.options import Amount, WholeNumber, allow_tools_option, model_option
from satchel.errors import InvalidInput, MissingExtra, ModelFailed
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from satchel.agent import Agent, Limits
    from satchel.cli.context import CliContext

_SUCH_AS = "anthropic:claude-sonnet-5"
_INSTRUCTIONS = (
    "You help a person at a terminal, in the folder of a project. Do what is asked with the skills"
    " and tools you have, and say plainly what you could not do. Answer in the language of the"
    " person, in Markdown, and no longer than it takes."
)
_VARIABLE = re.compile(r"Set the `(\w+)` environment variable").search
_INSTALL = re.compile(r"`(pip install [^`]+)`").search


def choose_model(context: CliContext, given: str | None) -> str:
    """The model's name: the option `given`, else the setting `model`."""
    name = (given or context.satchel.settings.model).strip()
    if name:
        return name
    raise InvalidInput(
        say("No model is set"),
        say("Pass `--model {name}`, or run `satchel config set model {name}`", name=_SUCH_AS),
    )


def turn_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--model`, `--allow-tools` and the limits of a turn."""
    for option in (
        click.option("--max-cost", type=Amount(), metavar="DOLLARS",
                     help=say("Maximum cost of a turn, if the price is known.")),
        click.option("--max-requests", type=WholeNumber(1), metavar="N",
                     help=say("Maximum number of requests of a turn.")),
        allow_tools_option(),
        model_option(),
    ):  # fmt: skip
        function = option(function)
    return function


def limits_of(max_requests: int | None, max_cost: float | None) -> Limits:
    """The limits of a turn; requests keep their default when None."""
    from satchel.agent.events import Limits

    limits = Limits(cost=max_cost)
    return limits if max_requests is None else limits._replace(requests=max_requests)


@contextmanager
def quietly() -> Generator[None]:
    """Suppress warnings of other packages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_agent(context: CliContext, model: str, **given: Any) -> Agent:
    """Make an agent with the project's skills; `given` are arguments of `Agent`."""
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    require("pydantic_ai", "agent")
    from satchel.agent import Agent

    try:
        return Agent(context.satchel, model, instructions=_INSTRUCTIONS, **given)
    except ModelFailed as exc:
        raise _with_hint(one_line(model), str(exc.__cause__ or exc.message)) from exc


def _with_hint(name: str, reason: str) -> ModelFailed | MissingExtra:
    if found := _VARIABLE(reason):
        return ModelFailed(
            say("The model `{name}` needs `{variable}`, which is not set",
                name=name, variable=found[1]),
            say("Run `{command}`", command=f"export {found[1]}=…"),
        )  # fmt: skip
    if found := _INSTALL(reason):
        return MissingExtra(
            say("The model `{name}` needs a package that is not installed", name=name),
            say("Run `{command}`", command=found[1]),
        )
    return ModelFailed(
        say("There is no {kind} `{name}`", kind=say("model"), name=name),
        say("Name it as `provider:model`, such as `{name}`", name=_SUCH_AS),
    )
