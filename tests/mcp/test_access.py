"""Authentication over HTTP, and what a project leaves out."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

from mcp_talk import Refusal, Talk, serving, write_skill
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.integrations.mcp.http import token_from

pytestmark = pytest.mark.timeout(60)

TOKEN = "laptop-" + "a" * 32


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A project whose settings leave a skill out."""
    folder = str(tmp_path_factory.mktemp("shop"))
    for name in ("pdf-forms", "deploy-site"):
        write_skill(folder, name)
    with open(os.path.join(folder, "satchel.toml"), "w", encoding="utf-8") as file:
        file.write('include = ["pdf-*"]\n')
    return folder


@pytest.fixture(scope="module")
def door(shop):
    with serving(shop, "--token-env", "SHOP_TOKEN", SHOP_TOKEN=TOKEN) as url:
        yield url


def names(talk):
    return {one["frontmatter"]["name"] for one in talk.ask("skills/list")["skills"]}


def test_without_a_token_nobody_comes_in(door):
    for token in ("", "wrong", TOKEN + "x", hashlib.sha256(TOKEN.encode()).hexdigest()):
        with pytest.raises(Refusal) as caught:
            Talk(door, token).ask("skills/list")
        assert caught.value.status == 401


def test_what_is_left_out_is_served_in_no_way(door):
    talk = Talk(door, TOKEN)
    assert names(talk) == {"pdf-forms"}
    with pytest.raises(Refusal) as caught:
        talk.ask("resources/read", uri="skill://deploy-site/SKILL.md")
    assert caught.value.code == -32602
    reply = talk.ask("tools/call", name="Skill", arguments={"name": "deploy-site"})
    assert reply["isError"] is True
    for method in ("prompts/list", "tools/list"):
        assert "deploy-site" not in json.dumps(talk.ask(method))


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
