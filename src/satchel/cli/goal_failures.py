"""How does a command for goals fail? With hints that can be followed, and as JSON for scripts."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from satchel._language import render, say
from satchel.cli.output import told_error, write_json
from satchel.errors import InternalError, SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_COMMAND = re.compile(r"`(satchel goal ([a-z]+)(?: [^`]*)?)`")
_PLACELESS = {"plan"}
"""Commands that keep no goal, and so know no engine."""
_GO_ON = {"resume", "retry", "run"}
"""Commands that do steps."""


def json_failures(function: Callable[..., int]) -> Callable[..., int]:
    """With `--json`, whatever ends a command is on stdout as `error`; then it leaves as usual.

    Its hints have the options that the command was given: without `--engine` they would be about
    another goal of the same name.
    """

    @wraps(function)
    def run(*given: Any, as_json: bool, **options: Any) -> int:
        try:
            return function(*given, as_json=as_json, **options)
        except (BrokenPipeError, click.exceptions.Exit):
            raise
        except Exception as exc:
            if isinstance(exc, SatchelError):
                _complete(exc, options)
            if as_json:
                write_json({"error": _told_failure(exc)})
            raise

    return run


def with_options(text: str, options: Sequence[str]) -> str:
    """A text whose commands about goals have these options, where they know and lack them.

    Args:
        text: For people, with commands in backticks.
        options: `--engine` and its value, `--yes`, or both.
    """

    def more(found: re.Match[str]) -> str:
        whole, verb = found[1], found[2]
        has = {word.partition("=")[0] for word in whole.split()}
        if verb in _PLACELESS or "--help" in has:
            return found[0]
        for at, word in enumerate(options):
            if word == "--engine" and word not in has:
                head = whole.removesuffix(" --yes")
                whole = f"{head} {word} {options[at + 1]}{whole[len(head) :]}"
            elif word == "--yes" and word not in has and verb in _GO_ON:
                whole += f" {word}"
        return f"`{whole}`"

    return _COMMAND.sub(more, text)


def _complete(exc: SatchelError, options: dict[str, Any]) -> None:
    """Give the commands that an error names the options of the command that failed."""
    given = ["--engine", options["engine"]] if options.get("engine") else []
    if options.get("yes") and "model" in options:  # where it allows tools, and no removal
        given.append("--yes")
    if given:
        exc.message = with_options(render(exc.message), given)
        exc.hint = with_options(render(exc.hint), given)


def _told_failure(exc: Exception) -> dict[str, str]:
    if isinstance(exc, SatchelError):
        return told_error(exc)
    return {
        "code": InternalError.code,
        "message": say("Satchel failed: {reason}", reason=f"{type(exc).__name__}: {exc}"),
        "hint": say("This is a bug in Satchel: please report it with the lines above"),
    }
