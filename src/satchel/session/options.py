"""Options of sessions and of sub-agents, and the limits in the state of a stored session.

`Satchel.session` and every adapter take the same options. A stored state may come from anywhere, so
its fields are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

from satchel.errors import InvalidInput
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.catalogue import Budget
    from satchel.session.permissions import Approve

STATE_VERSION = 2
_STATE_FIELDS = {"version", "filters", "tools", "ask", "stack", "loaded", "dropped", "prompt"}


class ChildOptions(TypedDict, total=False):
    """Limits of a sub-agent, as keyword arguments of `Session.child` and of every adapter."""

    include: Sequence[str]
    """Only skills whose name or id matches one of these patterns; all when empty."""
    exclude: Sequence[str]
    """No skill that matches one of these."""
    tools: Sequence[str] | None
    """Patterns of the tools that may be called; all of them when None."""


class SessionOptions(ChildOptions, total=False):
    """Options of a conversation, as keyword arguments of `Satchel.session` and of every adapter.

    Example:
        from satchel import Satchel

        session = Satchel.for_project(".").session(
            approve=True, ask=["ReadFile(private/*)"], exclude=["pdf-*"], budget=4_000
        )
        assert "pdf-forms" not in session.prompt
    """

    approve: Approve
    """A function, also an asynchronous one, that takes an `ApprovalRequest` and returns True to
    allow the call, or to apply the `changes` that it proposes. True allows all but files that run
    automatically or change how other programs behave; None refuses tools that use the network,
    and discards changes."""
    ask: Sequence[str]
    """Patterns of further tools that need approval (`Bash(*)`, `shop_*`)."""
    budget: int | Budget | None
    """Maximum size of the catalogue; the setting `budget` when None."""


def check_options(options: Mapping[str, Any], kind: type[Any] = SessionOptions) -> None:
    """Check the names of options.

    Raises:
        InvalidInput: there is no such option.
    """
    names = sorted(kind.__annotations__)  # with those of the base class
    for name in options:
        if name not in names:
            raise InvalidInput(
                Message("A session has no option `{name}`", name=name),
                Message("The options are {names}", names=[f"`{option}`" for option in names]),
            )


# --- stored sessions -----------------------------------------------------------------------


class StateLimits(NamedTuple):
    """The limits in a dumped session, which hold in the restored one too."""

    filters: list[list[list[str]]]
    """Pairs of `include` and `exclude`; a skill must pass each of them."""
    within: list[list[str]]
    """Lists of tool patterns; each list must cover a call."""
    ask: list[str]
    """Patterns of further tools that need approval."""
    stack: tuple[str, ...]
    """The skills that this session works for, outermost first."""


def read_state_limits(state: Any) -> StateLimits:
    """Parse the limits of a dumped session.

    Raises:
        InvalidInput: `Session.dump` did not return this state.
    """
    if not isinstance(state, dict) or set(cast("dict[Any, Any]", state)) != _STATE_FIELDS:
        raise state_error("state")
    table = cast("dict[str, Any]", state)
    if table["version"] != STATE_VERSION:
        raise state_error("version")
    filters = [
        [check_list(patterns, "filters", str) for patterns in check_list(pair, "filters", list)]
        for pair in check_list(table["filters"], "filters", list)
    ]
    if any(len(pair) != 2 for pair in filters):
        raise state_error("filters")
    pattern_lists = check_list(table["tools"], "tools", list)
    return StateLimits(
        filters=filters,
        within=[check_list(patterns, "tools", str) for patterns in pattern_lists],
        ask=check_list(table["ask"], "ask", str),
        stack=tuple(check_list(table["stack"], "stack", str)),
    )


def check_list(value: Any, field: str, item_type: type) -> list[Any]:
    """Check that a value of an untrusted state is a list of one type.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(value, list):
        raise state_error(field)
    values = cast("list[Any]", value)
    if any(type(element) is not item_type for element in values):
        raise state_error(field)
    return values


def state_error(field: str) -> InvalidInput:
    """Return the error for a state that `Session.dump` did not return."""
    return InvalidInput(
        Message("This is not the state of a conversation: `{what}` is wrong", what=field),
        Message("Pass what `Session.dump()` returned, unchanged"),
    )
