"""Programs of tool skills over MCP: definitions, calls, cancellation."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager

import httpx
import pytest

from mcp_talk import Talk, request, serving
from satchel.testing import make_tool_skill

pytestmark = pytest.mark.timeout(90)

SLOW = """\
import sys, time
sys.stdin.readline()
for _ in range(600):
    with open({path!r}, "a") as file:
        file.write(".")
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workshop")
    place = folder / ".agents" / "skills"
    more = "parameters: [{name: word, type: string, required: true}]\n"
    make_tool_skill(place, "echo-back", tool="echo_back", more=more)
    make_tool_skill(place, "fails", "raise SystemExit(3)\n", tool="fails_run")
    return str(folder)


@pytest.fixture(scope="module")
def door(workshop):
    with serving(workshop, SATCHEL_SANDBOX="off") as url:
        yield url


def test_a_tool_skill_is_a_tool(door):
    talk = Talk(door)
    tools = {tool["name"]: tool for tool in talk.ask("tools/list")["tools"]}
    assert {"echo_back", "fails_run"} <= set(tools)
    assert tools["echo_back"]["inputSchema"]["required"] == ["word"]
    assert tools["echo_back"]["annotations"]["readOnlyHint"] is False
    reply = talk.ask("tools/call", name="echo_back", arguments={"word": "hello"})
    assert reply["isError"] is False
    assert "hello" in reply["content"][0]["text"]
    reply = talk.ask("tools/call", name="echo_back", arguments={})
    assert reply["structuredContent"]["error"]["code"] == "INVALID_PARAM"
    reply = talk.ask("tools/call", name="fails_run", arguments={})
    assert reply["isError"] is True
    assert reply["structuredContent"]["error"]["code"] == "EXECUTION_ERROR"


@contextmanager
def leaving(url, method, params):
    """A client that asks, and goes without an answer."""
    asked = httpx.Request("POST", url, **request(method, params))
    head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
    with socket.create_connection((asked.url.host, asked.url.port)) as line:
        line.sendall(f"POST {asked.url.path} HTTP/1.1\r\n{head}\r\n".encode() + asked.read())
        yield


def test_a_client_that_goes_takes_its_call_back(tmp_path):
    marks = tmp_path / "marks"
    program = SLOW.format(path=str(marks))
    make_tool_skill(tmp_path / ".agents" / "skills", "slow", program, tool="slow_run")
    with serving(str(tmp_path), SATCHEL_SANDBOX="off") as url:
        with leaving(url, "tools/call", {"name": "slow_run", "arguments": {}}):
            end = time.monotonic() + 30
            while not marks.exists():
                assert time.monotonic() < end, "the program was not started"
                time.sleep(0.05)
        time.sleep(0.5)  # it writes ten times a second unless it is stopped
        before = marks.read_text()
        time.sleep(0.5)
        assert before
        assert marks.read_text() == before
        assert Talk(url).ask("tools/list")
