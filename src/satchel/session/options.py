"""Options of sessions and of sub-agents: one record for `Satchel.session` and every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from satchel.errors import InvalidInput
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.catalogue import Budget
    from satchel.session.permissions import Approve


class ChildOptions(TypedDict, total=False):
    """Limits of a sub-agent."""

    include: Sequence[str]
    """Only skills whose name or id matches one of these patterns; all when empty."""
    exclude: Sequence[str]
    """No skill that matches one of these."""
    tools: Sequence[str] | None
    """Patterns of the tools that may be called; all of them when None."""


class SessionOptions(ChildOptions, total=False):
    """Options of a conversation."""

    approve: Approve
    """A function, also an asynchronous one, that takes an `ApprovalRequest` and returns True to
    allow the call. True allows all; None refuses tools that write or use the network."""
    ask: Sequence[str]
    """Patterns of further tools that need approval (`Bash(*)`, `shop_*`)."""
    budget: int | Budget | None
    """Maximum size of the catalogue; the setting `budget` when None."""


def check_options(given: Mapping[str, Any], kind: type[Any] = SessionOptions) -> None:
    """Check the names of options.

    Raises:
        InvalidInput: there is no such option.
    """
    known = sorted(kind.__annotations__)  # with those of the base class
    for name in given:
        if name not in known:
            raise InvalidInput(
                Message("A session has no option `{name}`", name=name),
                Message("The options are {names}", names=[f"`{one}`" for one in known]),
            )
