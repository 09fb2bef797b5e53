"""Other clients of our server, and our host with other servers."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest

from mcp_host import ask_again, hosting, load, read, refusals, states
from mcp_talk import serving, write_skill
from ports import free_port
from satchel.testing import make_tool_skill
from tool_bench import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*as of 2026-07-28"),  # the older protocol is what is tested
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_fastmcp_reads_our_skills(url):
    from fastmcp import Client
    from fastmcp.skills.client import SkillsClientExtension

    async def read() -> None:
        async with Client(url, extensions=[SkillsClientExtension()]) as client:
            skills = {skill.frontmatter.name: skill for skill in await client.list_skills()}
            assert {"pdf-forms", "changelog", "release"} <= set(skills)
            one: Any = await client.get_skill("skill://pdf-forms/SKILL.md")
            assert one == skills["pdf-forms"]
            for row in one.resources:
                [content] = await client.read_resource(row.uri)
                if isinstance(content, types.TextResourceContents):
                    digest = hashlib.sha256(content.text.encode()).hexdigest()
                    assert row.digest == f"sha256:{digest}"
            reply = await client.call_tool("Skill", {"name": "changelog"})
            assert reply.structured_content is not None
            assert reply.structured_content["status"] == "success"
            assert {"deploy", "release"} <= {prompt.name for prompt in await client.list_prompts()}

    anyio.run(read)


@contextmanager
def connection(way: str, folder: str) -> Iterator[Any]:
    """The streams of a client that is connected to our server."""
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    from mcp import StdioServerParameters

    if way == "http":
        with serving(folder) as url:
            yield streamable_http_client(url)
        return
    source = os.path.join(os.path.dirname(__file__), "..", "..", "src")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "satchel", "mcp", "serve", "--project", folder],
        env={
            **os.environ,
            "SATCHEL_TRUST": "all",
            "SKILL_EXCEL_ENABLED": "false",
            "PYTHONPATH": os.path.abspath(source),
        },
    )
    yield stdio_client(server)


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_sessions_of_the_older_protocol_hear_of_changes(tmp_path, way):
    from mcp import ClientSession

    folder = str(tmp_path)
    write_skill(folder, "one")

    async def listen(streams) -> None:
        heard: dict[str, float] = {}

        async def note(message: object) -> None:
            if isinstance(message, types.Notification):
                heard[message.method] = time.monotonic()

        async with streams as (reading, writing, *_):  # noqa: SIM117 - the second needs the first
            async with ClientSession(reading, writing, message_handler=note) as session:
                told = await session.initialize()
                assert told.capabilities.tools.list_changed is True
                assert told.capabilities.resources.subscribe is True
                await session.subscribe_resource("skill://one/SKILL.md")
                assert [tool.name for tool in (await session.list_tools()).tools] == [
                    "ReadFile",
                    "Skill",
                    "SkillSearch",
                ]
                await anyio.sleep(0.6)
                began = time.monotonic()
                write_skill(folder, "two")
                write_skill(folder, "one", "license: MIT\n")
                wanted = {
                    "notifications/tools/list_changed",
                    "notifications/prompts/list_changed",
                    "notifications/resources/list_changed",
                    "notifications/resources/updated",
                }
                with anyio.fail_after(8):
                    while set(heard) < wanted:  # noqa: ASYNC110 - others put them there
                        await anyio.sleep(0.02)
                assert max(heard.values()) - began < 1, heard
                read = await session.read_resource("skill://two/SKILL.md")
                [content] = read.contents
                assert isinstance(content, types.TextResourceContents)
                assert "# two" in content.text

    with connection(way, folder) as streams:
        anyio.run(listen, streams)


WRITES = """
for path in ("a.txt", "AGENTS.md"):
    with open(path, "w") as file:
        file.write("new\\n")
return {"output": "done", "error": ""}
"""


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize(
    ("user", "shown", "applied", "text"),
    [
        ("accepts one", 2, True, "`AGENTS.md` was not changed: the user did not agree"),
        ("cannot be asked", 0, False, "a person must accept it, and none can be asked here"),
    ],
)
def test_the_user_of_a_client_sees_what_a_tool_proposes(tmp_path, way, user, shown, applied, text):
    from mcp import ClientSession

    make_tool_skill(tmp_path / ".agents/skills", "job", answering(WRITES), more="files: write\n")
    questions = []

    async def answer(context, params):
        questions.append(params.message)
        return types.ElicitResult(action="decline" if "AGENTS.md" in params.message else "accept")

    async def talk(streams):
        asking = answer if user == "accepts one" else None
        async with (
            streams as (reading, writing, *_),
            ClientSession(reading, writing, elicitation_callback=asking) as session,
        ):
            await session.initialize()
            return await session.call_tool("job_run", {})

    with connection(way, str(tmp_path)) as streams:
        reply = anyio.run(talk, streams)
    assert isinstance(reply.content[0], types.TextContent)
    assert text in reply.content[0].text
    assert len(questions) == shown
    assert all("+new" in question for question in questions)
    assert (tmp_path / "a.txt").exists() == applied
    assert not (tmp_path / "AGENTS.md").exists()


# --- our host -------------------------------------------------------------------------------

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
    port = free_port()
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
