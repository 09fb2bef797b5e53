"""Hacker News and the pages it points to, recorded, on loopback. Every story in it is invented.

    with NewsSite() as site:
        explore(base_url=site.url)
    assert "/v0/topstories.json" in site.asked

Each request for the front page is answered with the next edition, and the last one stays: who asks
once in a run sees the morning first, then the evening.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "examples", "news")
HUGE = 50_000_000


def edition(name: str) -> dict[str, Any]:
    """A recorded front page with its items."""
    with open(os.path.join(RECORDED, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)


class NewsSite:
    """A server with editions of a front page."""

    def __init__(
        self, *editions: Mapping[str, Any], failing: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """Serve editions; the recorded morning and evening when none is given.

        Args:
            editions: Each with `topstories` and `items`; items stay from one to the next.
            failing: Status codes that a path answers first, before it works.
        """
        self.asked: list[str] = []
        """Paths in the order of arrival."""
        self._editions = list(editions or (edition("morning"), edition("evening")))
        self._failing = {path: list(codes) for path, codes in (failing or {}).items()}
        self._items: dict[str, Any] = {}
        self._top: list[int] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.site = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """What a program needs to find it."""
        return {"NEWS_EXPLORER_BASE_URL": self.url, "NO_PROXY": "127.0.0.1,localhost"}

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def failure(self, path: str) -> int:
        """With which status a request fails; 0 when it does not."""
        with self._lock:
            self.asked.append(path)
            codes = self._failing.get(path)
            return codes.pop(0) if codes else 0

    def api(self, path: str) -> bytes:
        """What the API says."""
        with self._lock:
            if path == "topstories.json":
                one = self._editions.pop(0) if len(self._editions) > 1 else self._editions[0]
                self._items |= one["items"]
                self._top = one["topstories"]
                found: Any = self._top
            else:
                found = self._items.get(path.removeprefix("item/").removesuffix(".json"))
        return json.dumps(found).replace("{site}", self.url).encode()


class _Server(ThreadingHTTPServer):
    site: NewsSite


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        """Answer as recorded."""
        path = self.path.partition("?")[0]
        status = self.server.site.failure(path)
        if status:
            self._send(b"busy", "text/plain", status, {"Retry-After": "0"})
        elif path.startswith("/v0/"):
            self._send(self.server.site.api(path.removeprefix("/v0/")), "application/json")
        elif path.startswith("/pages/"):
            name = os.path.basename(path)
            with open(os.path.join(RECORDED, "pages", name), "rb") as file:
                self._send(file.read(), "text/html; charset=utf-8")
        else:
            self._hostile(path.rpartition("/")[2])

    def _hostile(self, kind: str) -> None:
        html = "text/html"
        if kind == "huge":
            self._huge()
        elif kind == "slow":
            self._slow()
        elif kind == "circle":
            self._send(b"", html, 302, {"Location": "/hostile/circle"})
        elif kind == "file":
            self._send(b"", html, 302, {"Location": "file:///etc/passwd"})
        elif kind == "binary":
            self._send(bytes(range(256)) * 200, "application/octet-stream")
        elif kind == "disguised":
            self._send(bytes(range(256)) * 200, html)
        elif kind == "bomb":
            packed = gzip.compress(bytes(30_000_000))
            self._send(packed, html, headers={"Content-Encoding": "gzip"})
        elif kind == "deep":
            self._send(b"<div>" * 190_000, html)
        else:
            self._send(b"not here", "text/plain", 404)

    def _huge(self) -> None:
        """Fifty megabytes, as long as somebody listens."""
        self._send(None, "text/html", headers={"Content-Length": str(HUGE)})
        piece = b"<p>" + b"The sea is large, and this page is as well. " * 1_400 + b"</p>"
        try:
            for _ in range(HUGE // len(piece)):
                self.wfile.write(piece)
        except OSError:
            return

    def _slow(self) -> None:
        """A byte now and then, so that no single read takes too long."""
        self._send(None, "text/html")
        try:
            for _ in range(100):
                self.wfile.write(b" ")
                time.sleep(0.05)
        except OSError:
            return

    def _send(
        self,
        body: bytes | None,
        kind: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Say nothing."""
