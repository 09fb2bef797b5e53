"""Chooses the model, and makes agents for the terminal."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel._optional import require
from satchel.cli.output import one_line
from satchel.errors import InvalidInput, MissingExtra, ModelFailed

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.agent import Agent, Limits
    from satchel.cli.session import Session

_SUCH_AS = "anthropic:claude-sonnet-5"
_INSTRUCTIONS = (
    "You help a person at a terminal, in the folder of a project. Do what is asked with the skills"
    " and tools you have, and say plainly what you could not do. Answer in the language of the"
    " person, in Markdown, and no longer than it takes."
)
_VARIABLE = re.compile(r"Set the `(\w+)` environment variable").search
_INSTALL = re.compile(r"`(pip install [^`]+)`").search


def choose_model(session: Session, given: str | None) -> str:
    """The name of the model: the option, else the setting, which the environment may give.

    Raises:
        InvalidInput: no model is named.
    """
    name = (given or session.satchel.settings.model).strip()
    if name:
        return name
    raise InvalidInput(
        say("No model is chosen"),
        say(
            "Give `--model {name}`, set the variable `SATCHEL_MODEL`, or write "
            '`model = "{name}"` into `{path}`',
            name=_SUCH_AS,
            path=session.satchel.settings.paths.config,
        ),
    )


def limits_of(max_requests: int | None, max_tokens: int | None, max_cost: float | None) -> Limits:
    """What a turn may take; requests keep their default when None."""
    from satchel.agent.records import Limits

    limits = Limits(total_tokens=max_tokens, cost=max_cost)
    return limits if max_requests is None else limits._replace(requests=max_requests)


@contextmanager
def quietly() -> Generator[None]:
    """Keep warnings of other packages off the screen."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_agent(terminal: Session, model: str, **given: Any) -> Agent:
    """An agent with the project's skills; `given` are arguments of `Agent`.

    Raises:
        MissingExtra: the extra, or the package of the provider, is not installed.
        ModelFailed: the model is not known, or its key is missing.
    """
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    require("pydantic_ai", "agent")
    from satchel.agent import Agent

    try:
        return Agent(terminal.satchel, model, instructions=_INSTRUCTIONS, **given)
    except ModelFailed as exc:
        raise _explained(one_line(model), str(exc.__cause__ or exc.message)) from exc


def _explained(name: str, reason: str) -> ModelFailed | MissingExtra:
    """What is wrong with a model, with one step to take."""
    if found := _VARIABLE(reason):
        return ModelFailed(
            say("The model `{name}` needs `{variable}`, which is not set",
                name=name, variable=found[1]),
            say("Set the variable: `export {variable}=…`", variable=found[1]),
        )  # fmt: skip
    if found := _INSTALL(reason):
        return MissingExtra(
            say("The model `{name}` needs a package that is not installed", name=name),
            say("Run `{command}`", command=found[1]),
        )
    return ModelFailed(
        say("There is no model `{name}`", name=name),
        say("Name it as `provider:model`, such as `{name}`", name=_SUCH_AS),
    )
