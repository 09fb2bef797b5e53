"""Repository addresses that remote users may import from."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from http_answers import answering, reply
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.store.sources import source_of
from satchel.store.sources.base import parse_address
from satchel.store.sources.git import GitSource, environment
from satchel.ui.imports import is_public, require_public, require_remote


def test_only_the_address_of_a_remote_repository_is_accepted():
    for text in ("https://h/o/r", "HTTP://h/o/r", "ssh://git@h/r", "git://h/r", "git@h:o/r",
                 "git+https://h/o/r"):  # fmt: skip
        require_remote(text)
    for text in ("", ".", "/etc", "~", "file:///etc", "git+file:///etc", "ext::sh", "-x@h:p",
                 "a@b://c", "ä@h:p"):  # fmt: skip
        with pytest.raises(InvalidInput, match="is not a repository URL"):
            require_remote(text)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.1.2.3", "192.168.0.1", "169.254.169.254", "[::1]", "[fe80::1]",
     "[fd00::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1", "100.64.0.1"],
)  # fmt: skip
def test_this_machine_and_its_neighbours_are_refused(host, tmp_path):
    with pytest.raises(Refused, match="is not a public host"):
        require_public(source_of(f"https://{host}/o/r", base=str(tmp_path)))


def test_an_address_within_another_counts():
    assert not is_public("64:ff9b::7f00:1")
    assert not is_public("2002:7f00:1::")
    assert not is_public("fe80::1%eth0")
    assert is_public("64:ff9b::808:808")


def fetch(address: str, pinned: tuple[str, ...], tmp_path) -> None:
    """Fetch from an address that resolved to `pinned`."""
    source = source_of(address, base=str(tmp_path))
    assert isinstance(source, GitSource)
    source.pinned = pinned
    with source.fetch():
        pass


@contextmanager
def neighbour():
    """A private server, and the paths that were requested from it."""
    asked: list[str] = []

    def respond(handler) -> None:
        asked.append(handler.path)
        reply(handler, 404)

    with answering(respond) as host:
        yield host, asked


def test_git_does_not_go_where_a_public_server_points_to(tmp_path):
    """The first server redirects to the second, a private one."""
    with (
        neighbour() as (there, asked),
        answering(lambda one: reply(one, 302, Location=f"http://{there}{one.path}")) as here,
    ):
        for pinned in (("127.0.0.1",), ()):
            with pytest.raises(NotFound):
                fetch(f"http://{here}/o/r", pinned, tmp_path)
            assert bool(asked) is not bool(pinned)


def test_git_goes_where_the_name_led_when_it_was_looked_at(tmp_path):
    """`localhost` is a name that resolves to this machine the second time."""
    with neighbour() as (there, asked):
        port = there.partition(":")[2]
        for host, pinned, comes in (
            ("localhost", "127.0.0.2", False),
            ("nowhere.example", "127.0.0.1", True),
        ):
            with pytest.raises(NotFound):
                fetch(f"http://{host}:{port}/o/r", (pinned,), tmp_path)
            assert bool(asked) is comes


def test_git_runs_errands_for_others_as_nobody(tmp_path, monkeypatch):
    """No password, no header, no other name for the address, and no proxy of this user."""
    asked: list[tuple[str | None, str | None]] = []

    def respond(handler) -> None:
        asked.append((handler.headers.get("Authorization"), handler.headers.get("X-Mine")))
        reply(handler, 401, WWW_Authenticate='Basic realm="x"')

    with answering(respond) as there:
        address = f"http://repos.example:{there.partition(':')[2]}"
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
        with pytest.raises(SatchelError):
            fetch(f"{address}/o/r", ("127.0.0.1",), tmp_path)
    assert set(asked) == {(None, None)}


def test_who_is_elsewhere_fetches_over_http_alone(tmp_path):
    for text in ("git@8.8.8.8:o/r", "ssh://git@8.8.8.8/o/r", "git://8.8.8.8/o/r"):
        pinned = require_public(source_of(text, base=str(tmp_path)))
        with pytest.raises(Refused, match="only over https"):
            fetch(text, pinned, tmp_path)


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
    assert told["http.emptyAuth"] == "false"  # no Kerberos ticket
    assert told["http.followRedirects"] == "false"


def test_a_git_that_cannot_be_kept_to_an_address_is_not_used(tmp_path, monkeypatch):
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\necho git version 2.36.1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match=r"2\.37 or later"):
        fetch("https://8.8.8.8/o/r", ("8.8.8.8",), tmp_path)
