"""Which model answers, and what is said when none can? Agents for the terminal are made here."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from satchel._language import listed, say
from satchel._optional import require
from satchel.cli.output import one_line
from satchel.errors import InvalidInput, MissingExtra, ModelFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from satchel.agent import Agent, Limits
    from satchel.cli.session import Session
    from satchel.tools.gate import Approve

SUCH_AS = "anthropic:claude-sonnet-5"
_INSTRUCTIONS = (
    "You help a person at a terminal, in the folder of a project. Do what is asked with the skills"
    " and tools you have, and say plainly what you could not do. Answer in the language of the"
    " person, in Markdown, and no longer than it takes."
)
_VARIABLE = re.compile(r"Set the `(\w+)` environment variable").search
_INSTALL = re.compile(r"`(pip install [^`]+)`").search
_NEAR = re.compile(r"Did you mean '([^']+)'").search
_PACKAGES = {"anthropic": "anthropic", "openai": "openai"}
"""Providers that are known well enough to see without their packages that they can be had."""
_PROVIDERS = ("anthropic", "openai", "google", "mistral", "groq", "openrouter", "ollama")
"""What is named to somebody who named none of them."""
_SDKS = ("anthropic._base_client", "openai._base_client", "google_genai._api_client")
"""Loggers that tell of a request that is sent again."""


def choose_model(session: Session, given: str | None) -> str:
    """The model by its name: the option, else the setting, which the environment may give.

    Raises:
        InvalidInput: nobody named one.
    """
    name = (given or session.satchel.settings.model).strip()
    provider, colon, rest = name.partition(":")
    if colon and not (provider.strip() and rest.strip()):
        raise InvalidInput(
            say("`{name}` names no model", name=one_line(name)),
            say("Name it as `provider:model`, such as `{name}`", name=SUCH_AS),
        )
    if name:
        return name
    raise InvalidInput(
        say("No model is chosen"),
        say(
            "Give `--model {name}`, set the variable `SATCHEL_MODEL`, or write "
            '`model = "{name}"` into `{path}`',
            name=SUCH_AS,
            path=session.satchel.settings.paths.config,
        ),
    )


def limits_of(requests: int | None, tokens: int | None, cost: float | None) -> Limits:
    """What a turn may take; what is not said stays as usual."""
    from satchel.agent.records import Limits

    usual = Limits()
    return usual._replace(
        requests=usual.requests if requests is None else requests, total_tokens=tokens, cost=cost
    )


def surely_there(model: str) -> bool:
    """Whether a model can be had as far as can be seen at once: provider, package and key.

    False means only that one has to try, which takes a second.
    """
    from satchel.agent.failures import KEYS

    provider, _, name = model.partition(":")
    package = _PACKAGES.get(provider)
    return bool(
        package
        and name.strip()
        and os.environ.get(KEYS[provider], "").strip()
        and find_spec(package) is not None
    )


@contextmanager
def hear_retries(tell: Callable[[str], None]) -> Generator[None]:
    """Be told when a request is sent again, and why: the SDKs only log it."""
    import logging
    import sys

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("Retrying"):
                # It is logged while the failure is handled. An answer came with some of them.
                failure = sys.exc_info()[1]
                if failure is None or hasattr(failure, "response"):
                    tell(say("the provider is busy, asking again"))
                else:
                    tell(say("the provider cannot be reached, asking again"))

    ear = Ear(logging.INFO)
    loggers = [logging.getLogger(name) for name in _SDKS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(ear)
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.removeHandler(ear)
            logger.setLevel(level)


@contextmanager
def quietly() -> Generator[None]:
    """Keep warnings of other packages off the screen: what they tell is said in our words."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_agent(
    session: Session,
    model: str,
    *,
    limits: Limits | None = None,
    approve: Approve = None,
    ask: Sequence[str] = (),
    like: Agent | None = None,
) -> Agent:
    """An agent with the project's skills.

    Args:
        session: The terminal.
        model: Who answers.
        limits: What a turn may take.
        approve: Who is asked about risky tools.
        ask: Patterns of further tools that need a person's word.
        like: Another agent whose conversation is carried on.

    Raises:
        MissingExtra: the extra, or the package of the provider, is not installed.
        ModelFailed: nobody knows the model, or its key is missing.
    """
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # the screen is the person's
    require("pydantic_ai", "agent")
    from satchel.agent import Agent

    more: dict[str, Any] = {} if like is None else {"session": like.session}
    try:
        made = Agent(
            session.satchel,
            model,
            instructions=_INSTRUCTIONS,
            limits=limits,
            approve=approve,
            ask=ask,
            **more,
        )
    except ModelFailed as exc:
        raise _in_our_words(model, exc) from exc
    if like is not None:
        made.history = like.history
    return made


def _in_our_words(model: str, exc: ModelFailed) -> ModelFailed | MissingExtra:
    """What to do about a model that cannot be had: one step, not three."""
    reason = str(exc.__cause__ or exc.message)
    shown = one_line(model)
    if found := _VARIABLE(reason):
        return ModelFailed(
            say("The model `{name}` needs `{variable}`, which is not set",
                name=shown, variable=found[1]),
            say("Set the variable: `export {variable}=…`", variable=found[1]),
        )  # fmt: skip
    if found := _INSTALL(reason):
        return MissingExtra(
            say("The model `{name}` needs a package that is not installed", name=shown),
            say("Run `{command}`", command=found[1]),
        )
    near = _NEAR(reason)
    provider, colon, _ = model.partition(":")
    if colon and not near and provider not in _PROVIDERS:
        return ModelFailed(
            say("There is no provider `{name}`", name=one_line(provider)),
            say("Some that there are: {names}", names=listed(f"`{one}`" for one in _PROVIDERS)),
        )
    return ModelFailed(
        say("There is no model `{name}`", name=shown),
        say("Did you mean {names}?", names=f"`{near[1]}`")
        if near
        else say("Name it as `provider:model`, such as `{name}`", name=SUCH_AS),
    )
