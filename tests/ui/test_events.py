"""Server-sent events, including changes before a page subscribed."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress

import pytest

from satchel.ui.events import LiveEvents


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("satchel.ui.events.DISK_POLL_S", 0.02)


def soon(ready) -> None:
    end = time.monotonic() + 10
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


def told(live: LiveEvents, seen: int | None, *wanted: str) -> list[str]:
    """The events of a stream within a short time."""

    async def listen() -> list[str]:
        found: list[str] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                async for data in live.stream(frozenset(wanted), seen):
                    name = data.decode().partition("event: ")[2].partition("\n")[0]
                    found.append(name)
        return found

    return asyncio.run(listen())


def test_a_failed_refresh_is_recorded_once_and_repeated(satchel, skill, monkeypatch):
    looks: list[int] = []

    def broken():
        looks.append(1)
        raise ZeroDivisionError("odd")

    live = LiveEvents(satchel)
    with monkeypatch.context() as patch:
        patch.setattr(satchel.library, "refresh", broken)
        live.start()
        soon(lambda: len(looks) > 3)
    try:
        reasons = [one.values["reason"] for one in satchel.trace.events if one.kind == "failed"]
        assert reasons == ["ZeroDivisionError: odd"]
        number = live.number
        skill("beta")
        soon(lambda: live.number > number)
    finally:
        live.close()


def test_changes_before_a_page_listened_are_sent_at_once(satchel):
    live = LiveEvents(satchel)
    made = live.number
    assert told(live, made) == ["hello"]
    live.publish("goal:week")
    assert told(live, made) == ["hello", "goals", "library"]
    assert told(live, made, "goal:week") == ["hello", "goal:week", "goals", "library"]
    assert told(live, live.number, "goal:week") == ["hello"]
    assert told(live, None, "goal:week") == ["hello"]


def test_a_page_names_its_last_event(visit, skill, monkeypatch):
    number = visit.client.app.state.live.number
    found = re.search(r'<meta name="live" content="(\d+)">', visit.get("/skills").text)
    assert found is not None
    assert int(found[1]) >= number
    seen: list[int | None] = []

    async def stream(_, last):
        seen.append(last)
        yield b": over\n\n"

    monkeypatch.setattr(visit.client.app.state.live, "stream", stream)
    visit.get(f"/live?seen={found[1]}")
    visit.get("/live?seen=1", headers={"Last-Event-ID": "77"})
    visit.get("/live?seen=none")
    visit.get("/live")
    assert seen == [int(found[1]), 77, None, None]
