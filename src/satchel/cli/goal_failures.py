"""What does a script read when a command for goals fails? The same as a person, as JSON."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.output import write_json
from satchel.errors import InternalError, SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable


def json_failures(function: Callable[..., int]) -> Callable[..., int]:
    """With `--json`, whatever ends a command is on stdout as `error`; then it leaves as usual."""

    @wraps(function)
    def run(*given: Any, as_json: bool, **options: Any) -> int:
        try:
            return function(*given, as_json=as_json, **options)
        except (BrokenPipeError, click.exceptions.Exit):
            raise
        except Exception as exc:
            if as_json:
                write_json({"error": _told_failure(exc)})
            raise

    return run


def _told_failure(exc: Exception) -> dict[str, str]:
    from satchel.cli.retelling import retell

    if isinstance(exc, SatchelError):
        return {"code": exc.code, "message": retell(exc.message), "hint": retell(exc.hint)}
    return {
        "code": InternalError.code,
        "message": say("Satchel failed: {reason}", reason=f"{type(exc).__name__}: {exc}"),
        "hint": say("This is a bug in Satchel: please report it with the lines above"),
    }
