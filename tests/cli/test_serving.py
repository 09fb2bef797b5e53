"""`satchel mcp serve` and `check`: what each takes, and whose skills they are about."""

from __future__ import annotations

import json
import sys

import pytest

from satchel.errors import InvalidInput

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve --host 0.0.0.0", "`--host` is only for a server over HTTP"),
        ("serve --token-env X", "`--token-env` is only for a server over HTTP"),
        ("serve --port 1", "`--port` is only for a server over HTTP"),
        ("check --http", "`satchel mcp check` does not take `--http`"),
        ("check --no-tools", "`satchel mcp check` does not take `--no-tools`"),
        ("install --client codex --to x", "It belongs to `satchel mcp copy`"),
        ("install --client codex --token-env X", "does not take `--token-env`"),
        ("list --yes", "`satchel mcp list` does not take `--yes`"),
        ("serve --client codex", "It belongs to `satchel mcp install`"),
    ],
)
def test_options_of_another_action_are_refused(terminal, words, said):
    done = terminal.run("mcp", *words.split())
    assert done.status == InvalidInput.exit_code
    assert said in done.err


def test_other_servers_are_not_asked_for_what_is_handed_on(terminal):
    """Else a server whose own configuration names it would start itself without end."""
    mark = terminal.home / "asked"
    program = [sys.executable, "-c", f"open({str(mark)!r}, 'w').close()"]
    servers = json.dumps({"own": {"command": program}})
    done = terminal.run("mcp", "check", SATCHEL_SERVERS=servers, SATCHEL_TRUST="all")
    assert "Skills of other servers are left out" in done.err
    assert not mark.exists()
    terminal.run("list", SATCHEL_SERVERS=servers)
    assert mark.exists()  # the command is one that leaves a mark
