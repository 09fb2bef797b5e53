"""The server as a process: address, output and shutdown."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

import pytest

from satchel.errors import NotFound
from satchel.ui.auth import UiAccess
from satchel.ui.pending import PendingItems
from satchel.ui.state import AppState
from sizes import sized


@contextmanager
def serving(project, *more):
    """`satchel ui` as a process, and the first URL that it prints."""
    command = [sys.executable, "-m", "satchel", "ui", "--no-browser", "--port", "0", *more]
    made = subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield made, made.stdout.readline().strip()
    finally:
        made.kill()
        made.communicate()


def enter(address: str) -> dict[str, str]:
    parts = urlsplit(address)
    line = HTTPConnection(parts.netloc, timeout=10)
    line.request("GET", f"{parts.path}?{parts.query}")
    answer = line.getresponse()
    assert answer.status == 303
    cookies = SimpleCookie(answer.getheader("set-cookie"))
    line.close()
    return {name: one.value for name, one in cookies.items()}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "code"), sized([("SIGTERM", 0)], [("SIGTERM", 0), ("SIGINT", 130)])
)
def test_it_ends_at_once_while_a_page_is_open(project, name, code):
    with serving(project) as (made, address):
        cookies = enter(address)
        netloc = urlsplit(address).netloc
        assert list(cookies) == [f"satchel-{netloc.rpartition(':')[2]}"]
        cookie = "; ".join("=".join(one) for one in cookies.items())
        lines = [HTTPConnection(netloc, timeout=20) for _ in range(3)]
        answers = []
        for line in lines:
            line.request("GET", "/live", headers={"Cookie": cookie})
            answers.append(line.getresponse())
            assert answers[-1].readline() == b"retry: 1000\n"
        began = time.monotonic()
        made.send_signal(getattr(signal, name))
        assert made.wait(20) == code
        took = time.monotonic() - began
        assert took < 3, took  # a second on an idle machine
        said = made.stderr.read()
        assert "Traceback" not in said
        for one in (*answers, *lines):
            one.close()


@pytest.mark.timeout(60)
def test_a_used_link_is_followed_by_another_and_a_second_server_says_what_is_wrong(project):
    with serving(project) as (made, address):
        enter(address)
        other = made.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?token=[\w-]{32}", other)
        assert other != address
        port = str(urlsplit(address).port)
        second = run(project, port)
        assert second.returncode == 4
        assert f"error: Port {port} is in use" in second.stderr
        assert "hint: Choose another `--port`" in second.stderr


def run(project, port, *more):
    command = [sys.executable, "-m", "satchel", "ui", "--no-browser", "--port", port, *more]
    return subprocess.run(
        command, cwd=project, capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.timeout(90)
def test_it_does_not_start_open_to_others_or_half_described(project, tmp_path):
    empty, short = tmp_path / "empty", tmp_path / "short"
    empty.write_text("\n")
    short.write_text("short")
    for more, words in (
        (("--host", "0.0.0.0"), "without a password"),
        (("--host", "0.0.0.0", "--password-file", str(empty)), "is empty"),
        (("--password-file", str(short)), "fewer than 10 characters"),
        (("--behind-https",), "required behind a proxy"),
        (("--name", "skills.example"), "`skills.example` is reachable from other machines"),
        (("--behind-https", "--name", "a.localhost"), "required behind a proxy"),
    ):
        found = run(project, "0", *more)
        assert found.returncode in {2, 4}, found.stderr
        assert words in " ".join(found.stderr.split())
        assert found.stdout == ""


@pytest.mark.timeout(60)
def test_a_refused_upload_gets_the_reason(project):
    """A connection that is cut off would lose the answer."""
    with serving(project) as (_, address):
        line = HTTPConnection(urlsplit(address).netloc, timeout=20)
        body = b"text=" + b"y" * 1_000_000
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        headers["Origin"] = f"http://{urlsplit(address).netloc}"
        line.request("POST", "/skill/edit?ref=x", body, headers)
        answer = line.getresponse()
        assert answer.status == 401
        assert b"You are signed out" in answer.read()
        line.close()


@pytest.mark.timeout(60)
def test_without_tls_on_a_network_a_warning_is_printed(project, tmp_path):
    file = tmp_path / "password"
    file.write_text("correct horse battery\n")
    file.chmod(0o644)
    with serving(project, "--host", "0.0.0.0", "--password-file", str(file)) as (made, address):
        assert address.startswith(f"http://{socket.gethostname()}:")
        said = ""
        while "--behind-https" not in said:
            said += made.stderr.readline()
        made.terminate()
        assert made.wait(60) == 0
        said = " ".join(said.split())
        assert "put a proxy with TLS in front" in said
        assert f"Others on this machine can read `{file}`" in said


# --- shutdown of the shared state ----------------------------------------------------------


class Torn:
    """An engine whose close fails."""

    name = "torn"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        raise OSError("database went away")


def test_a_part_that_cannot_be_closed_does_not_stop_the_others(satchel, monkeypatch):
    monkeypatch.setattr("satchel.ui.engine_connection.open_engine", lambda _: Torn())
    ended: list[str] = []

    def odd() -> None:
        ended.append("fetches")
        raise ValueError("odd")

    async def live() -> None:
        state = AppState(satchel, UiAccess())
        state.live.start()
        await state.goals.connection.engine()
        monkeypatch.setattr(state.fetches, "clear", odd)
        monkeypatch.setattr(state.plans, "clear", lambda: ended.append("plans"))
        await state.close()
        assert "satchel-ui-live" not in {one.name for one in threading.enumerate()}

    asyncio.run(live())
    assert ended == ["fetches", "plans"]
    found = [one.values["reason"] for one in satchel.trace.events if one.kind == "failed"]
    assert found == ["OSError: database went away", "ValueError: odd"]


def test_an_object_is_kept_for_its_lifetime():
    released: list[str] = []
    kept = PendingItems[str](2, released.append, lifetime=0.0)
    key = kept.add("plan")
    assert kept.get(key) is None
    assert released == ["plan"]
    with pytest.raises(NotFound):
        kept.pop(key)
