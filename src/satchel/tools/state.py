"""Checks the state of a conversation that `Session.dump` gave and that comes from outside."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from satchel._language import Message
from satchel.errors import InvalidInput

STATE_VERSION = 1
_KEYS = {"version", "filters", "tools", "ask", "stack", "loaded", "told"}


class StateLimits(NamedTuple):
    """What a conversation was limited to."""

    filters: list[list[list[str]]]
    """Pairs of `include` and `exclude`; a skill must pass each of them."""
    within: list[list[str]]
    """Lists of patterns of tools; each must cover a call."""
    ask: list[str]
    stack: tuple[str, ...]


def limits_in(state: Any) -> StateLimits:
    """The limits of a dumped conversation.

    Raises:
        InvalidInput: it is nothing that `Session.dump` gave.
    """
    if not isinstance(state, dict) or set(cast("dict[Any, Any]", state)) != _KEYS:
        raise bad_state("state")
    table = cast("dict[str, Any]", state)
    if table["version"] != STATE_VERSION:
        raise bad_state("version")
    filters = [
        [listed(one, "filters", str) for one in listed(pair, "filters", list)]
        for pair in listed(table["filters"], "filters", list)
    ]
    if any(len(pair) != 2 for pair in filters):
        raise bad_state("filters")
    return StateLimits(
        filters,
        [listed(one, "tools", str) for one in listed(table["tools"], "tools", list)],
        listed(table["ask"], "ask", str),
        tuple(listed(table["stack"], "stack", str)),
    )


def listed(value: Any, what: str, kind: type) -> list[Any]:
    """A list of things of one kind, from a state that came from outside.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(value, list):
        raise bad_state(what)
    found = cast("list[Any]", value)
    if any(type(one) is not kind for one in found):
        raise bad_state(what)
    return found


def bad_state(what: str) -> InvalidInput:
    """The error for a state that `Session.dump` did not give."""
    return InvalidInput(
        Message("This is not the state of a conversation: `{what}` is wrong", what=what),
        Message("Pass what `Session.dump()` returned, unchanged"),
    )
