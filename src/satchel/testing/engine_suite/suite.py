"""Which cases are there, and how is an engine put through them, with pytest or without?"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel.testing.engine_suite import (
    failures,
    forgetting,
    keeping,
    limits,
    order,
    people,
    retries,
    revisions,
    stopping,
    telling,
    values,
)
from satchel.testing.engine_suite.base import Bench, Case, CaseFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.testing.engine_suite.base import Setup

_GROUPS = (
    order, values, retries, failures, people, stopping, limits, revisions, telling, keeping,
    forgetting,
)  # fmt: skip

CASES: tuple[Case, ...] = tuple(
    found for group in _GROUPS for found in vars(group).values() if isinstance(found, Case)
)
"""Every case, in the order in which to read them."""


class Outcome(NamedTuple):
    """How a case ended."""

    case: Case
    error: str = ""
    """What is off; empty when nothing is."""
    seconds: float = 0.0


def fitting(setup: Setup, cases: Iterable[Case] = CASES) -> list[Case]:
    """The cases that an engine with these traits must pass."""
    return [case for case in cases if case.needs <= setup.traits]


async def run_case(case: Case, bench: Bench) -> None:
    """Put the engine of an open bench through one case.

    Raises:
        CaseFailed: it does not do what it must, or not in time.
    """
    try:
        async with asyncio.timeout(bench.patience * 3):
            await case.run(bench)
    except TimeoutError as exc:
        raise CaseFailed(f"{case.name}: it took too long") from exc


async def check_engine(setup: Setup, cases: Iterable[Case] = CASES) -> list[Outcome]:
    """Put an engine through the cases, one after the other, and say how each ended.

    It stays open for all of them; after a case that failed it is opened anew.
    """
    outcomes: list[Outcome] = []
    async with Bench(setup) as bench:
        for case in fitting(setup, cases):
            began = time.perf_counter()
            error = ""
            try:
                await bench.open()
                await run_case(case, bench)
            except Exception as exc:  # noqa: BLE001 - an engine may break in any way
                error = f"{type(exc).__name__}: {exc}"
                with suppress(Exception):
                    await bench.close()
            outcomes.append(Outcome(case, error, time.perf_counter() - began))
    return outcomes
