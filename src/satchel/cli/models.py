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

_EXAMPLE_MODEL = "anthropic:claude-sonnet-5"
_INSTRUCTIONS = (
    "You help a person at a terminal, in the folder of a project. Do what is asked with the skills"
    " and tools you have, and say plainly what you could not do. Answer in the language of the"
    " person, in Markdown, and no longer than it takes."
)
_find_variable = re.compile(r"\b[Ss]et the `([A-Z][A-Z0-9_]+)` ").search
_find_install_command = re.compile(r"`(pip install [^`]+)`").search


def choose_model(context: CliContext, option: str | None) -> str:
    """The model's name: the option, else the setting `model`."""
    name = (option or context.satchel.settings.model).strip()
    if name:
        return name
    raise InvalidInput(
        say("No model is set"),
        say("Pass `--model {name}`, or run `satchel config set model {name}`", name=_EXAMPLE_MODEL),
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


def make_limits(max_requests: int | None, max_cost: float | None) -> Limits:
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


def make_agent(context: CliContext, model: str, **options: Any) -> Agent:
    """Make an agent with the project's skills; `options` are arguments of `Agent`."""
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    require("pydantic_ai", "agent")
    with context.err.waiting(say("Starting {name}…", name=one_line(model))):
        from satchel.agent import Agent

        try:
            return Agent(context.satchel, model, instructions=_INSTRUCTIONS, **options)
        except ModelFailed as exc:
            raise _model_error(one_line(model), str(exc.__cause__ or exc.message)) from exc


def _model_error(name: str, reason: str) -> ModelFailed | MissingExtra:
    if match := _find_variable(reason):
        return ModelFailed(
            say("The model `{name}` needs `{variable}`, which is not set",
                name=name, variable=match[1]),
            say("Run `{command}`", command=f"export {match[1]}=…"),
        )  # fmt: skip
    if match := _find_install_command(reason):
        return MissingExtra(
            say("The model `{name}` needs a package that is not installed", name=name),
            say("Run `{command}`", command=match[1]),
        )
    return ModelFailed(
        say("There is no {kind} `{name}`", kind=say("model"), name=name),
        say("Name it as `provider:model`, such as `{name}`", name=_EXAMPLE_MODEL),
    )
