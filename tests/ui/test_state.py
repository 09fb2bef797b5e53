"""Shutdown of the shared state: a failure does not prevent the other steps."""

from __future__ import annotations

import asyncio
import threading
import time

from satchel.ui.auth import UiAccess
from satchel.ui.state import AppState


class Torn:
    """An engine whose close fails."""

    name = "torn"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        raise OSError("database went away")


def failures(satchel) -> list[str]:
    return [one.values["reason"] for one in satchel.trace.events if one.kind == "failed"]


def test_what_cannot_be_ended_keeps_nothing_else_from_its_end(satchel, monkeypatch):
    monkeypatch.setattr("satchel.ui.goal_service.open_engine", lambda _: Torn())
    ended: list[str] = []

    def odd() -> None:
        ended.append("plans")
        raise ValueError("odd")

    async def live() -> None:
        state = AppState(satchel, UiAccess())
        state.live.start()
        await state.goals.engine()
        monkeypatch.setattr(state.plans, "close", odd)
        monkeypatch.setattr(state.imports, "close", lambda: ended.append("imports"))
        await state.close()
        assert "satchel-ui-live" not in {one.name for one in threading.enumerate()}

    asyncio.run(live())
    assert ended == ["plans", "imports"]
    assert failures(satchel) == ["OSError: database went away", "ValueError: odd"]


def test_work_of_health_ends_with_the_server(satchel, skill, monkeypatch):
    skill("alpha")
    skill("beta")
    scanned: list[str] = []
    begun, go = threading.Event(), threading.Event()
    real = satchel.library.integrity.scan

    def slow(one, *given, **more):
        scanned.append(one.name)
        begun.set()
        go.wait(5)
        return real(one, *given, **more)

    monkeypatch.setattr(satchel.library.integrity, "scan", slow)
    state = AppState(satchel, UiAccess())
    health = state.health()
    assert state.health() is health
    health.start()
    assert begun.wait(5)
    asyncio.run(state.close())
    go.set()
    end = time.monotonic() + 5
    while health.look().job.running:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(scanned) == 1
    assert not health.look().job.ran
    assert not health.look().job.trouble
