"""What a server ends with, and what it does meanwhile: nothing keeps the rest from its end."""

from __future__ import annotations

import asyncio
import threading
import time

from satchel.ui.access import Access
from satchel.ui.house import House


class Torn:
    """An engine whose database went away."""

    name = "torn"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        raise OSError("database went away")


def failures(satchel) -> list[str]:
    return [one.values["reason"] for one in satchel.trace.events if one.kind == "failed"]


def test_what_cannot_be_ended_keeps_nothing_else_from_its_end(satchel, monkeypatch):
    monkeypatch.setattr("satchel.ui.keeping.open_engine", lambda _: Torn())
    ended: list[str] = []

    def odd() -> None:
        ended.append("desk")
        raise ValueError("odd")

    async def live() -> None:
        house = House(satchel, Access())
        house.live.start()
        await house.goals.engine()
        monkeypatch.setattr(house.desk, "close", odd)
        monkeypatch.setattr(house.arrivals, "close", lambda: ended.append("arrivals"))
        await house.leave()
        assert "satchel-ui-live" not in {one.name for one in threading.enumerate()}

    asyncio.run(live())
    assert ended == ["desk", "arrivals"]
    assert failures(satchel) == ["OSError: database went away", "ValueError: odd"]


def test_work_of_health_ends_with_the_server(satchel, skill, monkeypatch):
    skill("alpha")
    skill("beta")
    scanned: list[str] = []
    begun, go = threading.Event(), threading.Event()
    real = satchel.library.seals.scan

    def slow(one, *given, **more):
        scanned.append(one.name)
        begun.set()
        go.wait(5)
        return real(one, *given, **more)

    monkeypatch.setattr(satchel.library.seals, "scan", slow)
    house = House(satchel, Access())
    health = house.health()
    assert house.health() is health
    health.start("scan")
    assert begun.wait(5)
    asyncio.run(house.leave())
    go.set()
    end = time.monotonic() + 5
    while health.look("scan").job.running:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(scanned) == 1
    assert not health.look("scan").job.ran
    assert not health.look("scan").job.trouble
