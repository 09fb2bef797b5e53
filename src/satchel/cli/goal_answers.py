"""What does a person say to a step that asks? A text, or what the step's schema wants."""

from __future__ import annotations

from typing import Any

from satchel._language import say
from satchel.errors import InvalidInput


def as_value(text: str | None, schema: Any) -> Any:
    """A text in the form that a schema wants.

    Raises:
        InvalidInput: it should be JSON, and is none.
    """
    if text is None or not schema or schema.get("type") == "string":
        return text
    import json

    try:
        return json.loads(text)
    except ValueError as exc:
        raise InvalidInput(
            say("The answer is not JSON: {reason}", reason=exc),
            say("The step wants {schema}", schema=json.dumps(schema, ensure_ascii=False)),
        ) from exc


def user_name() -> str:
    """Who answers, as this machine knows them."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
