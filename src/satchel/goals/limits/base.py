"""What is a limit, and what keeps it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

EVERYBODY = "*"
"""The name of the limit for providers that have none of their own."""
MARGIN = 0.25
"""Seconds that a window is longer than its second. Two requests that leave a second apart may
arrive closer together, by as much as the first one took longer on its way."""


class Limit(NamedTuple):
    """How a provider may be asked. None means no limit."""

    per_second: float | None = None
    """Requests that begin within any one second. Parts of a request do not count: 2.5 is 2, and
    0.5 is one in two seconds."""
    at_once: int | None = None
    """Requests that are under way at the same time."""

    @property
    def window(self) -> tuple[int, float]:
        """So many starts within so many seconds; `(0, 0)` without a limit."""
        if self.per_second is None:
            return 0, 0.0
        if self.per_second >= 1:
            return int(self.per_second), 1.0
        return 1, 1.0 / self.per_second


class Limiter(Protocol):
    """Keeps limits."""

    def slot(self, provider: str) -> AbstractAsyncContextManager[None]:
        """Wait for a turn; it lasts as long as the context: one request, with its answer."""
        ...


def limit_for(limits: Mapping[str, Limit], provider: str) -> Limit | None:
    """The limit that holds for a provider; None when there is none.

    Raises:
        InvalidInput: it would let nobody through.
    """
    limit = limits.get(provider) or limits.get(EVERYBODY)
    if limit is None or limit == Limit():
        return None
    if (limit.per_second is not None and not limit.per_second > 0) or (
        limit.at_once is not None and limit.at_once < 1
    ):
        from satchel._language import say
        from satchel.errors import InvalidInput

        raise InvalidInput(
            say("The limit of `{provider}` lets nobody through", provider=provider),
            say("Give `per_second` and `at_once` values above 0"),
        )
    return limit
