"""How do tests talk to `satchel mcp`? As a process of its own, over real HTTP.

with serving(project) as url:
    Talk(url).ask("skills/list")["skills"]
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from needs import needs

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

VERSION = "2026-07-28"
CHECKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mcp")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Refusal(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{status} {code} {message}")
        self.status = status
        self.code = code
        self.message = message
        self.data = data


class Talk:
    """One client of the protocol of 2026-07-28, as plain as it gets."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self._token = token

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request.

        Raises:
            Refusal: there is none.
        """
        sent = request(method, params)
        with httpx.Client(timeout=20, headers=_bearer(self._token)) as client:
            return read_answer(client.post(self.url, **sent))


def request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """What is posted: a body and the headers that repeat parts of it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
    }
    if method in _NAMED:
        headers["mcp-name"] = str(params[_NAMED[method]])
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return {"json": body, "headers": headers}


def read_answer(answer: httpx.Response) -> dict[str, Any]:
    """The result in an HTTP answer.

    Raises:
        Refusal: it is an error.
    """
    text = answer.text
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        rows = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        found = [json.loads(row) for row in rows if row.strip()]
        record = next(one for one in found if "result" in one or "error" in one)
    else:
        try:
            record = json.loads(text)
        except ValueError:
            raise Refusal(answer.status_code, 0, text) from None
    if "result" not in record:
        error = record.get("error", {})
        if isinstance(error, str):
            raise Refusal(answer.status_code, 0, error)
        raise Refusal(answer.status_code, error["code"], error["message"], error.get("data"))
    return record["result"]


def events(url: str, token: str = "", **wanted: Any) -> Events:
    """A stream of notifications, as `subscriptions/listen` opens it."""
    return Events(url, token, wanted)


class Events:
    """What a server says by itself, until it is closed."""

    def __init__(self, url: str, token: str, wanted: Mapping[str, Any]) -> None:
        self._got: queue.Queue[tuple[float, dict[str, Any]]] = queue.Queue()
        self._client = httpx.Client(timeout=None, headers=_bearer(token))
        sent = request("subscriptions/listen", {"notifications": dict(wanted)})
        self._answer = self._client.send(
            self._client.build_request("POST", url, **sent), stream=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.next()["method"] == "notifications/subscriptions/acknowledged"

    def _read(self) -> None:
        try:
            for line in self._answer.iter_lines():
                if line.startswith("data:") and line[5:].strip():
                    self._got.put((time.monotonic(), json.loads(line[5:])))
        except (httpx.HTTPError, httpx.StreamError, OSError):
            pass  # it was closed

    def next(self, timeout: float = 8) -> dict[str, Any]:
        """The next message."""
        return self.timed(timeout)[1]

    def timed(self, timeout: float = 8) -> tuple[float, dict[str, Any]]:
        """When it came, and the message."""
        return self._got.get(timeout=timeout)

    def quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        try:
            self._got.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def close(self) -> None:
        """Stop listening; a thread that reads is not woken by a mere close."""
        line = self._answer.extensions["network_stream"].get_extra_info("socket")
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        self._answer.close()
        self._client.close()
        self._thread.join(5)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


@contextmanager
def serving(project: str, *words: str, **environment: str) -> Generator[str]:
    """`satchel mcp serve --http` as a process; gives its address. No token unless words ask."""
    if "--token-env" not in words:
        words = (*words, "--no-token")
    command = [sys.executable, "-m", "satchel", "mcp", "serve", "--http", "--port", "0", *words]
    source = os.path.join(os.path.dirname(CHECKS), "..", "src")
    path = os.pathsep.join((os.path.abspath(source), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [*command, "--project", project],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "SATCHEL_TRUST": "all", "PYTHONPATH": path, **environment},
    )
    said: queue.Queue[str] = queue.Queue()
    assert process.stderr is not None
    stream = process.stderr

    def listen() -> None:
        for line in stream:
            said.put(line)
        said.put("")

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    try:
        heard = ""
        while " at http" not in heard:
            line = said.get(timeout=30)
            assert line, f"it ended: {heard}"
            heard += line
        yield heard.rpartition(" at ")[2].split()[0]
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        stream.close()


def write_skill(folder: str, name: str, more: str = "", **files: str | bytes) -> str:
    """A skill below a project's `skills`; files by path. Gives its folder back."""
    root = os.path.join(folder, "skills", name)
    text = f"---\nname: {name}\ndescription: What {name} is for\n{more}---\n\n# {name}\n"
    for path, content in {"SKILL.md": text, **files}.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    return root


def node() -> str:
    """A Node that the official checks run on."""
    return needs("node24")


def official(*parts: str) -> str:
    """A file of the official checks, which CI installs into the folder `CI_NODE_MODULES`."""
    folder = os.environ.get("CI_NODE_MODULES")
    if not folder:
        pytest.skip("the official checks of MCP are not installed")
    return os.path.join(folder, "@modelcontextprotocol", *parts)
