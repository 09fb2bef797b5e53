"""A git server on this machine: `git http-backend` behind the small HTTP server."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from http_answers import answering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, with an author."""
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    done = subprocess.run(
        ["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def publish(root: Path, name: str, files: dict[str, str]) -> Path:
    """Make or extend the bare repository `name` below `root` by one commit; returns its clone."""
    bare, clone = root / name, root.parent / "clones" / name
    if not bare.exists():
        bare.mkdir(parents=True)
        git(bare, "init", "-q", "--bare", "-b", "main")
        clone.parent.mkdir(parents=True, exist_ok=True)
        git(clone.parent, "clone", "-q", str(bare), clone.name)
        git(clone, "checkout", "-q", "-B", "main")
    for path, text in files.items():
        target = clone / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "change")
    git(clone, "push", "-q", "origin", "main")
    return clone


@contextmanager
def serving_git(root: Path) -> Iterator[str]:
    """The address of a server of the bare repositories below `root`."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command,
            "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], env=env, input=body, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        handler.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    with answering(respond) as host:
        yield f"http://{host}"
