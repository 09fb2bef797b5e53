"""Authentication over HTTP."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from mcp_talk import Refusal, Talk, serving, write_skill
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.integrations.mcp.http import token_from

pytestmark = pytest.mark.timeout(60)

TOKEN = "laptop-" + "a" * 32


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("shop"))
    write_skill(folder, "pdf-forms")
    return folder


@pytest.fixture(scope="module")
def door(shop):
    with serving(shop, "--token-env", "SHOP_TOKEN", SHOP_TOKEN=TOKEN) as url:
        yield url


def names(talk):
    return {one["frontmatter"]["name"] for one in talk.ask("skills/list")["skills"]}


def test_a_request_without_a_token_is_refused(door):
    assert names(Talk(door, TOKEN)) == {"pdf-forms"}
    for token in ("", "wrong", TOKEN + "x", hashlib.sha256(TOKEN.encode()).hexdigest()):
        with pytest.raises(Refusal) as caught:
            Talk(door, token).ask("skills/list")
        assert caught.value.status == 401


@pytest.mark.parametrize("header", ["Origin", "Host"])
@pytest.mark.parametrize(
    ("ending", "refused"), [("", False), (".evil", True), (":evil", True), ("@evil.example", True)]
)
def test_a_port_with_more_than_a_number_is_refused(door, header, ending, refused):
    address = urlsplit(door)
    value = f"http://{address.netloc}" if header == "Origin" else address.netloc
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    line = HTTPConnection(address.netloc)
    line.request("POST", address.path, b"{}", {**headers, header: value + ending})
    status = line.getresponse().status
    line.close()
    assert (status in (403, 421)) == refused


def test_on_this_machine_a_token_is_made(shop):
    command = [sys.executable, "-m", "satchel", "mcp", "serve", "--http", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--project", shop],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SATCHEL_TRUST": "all", "COLUMNS": "200"},
    )
    try:
        url = process.stderr.readline().split()[-1]
        process.stderr.readline()
        token = process.stderr.readline().removeprefix("Authorization: Bearer ").strip()
        assert "pdf-forms" in names(Talk(url, token))
        for wrong in ("", token[:-1], "x" * 43):
            with pytest.raises(Refusal) as caught:
                Talk(url, wrong).ask("tools/list")
            assert caught.value.status == 401
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


def test_it_is_not_opened_to_others_without_a_token(shop):
    command = [sys.executable, "-m", "satchel", "mcp", "serve", "--http", "--host", "0.0.0.0"]
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "src"))
    done = subprocess.run(
        [*command, "--port", "0", "--project", shop],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == Refused.exit_code
    assert "without a token" in done.stderr
    assert "--token-env" in done.stderr


def test_a_token_is_set_and_long_enough(monkeypatch):
    monkeypatch.setenv("SHORT", "abc")
    with pytest.raises(InvalidInput, match="16 characters"):
        token_from("SHORT")
    with pytest.raises(NotFound, match="Not set"):
        token_from("NOBODY_SET_THIS")
