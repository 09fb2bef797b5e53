"""Where a visitor from another machine may let this one fetch from."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.store.sources import source_of
from satchel.store.sources.base import parse_address
from satchel.store.sources.git import GitSource
from satchel.store.sources.git_program import environment
from satchel.ui.addresses import check_elsewhere, check_public, is_public


@pytest.mark.parametrize(
    "text",
    [
        "https://h/o/r",
        "HTTP://h/o/r",
        "ssh://git@h/r",
        "git://h/r",
        "git@h:o/r",
        "git+https://h/o/r",
    ],
)
def test_an_address_elsewhere_is_one(text):
    check_elsewhere(text)


@pytest.mark.parametrize(
    "text",
    ["", ".", "/etc", "~", "file:///etc", "git+file:///etc", "ext::sh", "-x@h:p", "a@b://c",
     "ä@h:p"],
)  # fmt: skip
def test_whatever_could_be_read_as_a_path_is_none(text):
    with pytest.raises(InvalidInput, match="no address of a repository"):
        check_elsewhere(text)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.1.2.3", "192.168.0.1", "169.254.169.254", "[::1]", "[fe80::1]",
     "[fd00::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1", "100.64.0.1"],
)  # fmt: skip
def test_this_machine_and_its_neighbours_are_refused(host, tmp_path):
    with pytest.raises(Refused, match="its own network"):
        check_public(source_of(f"https://{host}/o/r", base=str(tmp_path)))


def test_an_address_within_another_counts():
    assert not is_public("64:ff9b::7f00:1")
    assert not is_public("2002:7f00:1::")
    assert not is_public("fe80::1%eth0")
    assert is_public("64:ff9b::808:808")


def test_git_does_not_go_where_a_public_server_points_to(tmp_path):
    """The first server sends it on to the second, which stands for a neighbour."""
    asked: list[str] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    class Pointing(Neighbour):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{there.server_port}{self.path}")
            self.end_headers()

    there = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    here = ThreadingHTTPServer(("127.0.0.1", 0), Pointing)
    for server in (there, here):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for pinned in (("127.0.0.1",), ()):
        source = source_of(f"http://127.0.0.1:{here.server_port}/o/r", base=str(tmp_path))
        assert isinstance(source, GitSource)
        source.pinned = pinned
        with pytest.raises(NotFound), source.fetch():
            pass
        assert bool(asked) is not bool(pinned)
    for server in (there, here):
        server.shutdown()
        server.server_close()


def test_git_goes_where_the_name_led_when_it_was_looked_at(tmp_path):
    """`localhost` stands for a name that leads to this machine when it is asked a second time."""
    asked: list[str] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for host, pinned, comes in (
        ("localhost", ("127.0.0.2",), False),
        ("nowhere.example", ("127.0.0.1",), True),
    ):
        source = source_of(f"http://{host}:{server.server_port}/o/r", base=str(tmp_path))
        assert isinstance(source, GitSource)
        source.pinned = pinned
        with pytest.raises(NotFound), source.fetch():
            pass
        assert bool(asked) is comes
    server.shutdown()
    server.server_close()


def test_git_runs_errands_for_others_as_nobody(tmp_path, monkeypatch):
    """No password, no header, no other name for the address, and no proxy of this user."""
    asked: list[tuple[str, str | None, str | None]] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization"), self.headers.get("X-Mine")))
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://repos.example:{server.server_port}"
    (tmp_path / ".netrc").write_text("machine repos.example login me password secret\n")
    config = tmp_path / ".gitconfig"
    config.write_text(
        f'[url "http://127.0.0.1:1/"]\ninsteadOf = {address}/\n'
        "[http]\nextraHeader = X-Mine: secret\n"
        '[credential]\nhelper = "!echo username=me; echo password=secret; :"\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    source = source_of(f"{address}/o/r", base=str(tmp_path))
    assert isinstance(source, GitSource)
    source.pinned = ("127.0.0.1",)
    with pytest.raises(SatchelError), source.fetch():
        pass
    assert asked
    assert {(auth, mine) for _, auth, mine in asked} == {(None, None)}
    server.shutdown()
    server.server_close()


def test_who_is_elsewhere_fetches_over_http_alone(tmp_path):
    for text in ("git@8.8.8.8:o/r", "ssh://git@8.8.8.8/o/r", "git://8.8.8.8/o/r"):
        source = source_of(text, base=str(tmp_path))
        assert isinstance(source, GitSource)
        source.pinned = check_public(source)
        with pytest.raises(Refused, match="only over http or https"), source.fetch():
            pass


def test_an_errand_for_others_takes_nothing_along_that_says_who_the_owner_is(monkeypatch):
    for name in ("KRB5CCNAME", "SSH_AUTH_SOCK", "https_proxy", "GIT_SSL_KEY"):
        monkeypatch.setenv(name, "mine")
    address = parse_address("https://8.8.8.8/o/r")
    own, errand = environment(address), environment(address, ("8.8.8.8",))
    for name in ("KRB5CCNAME", "SSH_AUTH_SOCK", "https_proxy", "GIT_SSL_KEY"):
        assert name in own
        assert name not in errand
    count = int(errand["GIT_CONFIG_COUNT"])
    told = {errand[f"GIT_CONFIG_KEY_{at}"]: errand[f"GIT_CONFIG_VALUE_{at}"] for at in range(count)}
    assert told["http.emptyAuth"] == "false"  # no ticket of a domain
    assert told["http.followRedirects"] == "false"


def test_a_git_that_cannot_be_kept_to_an_address_is_not_used(tmp_path, monkeypatch):
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\necho git version 2.36.1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    source = source_of("https://8.8.8.8/o/r", base=str(tmp_path))
    assert isinstance(source, GitSource)
    source.pinned = ("8.8.8.8",)
    with pytest.raises(Refused, match="too old"), source.fetch():
        pass
