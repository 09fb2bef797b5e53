"""Programs of tool skills over MCP: described honestly, run on the server, taken back."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager

import httpx
import pytest

from mcp_talk import Talk, read_answer, request, serving
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
    text = "---\nname: lock\ndescription: locks\ndisallowed-tools: echo_back\n---\n# Locked\n"
    (place / "lock").mkdir()
    (place / "lock" / "SKILL.md").write_text(text)
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


class Session:
    """A client of the older protocol, which has a session."""

    def __init__(self, client, url):
        self._client = client
        self._url = url
        self._headers = {"accept": "application/json, text/event-stream"}
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a test", "version": "1"},
        }
        answer = self._post({"id": 1, "method": "initialize", "params": hello})
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self._post({"method": "notifications/initialized"})

    def _post(self, body):
        sent = {"jsonrpc": "2.0", **body}
        return self._client.post(self._url, json=sent, headers=self._headers)

    def call(self, name, /, **arguments):
        params = {"name": name, "arguments": arguments}
        answer = self._post({"id": 2, "method": "tools/call", "params": params})
        return read_answer(answer)["structuredContent"]


def test_what_is_forbidden_in_a_session_is_refused_there(door):
    with httpx.Client(timeout=20) as client:
        one, other = Session(client, door), Session(client, door)
        assert one.call("echo_back", word="hello")["status"] == "success"
        assert "do not call" not in one.call("Skill", name="lock")["text"]
        refused = one.call("echo_back", word="hello")
        assert refused["error"]["code"] == "PERMISSION_DENIED"
        assert "The loaded skill `lock` forbids `echo_back`" in refused["text"]
        assert "# Locked" in one.call("Skill", name="lock")["text"]
        assert other.call("echo_back", word="hello")["status"] == "success"
    alone = Talk(door)  # requests that stand alone
    reply = alone.ask("tools/call", name="Skill", arguments={"name": "lock"})
    assert "do not call: `echo_back`" in reply["content"][0]["text"]
    reply = alone.ask("tools/call", name="echo_back", arguments={"word": "hello"})
    assert reply["isError"] is False


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
        time.sleep(0.5)  # it writes ten times a second, if nobody stops it
        before = marks.read_text()
        time.sleep(0.5)
        assert before
        assert marks.read_text() == before
        assert Talk(url).ask("tools/list")
