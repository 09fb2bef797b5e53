"""The health address of a worker, over real connections."""

from __future__ import annotations

import asyncio
import json

import pytest

from ports import free_port
from satchel.errors import InvalidInput, Refused, ServerFailed
from satchel.goals import health
from satchel.goals.health import HealthAddress, HealthServer

pytestmark = pytest.mark.timeout(60)
LOOPBACK = HealthAddress("127.0.0.1", 0)
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


async def ask(url: str, request: bytes = GET) -> tuple[int, bytes]:
    """Status and body; status 0 when the connection is closed without an answer."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


async def is_well() -> str:
    return ""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8900", ("127.0.0.1", 8900)),
        ("0.0.0.0:8900", ("0.0.0.0", 8900)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:8900", ("::1", 8900)),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(text, address):
    assert HealthAddress.parse(text) == address


@pytest.mark.parametrize("text", ["", ":8900", "x", "x:", "x:y", "::1:8900", "1:2:3", "70000"])
def test_another_text_is_no_address(text):
    with pytest.raises(InvalidInput):
        HealthAddress.parse(text)


async def test_a_worker_that_can_work_is_ok():
    async with HealthServer(is_well).serve(LOOPBACK) as url:
        assert await ask(url) == (200, b'{"status": "ok"}\n')
        assert await ask(url, GET.replace(b"GET", b"HEAD")) == (200, b"")
        assert (await ask(url, GET.replace(b"/health", b"/health?x=1")))[0] == 200
        assert (await ask(url, GET.replace(b"/health", b"/")))[0] == 404
        assert (await ask(url, GET.replace(b"GET", b"POST")))[0] == 405


async def test_the_reason_of_a_failure_is_the_answer():
    async def fails() -> str:
        raise ServerFailed("The server is gone")

    async def breaks() -> str:
        raise ValueError("a secret")

    async def says() -> str:
        return "Too late"

    reasons = {fails: "The server is gone", breaks: "ValueError", says: "Too late"}
    for check, reason in reasons.items():
        async with HealthServer(check).serve(LOOPBACK) as url:
            status, body = await ask(url)
            assert (status, json.loads(body)) == (503, {"status": "failing", "reason": reason})


async def test_an_engine_that_does_not_answer_fails(monkeypatch):
    monkeypatch.setattr(health, "_CHECK_TIMEOUT_S", 0.05)
    async with HealthServer(asyncio.Event().wait).serve(LOOPBACK) as url:  # pyright: ignore[reportArgumentType]
        status, body = await ask(url)
    assert (status, json.loads(body)["reason"]) == (503, "The engine does not answer")


async def test_slow_large_and_many_clients_do_not_keep_others_out(monkeypatch):
    monkeypatch.setattr(health, "_REQUEST_TIMEOUT_S", 0.3)
    async with HealthServer(is_well).serve(LOOPBACK) as url:
        assert (await ask(url, b"GET /" + b"x" * 100_000))[0] == 0
        silent = [asyncio.create_task(ask(url, b"GET")) for _ in range(100)]
        assert {status for status, _ in await asyncio.gather(*silent)} == {0}
        assert (await ask(url))[0] == 200


async def test_a_port_that_is_taken_is_refused():
    port = free_port()
    address = HealthAddress("127.0.0.1", port)
    async with HealthServer(is_well).serve(address):
        with pytest.raises(Refused, match=str(port)):
            async with HealthServer(is_well).serve(address):
                pass
