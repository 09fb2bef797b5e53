"""Server-sent events, including changes before a page subscribed."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any, cast

import pytest

from satchel.ui.events import LiveEvents


class Odd:
    """A library whose refresh fails until it is repaired."""

    def __init__(self, real) -> None:
        self._real = real
        self.broken = threading.Event()
        self.looks = 0

    def refresh(self):
        self.looks += 1
        if self.broken.is_set():
            raise ZeroDivisionError("odd")
        return self._real.refresh()

    def __getattr__(self, name):
        return getattr(self._real, name)


class Stand:
    """A satchel with such a library."""

    def __init__(self, satchel, library) -> None:
        self._satchel = satchel
        self.library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._satchel, name)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("satchel.ui.events.DISK_POLL_S", 0.02)


def failures(satchel) -> list[dict[str, Any]]:
    return [one.values for one in satchel.trace.events if one.kind == "failed"]


def soon(ready) -> None:
    end = time.monotonic() + 10
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


def told(live: LiveEvents, seen: int | None, *wanted: str, wait: float = 0.1) -> list[str]:
    """The events of a stream within a short time."""

    async def listen() -> list[str]:
        found: list[str] = []
        stream = live.stream(frozenset(wanted), seen)

        async def gather() -> None:
            async for data in stream:
                name = data.decode().partition("event: ")[2].partition("\n")[0]
                found.append(name)

        try:
            await asyncio.wait_for(gather(), wait)
        except TimeoutError:
            await stream.aclose()
        return found

    return asyncio.run(listen())


def test_a_look_that_goes_wrong_is_recorded_once_and_made_again(satchel, skill):
    library = Odd(satchel.library)
    live = LiveEvents(cast("Any", Stand(satchel, library)))
    live.start()
    try:
        soon(lambda: library.looks > 1)
        library.broken.set()
        before = library.looks
        soon(lambda: library.looks > before + 3)
        reasons = [one["reason"] for one in failures(satchel)]
        assert reasons.count("ZeroDivisionError: odd") == 1
        library.broken.clear()
        number = live.number
        skill("beta")
        soon(lambda: live.number > number)
    finally:
        live.close()


def test_what_changed_before_a_page_listened_is_told_at_once(satchel):
    live = LiveEvents(satchel)
    made = live.number
    assert told(live, made) == ["hello"]
    live.publish("library")
    live.publish("goal:week")
    assert told(live, made) == ["hello", "library"]
    assert told(live, made, "goal:week") == ["hello", "goal:week", "library"]
    assert told(live, live.number, "goal:week") == ["hello"]
    assert told(live, None, "goal:week") == ["hello"]


def test_a_page_says_what_it_has_seen(visit, skill, monkeypatch):
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
