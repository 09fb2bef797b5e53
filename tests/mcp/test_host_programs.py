"""Servers that are programs: how they are started, listened to, and ended."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mcp_host import ask_again, hosting, refusals, states
from mcp_script import scripted
from satchel.library.remote.config import DEPTH

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)

PROGRAM = """
import hashlib, json, os, signal, sys, time

mode, log = sys.argv[1], sys.argv[2]
with open(log, "a") as stream:
    print(os.getpid(), file=stream)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "broken":
    print("no licence for", os.environ.get("DOCS_KEY"), file=sys.stderr, flush=True)
    sys.exit(3)
if mode == "host":  # a program that takes skills from servers itself, as `satchel mcp serve` may
    from satchel import Satchel
    satchel = Satchel.for_project(".", builtin=False)
    print([one.code for one in satchel.library.snapshot().problems], file=sys.stderr)

def say(i, result):
    print(json.dumps({"jsonrpc": "2.0", "id": i, "result": result}), flush=True)

text = b"---\\nname: notes\\ndescription: d\\n---\\nx\\n"
uri = "skill://notes/SKILL.md"
digest = "sha256:" + hashlib.sha256(text).hexdigest()
skill = {"uri": uri, "frontmatter": {"name": "notes", "description": "d"},
         "resources": [{"uri": uri, "digest": digest, "size": len(text)}]}
pages = 0
for line in sys.stdin:
    message = json.loads(line)
    i, method = message.get("id"), message.get("method")
    if i is None:
        continue
    if method == "initialize":
        say(i, {"protocolVersion": "2025-11-25", "serverInfo": {"name": "f", "version": "1"},
                "capabilities": {"extensions": {"io.modelcontextprotocol/skills": {}}}})
    elif method != "skills/list":
        print(json.dumps({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "no"}}),
              flush=True)
    elif mode == "stubborn":
        time.sleep(1000)
    elif mode == "endless":
        while True:
            sys.stdout.write("x" * 1_000_000)
    elif mode == "pages":
        pages += 1
        row = {**skill, "junk": "x" * 400_000} if pages > 1 else skill
        say(i, {"skills": [row], "nextCursor": str(pages)})
    else:
        say(i, {"skills": [skill]})
        if mode == "brief":
            break
"""


def row(folder: Path, mode: str, **more: Any) -> dict[str, Any]:
    """The table of a program, which notes each start of it."""
    source = folder / "server.py"
    source.write_text(PROGRAM)
    return {"command": [sys.executable, str(source), mode, str(folder / "starts")], **more}


def starts(folder: Path) -> list[int]:
    """The process of each start."""
    return [int(line) for line in (folder / "starts").read_text().split()]


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_that_is_a_host_itself_does_not_start_programs(tmp_path):
    config = tmp_path / "home" / "config.toml"
    config.parent.mkdir()
    table = row(tmp_path, "host", env=["SATCHEL_HOME", "PYTHONPATH"])
    words = ", ".join(f"'{word}'" for word in table["command"])
    config.write_text(f"[servers.docs]\ncommand = [{words}]\nenv = ['SATCHEL_HOME']\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SATCHEL_HOME", str(config.parent))
        with hosting(str(tmp_path), "", servers={"docs": table}) as satchel:
            ask_again(satchel)
            assert states(satchel) == {"notes": "active"}
            assert len(starts(tmp_path)) == 1


def test_a_nested_program_reports_that_servers_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv(DEPTH, "1")
    with hosting(str(tmp_path), "https://skills.example.com/mcp") as satchel:
        assert states(satchel) == {}
        assert "Skills of 1 servers are left out" in refusals(satchel)[0]


def test_a_program_that_died_is_started_again(tmp_path):
    with hosting(str(tmp_path), "", servers={"docs": row(tmp_path, "brief")}) as satchel:
        for count in (1, 2):
            ask_again(satchel)
            assert states(satchel) == {"notes": "active"}
            assert refusals(satchel) == []
            assert len(starts(tmp_path)) == count


def test_a_list_without_end_is_not_listened_to(tmp_path, monkeypatch):
    monkeypatch.setattr("satchel.library.remote.client.MAX_LIST_BYTES", 1_000_000)
    with hosting(str(tmp_path), "", servers={"docs": row(tmp_path, "pages")}) as satchel:
        ask_again(satchel)
        assert any("the limit is 1000000" in one for one in refusals(satchel))


@pytest.mark.parametrize("mode", ["endless", "stubborn"])
def test_a_library_that_is_closed_while_a_program_is_ended_waits_for_it(
    tmp_path, monkeypatch, mode
):
    monkeypatch.setattr("satchel.library.remote.source._LIST_TIMEOUT_S", 2.0)
    with hosting(str(tmp_path), "", servers={"docs": row(tmp_path, mode)}) as satchel:
        ask_again(satchel)
        assert any("it took too long" in one for one in refusals(satchel)), refusals(satchel)
    assert [one for one in threading.enumerate() if one.name == "satchel-docs"] == []
    [process] = starts(tmp_path)
    assert not lives(process)


def test_the_last_output_of_a_program_is_shown_without_its_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCS_KEY", "sk-very-secret")
    servers = {"docs": row(tmp_path, "broken", env=["DOCS_KEY"])}
    with hosting(str(tmp_path), "", servers=servers) as satchel:
        ask_again(satchel)
        [told] = refusals(satchel)
        assert "it said: no licence for •••" in told


def test_a_value_that_no_header_may_have_is_named_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCS_TOKEN", "sk-first\nsecond")
    with scripted() as (address, script):
        rows = {"docs": {"address": address, "token": "DOCS_TOKEN"}}
        with hosting(str(tmp_path), "", servers=rows) as satchel:
            ask_again(satchel)
            [told] = refusals(satchel)
        assert "`DOCS_TOKEN` has signs that no header may have" in told
        assert "sk-first" not in told
        assert script.asked == []
