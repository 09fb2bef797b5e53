"""Servers that all tests of goals share, started when the first test needs one; async tests."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from postgres import postgres_server
from temporal_server import temporal_server

__all__ = ["postgres_server", "temporal_server"]
pytest.register_assert_rewrite("engine_suite")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests, each in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
