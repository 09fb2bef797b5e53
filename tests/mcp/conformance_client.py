"""The client that the conformance suite starts: our host code, used as an agent uses it.

The suite gives the address of its server as the last word and the scenario in the environment. The
library is made from settings, and the tools called as a model would.
Nothing here speaks MCP but for two base scenarios that no skill is part of.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile

from satchel import Satchel
from satchel.library.remote.client import ConnectionNotes, connect
from satchel.library.remote.config import McpServer
from satchel.library.remote.source import McpSupplier

SKILL = "pdf-processing"


def list_only(satchel: Satchel) -> None:
    """Connect, list, show the catalogue: and read nothing."""
    assert [skill.name for skill in satchel.list_skills(hidden=True)] == [SKILL]
    assert f'<skill name="{SKILL}"' in satchel.catalogue().text
    assert satchel.which("fill a PDF form")


def load(satchel: Satchel) -> None:
    """Load the skill and, if that goes well, read its other file."""
    tools = satchel.tools()
    reply = tools.call("Skill", {"name": SKILL})
    sys.stdout.write(f"{reply.text}\n")
    if reply.error is not None:
        sys.exit(1)  # refused: the suite allows that, and it is what it wants
    path = os.path.join(reply.data["base_dir"], "references/FORMS.md")
    sys.stdout.write(tools.call("ReadFile", {"path": path}).text)


async def use_all(address: str) -> None:
    """All that a server may have, over the same connection that skills come over."""
    async with connect(McpServer("suite", address), ConnectionNotes()) as client:
        has = client.server_capabilities
        if has.tools is not None:
            for tool in (await client.list_tools()).tools:
                arguments = {"a": 2, "b": 3} if tool.name == "add_numbers" else {}
                await client.call_tool(tool.name, arguments)
        if has.resources is not None:
            for resource in (await client.list_resources()).resources:
                await client.read_resource(str(resource.uri))
        if has.prompts is not None:
            for prompt in (await client.list_prompts()).prompts:
                await client.get_prompt(prompt.name, {})


def main() -> None:
    """Play one scenario."""
    address, scenario = sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]
    if not scenario.startswith("sep-2640-"):
        asyncio.run(use_all(address))
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["SATCHEL_HOME"] = home
        project = os.path.join(home, "project")
        os.mkdir(project)
        satchel = Satchel.for_project(project, servers={"it": {"address": address}}, builtin=False)
        try:
            for location in satchel.library.locations:
                if isinstance(location.supplier, McpSupplier):
                    location.supplier.refresh()  # however long a busy machine takes
            list_only(satchel) if scenario.endswith("no-prefetch") else load(satchel)
        finally:
            satchel.library.close()


if __name__ == "__main__":
    main()
