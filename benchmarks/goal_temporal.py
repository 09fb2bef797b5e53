"""Empty work on bare Temporal; its own module, since Temporal's sandbox imports it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow


@activity.defn(name="bare-step")
async def step(name: str) -> str:
    """Do nothing."""
    return name


@workflow.defn(name="bare")
class Bare:
    """One goal: each step waits for those it needs."""

    @workflow.run
    async def run(self, shape: list[tuple[str, list[str]]]) -> list[str]:
        """All of them."""
        tasks: dict[str, asyncio.Task[str]] = {}

        async def one(name: str, needs: list[str]) -> str:
            for need in needs:
                await tasks[need]
            return await workflow.execute_activity(
                step, name, start_to_close_timeout=timedelta(minutes=10)
            )

        for name, needs in shape:
            tasks[name] = asyncio.create_task(one(name, needs))
        return list(await asyncio.gather(*tasks.values()))
