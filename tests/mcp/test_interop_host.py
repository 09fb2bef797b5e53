"""Our host with other servers, and with our own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from mcp_host import ask_again, hosting, load, read, refusals, states
from mcp_talk import serving, write_skill

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(90)
FASTMCP = """
import sys
from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

provider = SkillsDirectoryProvider(roots=sys.argv[1], experimental_skills=True, reload=True)
server = FastMCP("skills", providers=[provider])
server.add_extension(SkillsExtension(providers=[provider]))
server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
"""


@contextmanager
def fastmcp_serving(folder: str) -> Iterator[str]:
    """fastmcp's server of the skills in a folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", FASTMCP, folder, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait(20)


def _skills(project: str) -> None:
    write_skill(
        project,
        "pdf-forms",
        "license: MIT\nmetadata:\n  version: '2.1'\nallowed-tools: Read Grep\n",
        **{"references/forms.md": "# Forms\n", "assets/logo.svg": b"<svg/>\r\n"},
    )
    write_skill(project, "notes")


@pytest.mark.parametrize("theirs", ["fastmcp", "satchel"])
def test_skills_are_listed_loaded_and_read(tmp_path, theirs):
    project = str(tmp_path / "theirs")
    _skills(project)
    start = fastmcp_serving(f"{project}/skills") if theirs == "fastmcp" else serving(project)
    with start as address, hosting(str(tmp_path), address) as satchel:
        ask_again(satchel)
        assert refusals(satchel) == []
        assert {"pdf-forms", "notes"} <= set(states(satchel))
        reply = load(satchel, "pdf-forms")
        assert reply.error is None, reply.text
        assert 'origin="mcp docs"' in reply.text
        assert reply.data["files_total"] == 2
        page = read(satchel, f"{reply.data['base_dir']}/references/forms.md")
        assert "# Forms" in page.text
        assert "<svg/>" in read(satchel, f"{reply.data['base_dir']}/assets/logo.svg").text
