"""Authentication over HTTP, and the part of each client."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time

import pytest

from mcp_talk import Refusal, Talk, events, serving, write_skill
from satchel.errors import InvalidInput, NotFound, Refused, SettingsError
from satchel.integrations.mcp.http import read_clients, token_from

pytestmark = pytest.mark.timeout(60)

LAPTOP, BUILD = "laptop-" + "a" * 32, "build-" + "b" * 32


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A project for two clients."""
    folder = str(tmp_path_factory.mktemp("shop"))
    write_skill(folder, "pdf-forms", "tags: [office]\n")
    write_skill(folder, "pdf-merge", "tags: [office]\n")
    write_skill(folder, "deploy-site", "tags: [ops]\n")
    return folder


@pytest.fixture(scope="module")
def table(shop):
    path = os.path.join(shop, "clients.toml")
    digest = hashlib.sha256(BUILD.encode()).hexdigest()
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'[clients.laptop]\ntoken-env = "LAPTOP_TOKEN"\ninclude = ["pdf-*"]\n'
            f'exclude = ["*-merge"]\n\n[clients.build]\ntoken-sha256 = "{digest}"\n'
            f'tags = ["ops"]\ntools = false\n'
        )
    return path


@pytest.fixture(scope="module")
def door(shop, table):
    with serving(shop, "--clients", table, LAPTOP_TOKEN=LAPTOP) as url:
        yield url


def names(talk):
    return {one["frontmatter"]["name"] for one in talk.ask("skills/list")["skills"]}


def test_without_a_token_nobody_comes_in(door):
    for token in ("", "wrong", LAPTOP + "x", hashlib.sha256(BUILD.encode()).hexdigest()):
        with pytest.raises(Refusal) as caught:
            Talk(door, token).ask("skills/list")
        assert caught.value.status == 401


def test_each_client_has_its_own_part(door):
    laptop, build = Talk(door, LAPTOP), Talk(door, BUILD)
    assert names(laptop) == {"pdf-forms"}
    assert names(build) == {"deploy-site"}
    with pytest.raises(Refusal) as caught:
        build.ask("resources/read", uri="skill://pdf-forms/SKILL.md")
    assert caught.value.code == -32602
    assert "pdf-forms" not in json.dumps(build.ask("prompts/list"))
    reply = laptop.ask("tools/call", name="Skill", arguments={"name": "deploy-site"})
    assert reply["isError"] is True
    assert "deploy-site" not in laptop.ask("tools/list")["tools"][1]["description"]
    assert build.ask("tools/list")["tools"] == []
    with pytest.raises(Refusal):
        build.ask("tools/call", name="Skill", arguments={"name": "deploy-site"})
    assert laptop.ask("skills/list")["cacheScope"] == "private"


def test_each_client_hears_only_of_its_own_part(door, shop):
    laptop = events(door, LAPTOP, resourcesListChanged=True, promptsListChanged=True)
    build = events(door, BUILD, resourcesListChanged=True, promptsListChanged=True)
    time.sleep(0.5)
    write_skill(shop, "restart-site", "tags: [ops]\n")
    assert "list_changed" in build.next()["method"]
    assert laptop.quiet(1)
    laptop.close()
    build.close()


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
    assert "nobody needs a token" in done.stderr
    assert "--token-env" in done.stderr


def test_tokens_come_from_safe_places(monkeypatch, tmp_path):
    monkeypatch.setenv("SHORT", "abc")
    with pytest.raises(InvalidInput, match="16 characters"):
        token_from("SHORT")
    with pytest.raises(NotFound, match="Not set"):
        token_from("NOBODY_SET_THIS")
    with pytest.raises(NotFound, match="cannot be read"):
        token_from(file=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clients = 1", "no table"),
        ("[clients.a]\n", "needs one of"),
        ("[clients.a]\ntoken = 'x'\n", "`token` is not valid"),
        ("[clients.a]\ntoken-sha256 = 'x'\n", "`token-sha256` is not valid"),
        ("[clients.a]\ntoken-sha256 = 'x'\ninclude = 'y'\n", "`include` is not valid"),
        ("[clients.a]\ntoken-sha256 = 'x'\ntools = 'y'\n", "`tools` is not valid"),
        ("[clients.a]\ntoken-sha256 = 'x'\ntoken-env = 'y'\n", "needs one of"),
        ("[clients.a\n", "cannot be used"),
        ("".join(f"[clients.{one}]\ntoken-sha256 = '{'0' * 64}'\n" for one in "ab"), "same token"),
    ],
)
def test_a_table_of_clients_that_is_wrong_says_so(tmp_path, text, why):
    file = tmp_path / "clients.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why):
        read_clients(str(file))
