"""Real servers for hubs: SeaweedFS as S3, Caddy as web server, and an S3 that breaks its promise.

They listen on loopback only, and end with the test run.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from http_answers import answering, reply
from needs import needs
from ports import free_port, free_ports

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

START_TIMEOUT_S = 60.0
CREDENTIALS = {"accessKey": "hubtestkey", "secretKey": "hubtestsecret0123456789"}


def _started(words: list[str], folder: Path, port: int, path: str) -> subprocess.Popen[bytes]:
    """Start a server and wait until it answers."""
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)},
        )  # fmt: skip
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
                connection.request("GET", path)
                if connection.getresponse().status < 500:
                    return process
        except OSError:
            pass
        time.sleep(0.1)
    process.kill()
    process.wait()
    raise AssertionError((folder / "server.log").read_text(errors="replace")[-2000:])


def seaweedfs(folder: Path) -> Iterator[dict[str, str]]:
    """Run SeaweedFS; yields the environment of its clients. The bucket is `hubs`."""
    ports = free_ports(8)
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    identity = {"name": "hub", "credentials": [CREDENTIALS], "actions": actions}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    names = ("master", "volume", "filer", "s3")
    words = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
    words += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[4:], strict=True)]
    process = _started(
        [needs("weed"), "server", "-s3", "-filer", f"-dir={folder / 'data'}", "-ip=127.0.0.1",
         "-ip.bind=127.0.0.1", "-s3.config=s3.json", "-s3.port.iceberg=0",
         "-s3.port.lance=0", "-master.volumeSizeLimitMB=64",
         "-volume.max=20", "-master.telemetry=false", *words],
        folder, ports[3], "/status",
    )  # fmt: skip
    env = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[3]}",
        "AWS_ACCESS_KEY_ID": CREDENTIALS["accessKey"],
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["secretKey"],
        "AWS_REGION": "us-east-1",
    }
    try:
        yield env
    finally:
        process.kill()
        process.wait()


def caddy(folder: Path, served: Path) -> Iterator[str]:
    """Run Caddy as a file server; yields its address."""
    port = free_port()
    words = ["file-server", "--listen", f"127.0.0.1:{port}", "--root", str(served)]
    process = _started([needs("caddy"), *words], folder, port, "/")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def caddy_with(folder: Path, served: Path, rules: str) -> Iterator[str]:
    """Run Caddy as a file server with further rules of a Caddyfile; yields its address."""
    port = free_port()
    site = f"bind 127.0.0.1\nroot * {served}\n{rules}\nfile_server"
    with closing(caddy_site(folder, port, f"http://:{port} {{\n{site}\n}}")) as running:
        next(running)
        yield f"http://127.0.0.1:{port}"


def caddy_site(folder: Path, port: int, site: str) -> Generator[None]:
    """Run Caddy with a site of a Caddyfile, which listens on a port."""
    (folder / "Caddyfile").write_text(f"{{\nadmin off\nauto_https off\n}}\n{site}\n")
    words = ["run", "--config", "Caddyfile", "--adapter", "caddyfile"]
    process = _started([needs("caddy"), *words], folder, port, "/")
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def careless_s3() -> Iterator[dict[str, str]]:
    """Run an S3 that ignores `If-None-Match`; yields the environment of its clients."""
    files: dict[str, bytes] = {}

    def respond(handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if handler.command == "PUT":
            files[handler.path] = body
        found = files.get(handler.path)
        status = 404 if handler.command == "GET" and found is None else 200
        answer = found or b"" if handler.command == "GET" else b""
        reply(handler, status, answer, ETag='"1"', Last_Modified="Wed, 18 Nov 2026 09:00:00 GMT")

    with answering(respond) as host:
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
        }
