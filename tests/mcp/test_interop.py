"""Other clients of our server: fastmcp's, and the SDK's with the older protocol."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from typing import Any

import anyio
import mcp_types as types
import pytest

from mcp_talk import serving, write_skill

pytestmark = [
    pytest.mark.timeout(60),
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


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_sessions_of_the_older_protocol_hear_of_changes(tmp_path, way):
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    from mcp import ClientSession, StdioServerParameters

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

    if way == "http":
        with serving(folder) as url:
            anyio.run(listen, streamable_http_client(url))
    else:
        source = os.path.join(os.path.dirname(__file__), "..", "..", "src")
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "satchel", "mcp", "--project", folder],
            env={**os.environ, "SATCHEL_TRUST": "all", "PYTHONPATH": os.path.abspath(source)},
        )
        anyio.run(listen, stdio_client(server))
