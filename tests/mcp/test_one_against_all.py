"""Clients, or requests without a token, that try to disturb others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import pytest
import uvicorn

from mcp_talk import Refusal, read_answer, write_skill
from satchel import Satchel
from satchel.errors import NotFound
from satchel.integrations.mcp import server as server_module
from satchel.integrations.mcp.client_view import ClientView
from satchel.integrations.mcp.http import Web, make_app
from satchel.tools.base import CancelToken

pytestmark = pytest.mark.timeout(60)

OLD = "2025-11-25"


class Session:
    """A client of the older protocol."""

    def __init__(self, url):
        self.url = url
        self.client = httpx.Client(timeout=20)
        self.headers = {"accept": "application/json, text/event-stream"}
        about = {"name": "a test", "version": "1"}
        start = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": about}
        answer = self._post("initialize", start, 1)
        self.key = answer.headers["mcp-session-id"]
        self.headers |= {"mcp-session-id": self.key, "mcp-protocol-version": OLD}
        self.ready()

    def _post(self, method, params, number=None):
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        body |= {"id": number} if number else {}
        return self.client.post(self.url, json=body, headers=self.headers)

    def ready(self):
        """Send `notifications/initialized`."""
        self._post("notifications/initialized", {})

    def ask(self, method, **params):
        """The result of a request."""
        return read_answer(self._post(method, params, 2))

    @contextmanager
    def stream(self):
        """The server's notifications, as a list that grows."""
        got = []
        with self.client.stream("GET", self.url, headers=self.headers) as answer:

            def read():
                # It may be closed meanwhile.
                with suppress(httpx.HTTPError, httpx.StreamError, OSError):
                    got.extend(
                        json.loads(line[5:])
                        for line in answer.iter_lines()
                        if line.startswith("data:") and line[5:].strip()
                    )

            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            yield got

    def close(self):
        """Go."""
        self.client.close()


@contextmanager
def near(folder):
    """A server in this process that hands little to the system at a time."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    satchel = Satchel.for_project(folder, trust="all", builtin=False)
    app = make_app(satchel, Web())
    config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(15)
        listener.close()
        satchel.close()
        assert not thread.is_alive()


def until(true, seconds=15.0):
    """Wait for something; whether it came."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


def test_a_client_that_does_not_read_blocks_no_other_client(tmp_path):
    folder = str(tmp_path)
    names = [f"a-name-that-makes-messages-about-it-long-{number:03}" for number in range(100)]

    def write(round_):
        for name in names:
            write_skill(folder, name, f"license: round {round_}\n")

    write(0)
    with near(folder) as url:
        bad = Session(url)
        for name in names:
            bad.ask("resources/subscribe", uri=f"skill://{name}/SKILL.md")
        host, port = httpx.URL(url).host, httpx.URL(url).port
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        deaf.connect((host, port))
        deaf.sendall(
            f"GET /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n"
            f"mcp-protocol-version: {OLD}\r\nmcp-session-id: {bad.key}\r\n\r\n".encode()
        )
        good = Session(url)

        with good.stream() as got:
            for round_ in range(1, 10):
                before = len(got)
                write(round_)
                assert until(lambda: len(got) > before), f"silent in round {round_}"  # noqa: B023
            # News of the last round may still be on their way: each news is a reason to look.
            seen, before = False, len(got)
            write_skill(folder, "newcomer")
            while not seen and until(lambda: len(got) > before):  # noqa: B023
                before = len(got)
                with suppress(Refusal):
                    seen = bool(good.ask("skills/get", uri="skill://newcomer/SKILL.md"))
            assert seen
        for one in (good, bad, deaf):
            one.close()


def test_subscriptions_are_limited_to_served_skills_and_in_number(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "MAX_SUBSCRIPTIONS", 2)
    folder = str(tmp_path)
    for name in ("one", "two", "three"):
        write_skill(folder, name)
    with near(folder) as url:
        session = Session(url)
        for uri in ("skill://nobody/SKILL.md", "skill://one/none.md", "x" * 100_000):
            session.ask("resources/subscribe", uri=uri)  # answered, and not kept
        for name in ("one", "two", "two"):
            session.ask("resources/subscribe", uri=f"skill://{name}/SKILL.md")
        with pytest.raises(Refusal, match="more than 2"):
            session.ask("resources/subscribe", uri="skill://three/SKILL.md")
        for _ in range(5):
            session.ready()  # repeated: subscriptions stay
        with session.stream() as got:
            write_skill(folder, "two", "license: MIT\n")
            assert until(lambda: any(one["method"].endswith("updated") for one in got))
        session.close()


@pytest.fixture
def nested(tmp_path):
    """A skill with two skills in its folder: one for others, one for people only."""
    folder = str(tmp_path)
    write_skill(folder, "outer", **{"notes.md": "mine\n"})
    for name, more in (("hidden", ""), ("manual", "disable-model-invocation: true\n")):
        root = write_skill(folder, f"outer/{name}", **{"references/x.md": "not yours\n"})
        with open(os.path.join(root, "SKILL.md"), "w", encoding="utf-8") as file:
            file.write(f"---\nname: {name}\ndescription: What it is for\n{more}---\nSECRET\n")
    return folder


def _view(folder, **settings):
    satchel = Satchel.for_project(folder, trust="all", builtin=False, **settings)
    return ClientView(satchel, remote=True)


def test_a_filter_leaves_out_skills_inside_others(nested):
    view = _view(nested, exclude=["hidden"])
    assert list(view.resources.names) == ["outer"]
    [(_, manifest)] = view.resources.manifests(["outer"])
    assert list(manifest.files) == ["SKILL.md", "notes.md"]
    assert manifest.list_folder("hidden") is None
    for inner in ("hidden/SKILL.md", "hidden/references/x.md", "manual/SKILL.md"):
        with pytest.raises(NotFound):
            view.resources.read(f"skill://outer/{inner}")
        reply = view.call("ReadFile", {"path": f"skills/outer/{inner}"}, CancelToken())
        assert reply.error is not None
        assert reply.error.code == "ACCESS_DENIED"
    loaded = view.call("Skill", {"name": "outer"}, CancelToken())
    assert "hidden" not in json.dumps(loaded.to_dict())
    [(_, whole)] = _view(nested).resources.manifests(["outer"])
    assert "hidden/SKILL.md" in whole.files
    assert "manual/SKILL.md" not in whole.files


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_the_server_on_stdio(tmp_path, sign, status):
    write_skill(str(tmp_path), "one")
    command = [sys.executable, "-m", "satchel", "mcp", "serve", "--project", str(tmp_path)]
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "src"))
    ask = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source, "SATCHEL_TRUST": "all"},
    ) as process:
        process.stdin.write(json.dumps(ask).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(sign)
        try:
            assert process.wait(8) == status
        finally:
            process.kill()
        assert b"Traceback" not in process.stderr.read()
