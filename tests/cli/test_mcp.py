"""The command `mcp serve`, and usage errors of `mcp`."""

from __future__ import annotations

import json
import sys

import pytest

from satchel.errors import InvalidInput

pytestmark = pytest.mark.timeout(60)


def test_a_program_is_served(terminal):
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    done = terminal.run("mcp", "serve", stdin=json.dumps(hello) + "\n")
    assert json.loads(done.out)["result"]["serverInfo"]["name"] == "satchel", done.err
    assert terminal.run("mcp").out == terminal.run("mcp", "--help").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve --host 0.0.0.0", "`--host` needs `--http`"),
        ("instal", "did you mean `satchel mcp install`?"),
        ("rm docs", "did you mean `satchel mcp remove`?"),
        ("serve --http --port 70000", "`--port` needs a whole number (0…65535), not `70000`"),
        ("serve --http --no-token --token-env X", "Give one of `--no-token`"),
        ("install claude", "Did you mean `claude-desktop`, `claude-code`?"),
    ],
)
def test_wrong_names_have_a_suggestion(terminal, words, said):
    done = terminal.run("mcp", *words.split())
    assert done.status == InvalidInput.exit_code
    assert said in done.err


def test_the_number_of_untrusted_skills_is_printed(terminal):
    terminal.skill("skills/untrusted", "---\nname: untrusted\ndescription: x\n---\nx\n")
    for words in (("install", "cursor", "--dry-run"), ("serve",)):
        done = terminal.run("mcp", *words, SATCHEL_TRUST="ask", stdin="")
        assert "not trusted yet: run `satchel trust`" in done.err, words


def test_serving_does_not_query_other_servers(terminal):
    """Else a server whose own configuration names it would start itself without end."""
    mark = terminal.home / "asked"
    program = [sys.executable, "-c", f"open({str(mark)!r}, 'w').close()"]
    servers = json.dumps({"own": {"command": program}})
    done = terminal.run("mcp", "serve", SATCHEL_SERVERS=servers, SATCHEL_TRUST="all")
    assert "Skills of other servers are not served" in done.err
    assert not mark.exists()
    terminal.run("list", SATCHEL_SERVERS=servers)
    assert mark.exists()  # the command is one that leaves a mark
