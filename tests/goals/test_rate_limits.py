"""A provider's limit holds for all processes together, as the provider itself counts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import psycopg
import pytest

from counting_provider import Provider, limiter
from ports import free_port
from satchel.errors import InvalidInput, ServerFailed
from satchel.goals.database import database_failed, without_password
from satchel.goals.rate_limits import Limit, SharedLimiter
from sizes import sized

if TYPE_CHECKING:
    from pathlib import Path

    from postgres import Postgres

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)


@pytest.fixture
def server(postgres_server: Postgres) -> Postgres:
    return postgres_server


@pytest.fixture(params=sized(["sqlite"], ["sqlite", "postgres"]))
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What processes share."""
    if request.param == "sqlite":
        return str(tmp_path / "limits.db")
    return request.getfixturevalue("server").database()


def client(where: str, limit: Limit, port: int, count: int) -> subprocess.Popen[str]:
    path = os.pathsep.join([os.path.join(os.path.dirname(TESTS), "src"), TESTS])
    return subprocess.Popen(
        [
            sys.executable, os.path.join(TESTS, "counting_provider.py"), where,
            str(limit.per_second or 0), str(limit.at_once or 0), str(port), str(count),
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.timeout(60)
def test_two_processes_never_exceed_five_a_second_and_three_at_once(shared):
    limit = Limit(per_second=5, at_once=3)
    with Provider() as provider:
        clients = [client(shared, limit, provider.port, sized(7, 12)) for _ in range(2)]
        for one in clients:
            with one:
                assert one.wait(50) == 0
        assert len(provider.arrivals) == sized(14, 24)
        assert provider.busiest() <= 5
        assert provider.most <= 3


@pytest.mark.timeout(60)
def test_a_killed_process_frees_its_slot(shared):
    limit = Limit(at_once=1)
    with Provider((9.0, 9.0)) as provider:
        holder = client(shared, limit, provider.port, 1)
        assert holder.stdout is not None
        holder.stdout.readline()

        async def next_one() -> float:
            async with limiter(shared, limit) as limits:
                holder.kill()
                holder.communicate()
                began = time.monotonic()
                async with limits.slot("model"):
                    return time.monotonic() - began

        waited = asyncio.run(next_one())
    assert waited < 8  # its request takes 9 seconds, and its lease one


async def test_providers_have_their_own_limits_and_the_rest_share_one_rule(tmp_path):
    rules = {"slow": Limit(at_once=1), "*": Limit(at_once=2)}
    async with (
        SharedLimiter(rules, str(tmp_path / "limits.db")) as limits,
        limits.slot("slow"),
        limits.slot("other"),
        limits.slot("other"),
    ):
        for full in ("slow", "other"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), limits.slot(full):
                    pass
        async with asyncio.timeout(10), limits.slot("third"):
            pass
    shared = SharedLimiter({"slow": Limit(at_once=1)}, str(tmp_path / "never.db"))
    async with asyncio.timeout(1), shared.slot("free"), shared.slot("free"):
        pass
    assert not (tmp_path / "never.db").exists()


async def test_a_busy_event_loop_does_not_exceed_a_limit(tmp_path):
    starts: list[float] = []

    async def ask(limits) -> None:
        async with limits.slot("m"):
            starts.append(time.monotonic())

    async with SharedLimiter({"m": Limit(per_second=1)}, str(tmp_path / "limits.db")) as limits:

        async def block() -> None:
            for _ in range(3):
                await asyncio.sleep(0.003)
                time.sleep(1.3)  # noqa: ASYNC251

        await asyncio.gather(*(ask(limits) for _ in range(4)), block())
    assert min(b - a for a, b in pairwise(starts)) > 0.5


@pytest.mark.parametrize("limit", [Limit(per_second=0), Limit(at_once=0), Limit(-1.0)])
def test_a_limit_that_allows_no_request_is_refused(limit, tmp_path):
    async def scene() -> None:
        async with SharedLimiter({"m": limit}, str(tmp_path / "limits.db")).slot("m"):
            pass

    with pytest.raises(InvalidInput, match="allows no request"):
        asyncio.run(scene())


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("user", "said"),
    [("stranger:secret@", 'role "…" does not exist'), ("poor@", "permission denied")],
)
def test_a_refusal_of_the_server_is_an_error_at_once(user, said, server):
    url = server.database()
    if user == "poor@":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE ROLE poor LOGIN")

    async def scene() -> None:
        address = url.replace("satchel@", user)
        async with limiter(address, Limit(100, 2)) as limits, limits.slot("model"):
            pass

    began = time.monotonic()
    with pytest.raises(ServerFailed) as caught:
        asyncio.run(scene())
    assert time.monotonic() - began < 10
    assert said in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u@h/d", "postgresql://h/d"),
        ("postgresql://u:hunter2@h/d?x=1", "postgresql://h/d"),
        ("postgresql://h/d?password=hunter2&x=1", "postgresql://h/d"),
        ("postgresql://u:hun/ter2@h/d", "postgresql://h/d"),
        ("postgresql://u:hun@ter2@h/d", "postgresql://h/d"),
        ("postgresql://u:hun?ter2#x@h/d", "postgresql://…"),
        ("postgresql://h/d?password=hun@ter2", "postgresql://…"),
        ("postgresql+psycopg://:hunter2@/d", "postgresql+psycopg:///d"),
        ("postgresql://h/d?%70assword=hunter2&x=1", "postgresql://h/d"),
        ("host=h password='hun ter2' user=u", "…"),
        ("dbname=postgresql://h/d?sslpassword=hunter2", "…"),
    ],
)  # fmt: skip
def test_no_form_of_address_shows_its_password(address, shown):
    assert without_password(address) == shown
    told = str(database_failed(address, f'cannot read "{address}"'))
    assert "hun" not in told
    assert "ter2" not in told


async def test_a_server_that_does_not_run_is_named_as_the_cause():
    url = f"postgresql://satchel@127.0.0.1:{free_port()}/nothing"
    with pytest.raises(ServerFailed, match="Connection refused"):
        async with limiter(url, Limit(100, 2)) as limits, limits.slot("model"):
            pass


async def test_a_server_that_is_restarted_is_waited_for(server):
    url = server.database()
    async with limiter(url, Limit(100, 2)) as limits:
        async with limits.slot("model"):
            pass
        await asyncio.to_thread(server.restart)
        async with asyncio.timeout(8), limits.slot("model"):
            pass
