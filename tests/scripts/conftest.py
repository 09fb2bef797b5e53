"""A small web service for scripts that were granted the network."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class _Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        permitted = self.path != "/report" or self.headers["Authorization"] == "Bearer s3cret-77"
        answers = {"/data.json": b'{"rows": [1, 2]}', "/report": b"secret stays inside"}
        body = answers.get(self.path) if permitted else None
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Write nothing."""


@pytest.fixture(scope="session")
def address():
    """The address of the service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
