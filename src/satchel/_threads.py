"""Asynchronous twins of methods that touch the disk, and a parser that threads may share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
S = TypeVar("S")
_Given = ParamSpec("_Given")


_parse_lock = threading.Lock()


def parse_module(source: str | bytes) -> ast.Module:
    """Parse a module without its warnings, in one thread at a time.

    CPython 3.11 counts the depth of all threads together, and raises SystemError when two of them
    parse; the filter of warnings is also shared.

    Raises:
        SyntaxError: it is not valid in this version of Python.
    """
    import ast
    import warnings

    with _parse_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


async def in_thread(work: Callable[[], T]) -> T:
    """Run a function in a worker thread."""
    import asyncio

    return await asyncio.to_thread(work)


def threaded(
    work: Callable[Concatenate[S, _Given], T],
) -> Callable[Concatenate[S, _Given], Coroutine[Any, Any, T]]:
    """The asynchronous twin of a method: runs it in a worker thread."""
    name = work.__name__

    async def twin(self: S, *positional: _Given.args, **named: _Given.kwargs) -> T:
        return await in_thread(lambda: getattr(self, name)(*positional, **named))

    twin.__name__, twin.__qualname__ = f"a{name}", work.__qualname__.replace(name, f"a{name}")
    twin.__doc__ = f"`{name}` in a worker thread."
    return twin
