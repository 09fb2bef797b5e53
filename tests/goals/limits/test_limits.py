"""A provider's limit holds for all processes together, as the provider itself counts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from counting_provider import Provider, ask, limiter
from postgres import NoPostgres, Postgres
from satchel.errors import InvalidInput
from satchel.goals.limits import Limit, LocalLimiter, SqliteLimiter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        with Postgres() as running:
            yield running
    except NoPostgres as exc:
        pytest.skip(str(exc))


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """What processes share: which kind, and where."""
    if request.param == "sqlite":
        return "sqlite", str(tmp_path / "limits.db")
    return "postgres", request.getfixturevalue("server").database()


def client(
    kind: str, where: str, limit: Limit, port: int, count: int
) -> subprocess.Popen[str]:  # fmt: skip
    path = os.pathsep.join([os.path.join(os.path.dirname(TESTS), "src"), TESTS])
    return subprocess.Popen(
        [
            sys.executable, os.path.join(TESTS, "counting_provider.py"), kind, where,
            str(limit.per_second or 0), str(limit.at_once or 0), str(port), str(count),
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.timeout(60)
def test_two_processes_never_exceed_five_a_second_and_three_at_once(
    shared: tuple[str, str],
) -> None:
    limit = Limit(per_second=5, at_once=3)
    with Provider() as provider:
        clients = [client(*shared, limit, provider.port, 12) for _ in range(2)]
        for one in clients:
            with one:
                assert one.wait(50) == 0
        assert len(provider.arrivals) == 24
        assert provider.busiest() <= 5
        assert provider.most <= 3
        # It is a limit and not a standstill: 5 in 1.25 seconds, and places are soon free.
        assert max(provider.arrivals) - min(provider.arrivals) < 24 / 5 * 1.25 * 3


@pytest.mark.timeout(60)
def test_who_is_killed_frees_its_place(shared: tuple[str, str]) -> None:
    limit = Limit(at_once=1)
    with Provider((30.0, 30.0)) as provider:
        holder = client(*shared, limit, provider.port, 1)
        assert holder.stdout is not None
        holder.stdout.readline()

        async def next_one() -> float:
            async with limiter(*shared, limit) as limits:
                holder.kill()
                holder.communicate()
                began = time.monotonic()
                async with limits.slot("model"):
                    return time.monotonic() - began

        waited = asyncio.run(next_one())
    # At once on the same machine; over a server when the lease of 3 seconds has run out.
    assert waited < (2.0 if shared[0] == "sqlite" else 6.0)


@pytest.mark.timeout(30)
def test_a_place_is_kept_for_longer_than_its_lease(tmp_path: Path) -> None:
    path = str(tmp_path / "limits.db")

    async def scene() -> None:
        limits = {"model": Limit(at_once=1)}
        async with (
            SqliteLimiter(limits, path, lease=0.6) as one,
            SqliteLimiter(limits, path, lease=0.6) as other,
        ):
            got = asyncio.Event()

            async def wants() -> None:
                async with other.slot("model"):
                    got.set()

            async with one.slot("model"):
                task = asyncio.create_task(wants())
                await asyncio.sleep(2.0)
                assert not got.is_set()
            await asyncio.wait_for(task, 5)

    asyncio.run(scene())


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["local", "sqlite"])
def test_one_process(kind: str, tmp_path: Path) -> None:
    async def scene(port: int) -> None:
        async with limiter(kind, str(tmp_path / "limits.db"), Limit(4, 2)) as limits:

            async def one() -> None:
                async with limits.slot("model"):
                    await ask(port)

            await asyncio.gather(*(one() for _ in range(10)))

    with Provider((0.0, 0.3)) as provider:
        asyncio.run(scene(provider.port))
        assert len(provider.arrivals) == 10
        assert provider.busiest() <= 4
        assert provider.most <= 2


def test_less_than_one_a_second_and_parts_of_one() -> None:
    assert Limit(0.5).window == (1, 2.0)
    assert Limit(2.5).window == (2, 1.0)
    assert Limit(at_once=3).window == (0, 0.0)


def test_providers_have_their_own_limits_and_the_rest_share_one_rule(tmp_path: Path) -> None:
    async def scene() -> None:
        limits = LocalLimiter({"slow": Limit(at_once=1), "*": Limit(at_once=2)})
        async with limits.slot("slow"), limits.slot("other"), limits.slot("other"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), limits.slot("slow"):
                    pass
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), limits.slot("other"):
                    pass
            async with asyncio.timeout(1), limits.slot("third"):
                pass
        shared = SqliteLimiter({"slow": Limit(at_once=1)}, str(tmp_path / "never.db"))
        async with asyncio.timeout(1), shared.slot("free"), shared.slot("free"):
            pass
        assert not (tmp_path / "never.db").exists()

    asyncio.run(scene())


@pytest.mark.timeout(30)
def test_who_gives_up_waiting_leaves_no_place_taken(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SqliteLimiter({"m": Limit(at_once=1)}, str(tmp_path / "limits.db")) as limits:
            async with limits.slot("m"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), limits.slot("m"):
                        pass
            async with asyncio.timeout(5), limits.slot("m"):
                pass

    asyncio.run(scene())


@pytest.mark.parametrize("limit", [Limit(per_second=0), Limit(at_once=0), Limit(-1.0)])
def test_a_limit_that_lets_nobody_through_is_refused(limit: Limit) -> None:
    async def scene() -> None:
        async with LocalLimiter({"m": limit}).slot("m"):
            pass

    with pytest.raises(InvalidInput, match="lets nobody through"):
        asyncio.run(scene())


def test_a_server_that_is_restarted_is_waited_for(server: Postgres) -> None:
    url = server.database()

    async def scene() -> None:
        async with limiter("postgres", url, Limit(100, 2)) as limits:
            async with limits.slot("model"):
                pass
            await asyncio.to_thread(server.restart)
            async with asyncio.timeout(8), limits.slot("model"):
                pass

    asyncio.run(scene())


@pytest.mark.timeout(30)
@pytest.mark.parametrize("at_once", [None, 50])
def test_who_gives_up_before_beginning_costs_nobody_a_turn(
    shared: tuple[str, str], at_once: int | None
) -> None:
    async def scene() -> None:
        async with limiter(*shared, Limit(2, at_once)) as limits:

            async def one() -> None:
                async with limits.slot("model"):
                    pass

            tasks = [asyncio.create_task(one()) for _ in range(40)]
            await asyncio.sleep(0.8)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            async with asyncio.timeout(3):
                await one()

    asyncio.run(scene())


@pytest.mark.timeout(30)
def test_who_is_killed_while_many_wait_costs_others_one_turn(shared: tuple[str, str]) -> None:
    limit = Limit(per_second=2)
    with Provider() as provider:
        crowd = client(*shared, limit, provider.port, 40)
        assert crowd.stdout is not None
        crowd.stdout.readline()
        time.sleep(0.5)
        crowd.kill()
        crowd.communicate()

        async def next_one() -> None:
            async with limiter(*shared, limit) as limits, asyncio.timeout(5), limits.slot("model"):
                pass

        asyncio.run(next_one())


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    async def scene() -> None:
        limiter = SqliteLimiter({"m": Limit(1)}, str(tmp_path / "limits.db"))
        async with limiter as limits, limits.slot("m"):
            modes.update(one.stat().st_mode & 0o777 for one in files())

    def files() -> list[Path]:
        return list(tmp_path.iterdir())

    modes: set[int] = set()
    asyncio.run(scene())
    assert modes == {0o600}
