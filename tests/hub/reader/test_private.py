"""Private hubs behind Caddy: the credential opens them, and gets to no other host or file."""

from __future__ import annotations

import base64
import logging
import os
import posixpath
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from http_answers import answering, reply
from hub import servers
from hub.reader.test_hub_source import write_hub
from needs import needs
from satchel.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "tok-7f3a91c2d4e5"
USER, PASSWORD = "reader", "pass-58d1b0c9"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (TOKEN, PASSWORD, BASIC)
VARIABLE = "SATCHEL_HUB_CREDENTIALS"
GREET = "acme/greet"
BY_TOKEN = f'@denied not header Authorization "Bearer {TOKEN}"\nrespond @denied 401'


@pytest.fixture
def start_at(tmp_path) -> Iterator[Callable[[str, str], str]]:
    """Serve a folder with rules of Caddy; returns the address."""
    running: list[Any] = []

    def serve(served: str, rules: str) -> str:
        folder = tmp_path / f"caddy-{len(running)}"
        folder.mkdir()
        running.append(servers.caddy_with(folder, Path(served), rules))
        return next(running[-1])

    yield serve
    for server in running:
        server.close()


@pytest.fixture
def start(start_at, hub) -> Callable[[str], str]:
    """Serve the hub with rules of Caddy; returns the address."""
    return partial(start_at, hub.folder)


@contextmanager
def _recording(folder: str, answer: Callable[..., bool] | None = None) -> Iterator[Any]:
    """A foreign host with a copy of the hub, which records what it is sent."""
    sent: list[str] = []

    def respond(handler: Any) -> None:
        sent.append(f"{handler.path}\n{handler.headers}")
        if answer is not None and answer(handler):
            return
        path = os.path.join(folder, posixpath.normpath(handler.path.partition("?")[0]).lstrip("/"))
        if not os.path.isfile(path):
            reply(handler, 404)
            return
        reply(handler, 200, Path(path).read_bytes())

    with answering(respond) as host:
        yield SimpleNamespace(host=host, url=f"http://{host}", sent=sent)


@pytest.fixture
def foreign(hub) -> Iterator[Any]:
    with _recording(hub.folder) as server:
        yield server


def _host(url: str) -> str:
    return url.removeprefix("http://")


@pytest.fixture
def install(hub, reader, capsys, monkeypatch) -> Callable[..., tuple[int, str]]:
    """Install from an address with the command; returns its status and what it printed."""
    monkeypatch.chdir(reader.project)
    monkeypatch.setenv("COLUMNS", "500")

    def command(url: str, *words: str) -> tuple[int, str]:
        hub_like = SimpleNamespace(
            name=hub.name, settings={hub.name: hub.settings[hub.name] | {"url": url}}
        )
        write_hub(reader.project / "satchel.toml", hub_like)
        status = run([*(words or ("install", GREET)), "--yes"])
        return status, "".join(capsys.readouterr())

    return command


def _assert_secret(reader: Any, *texts: str) -> None:
    """Nothing printed, sent elsewhere or written has a credential."""
    root = reader.project.parent
    paths = [path for path in root.rglob("*") if path.is_file() and path.name != ".netrc"]
    contents = [path.read_bytes().decode("utf-8", "replace") for path in paths]
    assert (reader.project / "satchel.toml") in paths
    leaks = [text for text in (*texts, *contents) for secret in SECRETS if secret in text]
    assert leaks == []


def _by_password() -> str:
    """The rule of Caddy for basic authentication."""
    words = [needs("caddy"), "hash-password", "--plaintext", PASSWORD, "--bcrypt-cost", "4"]
    digest = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    return f"basic_auth {{\n{USER} {digest}\n}}"


# --- it opens the hub ----------------------------------------------------------------------


@pytest.mark.parametrize("source", ["environment", "netrc", "keyring"])
@pytest.mark.parametrize("kind", ["token", "basic"])
def test_a_credential_opens_a_private_hub(kind, source, start, install, reader, monkeypatch, hub):
    secret, rules = TOKEN, BY_TOKEN
    if kind == "basic" or source == "netrc":
        secret, rules = f"{USER}:{PASSWORD}", _by_password()
    url = start(rules)
    status, printed = install(url)
    assert status == 4
    assert f"`{url}/state` needs a credential" in printed
    if source == "environment":
        monkeypatch.setenv(VARIABLE, f"other.example=x {_host(url)}={secret}")
    elif source == "netrc":
        text = f"machine {_host(url)} login {USER} password {PASSWORD}\n"
        (reader.home / ".netrc").write_text(text)
        (reader.home / ".netrc").chmod(0o600)
    else:
        ring = {("satchel-hub", _host(url)): secret}
        module = SimpleNamespace(get_password=lambda service, name: ring.get((service, name)))
        monkeypatch.setitem(sys.modules, "keyring", module)
    status, printed = install(url)
    assert status == 0, printed
    hub.release(GREET, "1.2.0", "Say hello three times.")
    hub.build()
    updated = install(url, "update")
    assert updated[0] == 0, updated
    assert "three times" in reader.text("greet")
    assert reader.place.url == f"{url}/acme/greet"
    _assert_secret(reader, printed, updated[1])
    monkeypatch.setenv(VARIABLE, f"{_host(url)}=wrong-{kind}")
    status, printed = install(url, "update")
    assert status != 0
    assert "refuses the credential for its host" in printed
    assert "wrong-" not in printed


@pytest.mark.parametrize("kind", ["token", "basic"])
def test_a_keeper_checks_and_copies_a_private_hub(
    kind, start_at, shell, store, write_skill, tmp_path, monkeypatch
):
    shell.publish(store, write_skill())
    shell.build(store)
    secret, rules = TOKEN, BY_TOKEN
    if kind == "basic":
        secret, rules = f"{USER}:{PASSWORD}", _by_password()
    copy = tmp_path / "copy"
    key = ["--key", shell.keys["hub"] + ".pub"]
    with _recording(store) as server:
        moved = f"{rules}\nredir /blobs/* {server.url}{{uri}} 302"
        url = start_at(store, moved)
        shell.fails(4, f"`{url}/state` needs a credential", "hub", "check", url, *key)
        monkeypatch.setenv(VARIABLE, f"{_host(url)}={secret}")
        assert shell.check(url)["releases"] == 1
        assert shell.run("hub", "mirror", url, str(copy), *key)[0] == 0
        assert len(server.sent) == 2
        assert not any("Authorization" in sent for sent in server.sent)
    assert shell.check(str(copy))["releases"] == 1
    away = start_at(store, f"{rules}\nredir /state {server.url}{{uri}} 302")
    monkeypatch.setenv(VARIABLE, f"{_host(away)}={secret}")
    shell.fails(4, "redirects to another address", "hub", "check", away, *key)
    monkeypatch.setenv(VARIABLE, f"{_host(url)}=wrong-{kind}")
    shell.fails(4, "refuses the credential for its host", "hub", "mirror", url, str(copy), *key)
    assert "wrong-" not in shell.err
    words = ["skills/acme/notes", url, "--as", "acme", "--key", shell.keys["acme"]]
    shell.fails(4, "is a web address, which is only read", "publish", *words)
    contents = [path.read_bytes() for path in copy.rglob("*") if path.is_file()]
    assert contents
    assert not any(text.encode() in data for text in SECRETS for data in contents)


# --- it gets nowhere else ------------------------------------------------------------------

REDIRECTS = {
    "state": ("/state", 302, False),
    "the index": ("/index/*", 307, True),
    "the revocation list": ("/revoked/*", 301, True),
    "a blob": ("/blobs/*", 308, True),
    "everything": ("*", 302, False),
}
TARGETS = ["http://{host}{{uri}}", "http://x:y@{host}{{uri}}", "//{host}{{uri}}?token=abc"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", REDIRECTS)
def test_a_redirect_gets_no_credential(what, target, start, install, reader, foreign, monkeypatch):
    """Fifteen tries; only files whose digest is known are read from elsewhere."""
    pattern, status, is_followed = REDIRECTS[what]
    place = target.format(host=foreign.host)
    url = start(f"{BY_TOKEN}\nredir {pattern} {place} {status}")
    monkeypatch.setenv(VARIABLE, f"{_host(url)}={TOKEN}")
    code, printed = install(url)
    is_allowed = is_followed and "@" not in target
    assert (code == 0, bool(foreign.sent)) == (is_allowed, is_allowed), printed
    assert "token=abc" not in printed
    _assert_secret(reader, printed, *foreign.sent)


def _echo_location(handler: Any) -> bool:
    secret = handler.headers.get("Authorization", "").partition(" ")[2]
    reply(handler, 302, Location=f"https://other.example/{secret}")
    return True


def _echo_status_line(handler: Any) -> bool:
    handler.wfile.write(f"{handler.headers.get('Authorization')}\r\n\r\n".encode())
    return True


def _echo_body(handler: Any) -> bool:
    reply(handler, 500, str(handler.headers).encode(), X_Echo=handler.headers["Authorization"])
    return True


@pytest.mark.parametrize("answer", [_echo_location, _echo_status_line, _echo_body])
def test_an_error_has_no_credential(answer, install, reader, hub, monkeypatch):
    for secret in (TOKEN, f"{USER}:{PASSWORD}"):
        with _recording(hub.folder, answer) as server:
            monkeypatch.setenv(VARIABLE, f"{server.host}={secret}")
            code, printed = install(server.url)
        assert code != 0
        assert any(text in server.sent[0] for text in SECRETS), "it was sent to its own host"
        _assert_secret(reader, printed)


def test_a_second_redirect_is_refused(start, install, reader, hub, monkeypatch):
    def onward(handler: Any) -> bool:
        reply(handler, 302, Location=url)
        return True

    with _recording(hub.folder, onward) as server:
        url = start(f"{BY_TOKEN}\nredir /blobs/* {server.url}{{uri}} 302")
        monkeypatch.setenv(VARIABLE, f"{_host(url)}={TOKEN}")
        code, printed = install(url)
    assert code != 0
    _assert_secret(reader, printed, *server.sent)


@pytest.mark.parametrize("trick", ["other port", "localhost", "netrc", "netrc default", "user"])
def test_another_address_in_the_settings_gets_none(
    trick, start, install, reader, foreign, monkeypatch
):
    """A project names its hub; the credential stays with the host that the user gave it to."""
    own = _host(start(BY_TOKEN))
    monkeypatch.setenv(VARIABLE, f"{own}={TOKEN}")
    machine = {"netrc": "machine 127.0.0.1", "netrc default": "default"}.get(trick)
    if machine:
        (reader.home / ".netrc").write_text(f"{machine} login {USER} password {PASSWORD}\n")
        (reader.home / ".netrc").chmod(0o600)
    url = foreign.url
    if trick == "localhost":
        url = url.replace("127.0.0.1", "localhost")
    if trick == "user":
        url = f"http://{own}@{foreign.host}"
    code, printed = install(url)
    assert (code == 0) is (trick != "user"), printed
    assert bool(foreign.sent) is (trick != "user")
    _assert_secret(reader, printed, *foreign.sent)
    assert not any("Authorization" in sent for sent in foreign.sent)


@pytest.mark.parametrize("end", ["\nX: y", "\r", "\x00", "é"])
def test_a_credential_that_cannot_be_sent_is_refused(end, foreign, install, reader, monkeypatch):
    module = SimpleNamespace(get_password=lambda *_: TOKEN + end)
    monkeypatch.setitem(sys.modules, "keyring", module)
    code, printed = install(foreign.url)
    assert (code, foreign.sent) == (2, [])
    assert "cannot be sent" in printed
    _assert_secret(reader, printed)


COMMANDS = (
    ("hub", "add", "{url}", "--yes", "--json"),
    ("install", GREET, "--yes", "--json"),
    ("update", "--json"),
    ("search", "--hub", "greetings", "--json"),
    ("verify", "--revoked", "--json"),
    ("why", "greet", "--json"),
    ("doctor", "--json"),
    ("config", "list", "--json"),
    ("hub", "reset", "skills.acme.example", "--yes", "--json"),
    ("hub", "add", "http://{secret}@{host}", "--yes"),
)


@pytest.mark.parametrize("kind", ["token", "basic"])
def test_no_command_shows_or_keeps_the_credential(
    kind, start, reader, foreign, monkeypatch, capsys, caplog, tmp_path
):
    """Ten tries for each kind, with a log of the server, debug logs and a foreign proxy."""
    secret, rules = (TOKEN, BY_TOKEN) if kind == "token" else (f"{USER}:{PASSWORD}", _by_password())
    access_log = tmp_path / "access.log"
    away = f"redir /blobs/* {foreign.url}{{uri}} 302"
    url = start(f"log {{\noutput file {access_log}\n}}\n{rules}\n{away}")
    monkeypatch.chdir(reader.project)
    monkeypatch.setenv(VARIABLE, f"{_host(url)}={secret}")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, foreign.url)
    caplog.set_level(logging.DEBUG)
    failed: list[str] = []
    for words in COMMANDS:
        values = {"url": url, "host": _host(url), "secret": secret}
        status = run([word.format(**values) for word in words])
        _assert_secret(reader, "".join(capsys.readouterr()), caplog.text)
        failed += [" ".join(words)] if status else []
    assert failed == [" ".join(COMMANDS[-1])]
    assert foreign.sent
    assert not any("Authorization" in sent for sent in foreign.sent)
    logged = access_log.read_text()
    assert "/state" in logged
    assert not any(text in logged for text in SECRETS)
