"""A server that says whatever a test wants: honest until told otherwise.

It speaks as little of the protocol as a host needs (`server/discover`, `skills/list`,
`skills/get`, `resources/read`) over plain HTTP, and counts what it was asked.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXTENSION = "io.modelcontextprotocol/skills"


def skill_md(
    name: str, description: str = "Does a thing.", body: str = "Do it.", **more: str
) -> bytes:
    """The bytes of a SKILL.md."""
    lines = [f"name: {name}", f"description: {description}"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in more.items()]
    return ("---\n" + "\n".join(lines) + f"\n---\n\n{body}\n").encode()


class Script:
    """What the server has, and where it departs from the truth."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        """Every request: its method, and its address if it has one."""
        self.unlisted: list[Any] = []
        """Entries that only `skills/get` returns."""
        self.ttl = 0
        self.page: Callable[[str | None], dict[str, Any]] | None = None
        """Answers `skills/list` by the cursor, in place of `entries`."""
        self.redirect = ""
        self.slow = 0.0
        """Seconds between the bytes of an answer."""
        self.declares: dict[str, Any] = {EXTENSION: {}}

    def add(
        self,
        name: str,
        files: dict[str, bytes] | None = None,
        *,
        path: str = "",
        frontmatter: dict[str, Any] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Serve a skill and list it as it is; what is returned may be bent afterwards."""
        base = f"skill://{path or name}"
        files = {"SKILL.md": skill_md(name, **more), **(files or {})}
        fields = {"name": name, "description": more.get("description", "Does a thing.")}
        known = ("description", "body")
        fields |= {k.replace("_", "-"): v for k, v in more.items() if k not in known}
        entry = {
            "uri": f"{base}/SKILL.md",
            "frontmatter": frontmatter or fields,
            "resources": [resource(f"{base}/{one}", data) for one, data in files.items()],
        }
        self.files |= {f"{base}/{one}": data for one, data in files.items()}
        self.entries.append(entry)
        return entry

    def reads(self) -> list[str]:
        """The files that were asked for."""
        return [uri for method, uri in self.asked if method == "resources/read"]

    def lists(self) -> int:
        """How often the list was asked for."""
        return sum(method == "skills/list" for method, _ in self.asked)


def resource(uri: str, data: bytes) -> dict[str, Any]:
    """One file of an entry."""
    return {"uri": uri, "digest": "sha256:" + sha256(data).hexdigest(), "size": len(data)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for each other
    script: Script

    def do_POST(self) -> None:
        """One request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.loads(body)
        method, params = message["method"], message.get("params") or {}
        self.script.asked.append((method, str(params.get("uri", ""))))
        if self.script.redirect and method != "server/discover":
            self.send_response(307)
            self.send_header("Location", self.script.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if "id" not in message:
            self._send(202, b"")
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = {"resultType": "complete", **self._result(method, params)}
        except KeyError:
            answer["error"] = {"code": -32602, "message": "there is no such thing"}
        self._send(200, json.dumps(answer).encode(), slow=method != "server/discover")

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        script = self.script
        cached = {"ttlMs": script.ttl, "cacheScope": "private"}
        if method == "server/discover":
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"resources": {}, "extensions": script.declares},
                "serverInfo": {"name": "scripted", "version": "1"},
                **cached,
            }
        if method == "skills/list":
            if script.page is not None:
                return {**cached, **script.page(params.get("cursor"))}
            return {**cached, "skills": script.entries}
        if method == "skills/get":
            found = {one["uri"]: one for one in (*script.entries, *script.unlisted)}
            return {**cached, "skill": found[params["uri"]]}
        if method == "resources/read":
            text = script.files[params["uri"]].decode()
            return {**cached, "contents": [{"uri": params["uri"], "text": text}]}
        raise KeyError(method)

    def _send(self, status: int, data: bytes, *, slow: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            if not slow or not self.script.slow:
                self.wfile.write(data)
                self.wfile.flush()
                return
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(self.script.slow)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base calls it so
        """Nothing on the terminal."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


@contextmanager
def scripted() -> Iterator[tuple[str, Script]]:
    """A server on this machine: its address, and what it says."""
    script = Script()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"script": script}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
