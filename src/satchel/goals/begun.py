"""How is a coroutine awaited of which the first step has run already?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

_T = TypeVar("_T")


class Begun(Generic[_T]):
    """What is left of an awaitable. It must be awaited in the task that began it.

    Args:
        rest: What its `__await__` gave.
        first: What `next` of that gave: what it waits for.
    """

    __slots__ = ("_first", "_rest")

    def __init__(self, rest: Generator[Any, Any, _T], first: Any) -> None:
        self._rest = rest
        self._first = first

    def __await__(self) -> Generator[Any, Any, _T]:
        waits = self._first
        rest = self._rest
        while True:
            try:
                sent = yield waits
            except GeneratorExit:
                rest.close()
                raise
            except BaseException as exc:  # noqa: BLE001 - cancelling goes inside
                try:
                    waits = rest.throw(exc)
                except StopIteration as end:
                    return end.value
            else:
                try:
                    waits = rest.send(sent)
                except StopIteration as end:
                    return end.value
