"""A chat with skills, on the Claude Agent SDK: `python agent.py FOLDER`, each line is a turn."""

import asyncio
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from satchel import Satchel
from satchel.integrations.claude_agent_sdk import SkillsOptions

HINT = "Run `export ANTHROPIC_API_KEY=…`, or log in with `claude`"
project = sys.argv[1] if len(sys.argv) > 1 else "."
skills = SkillsOptions(Satchel.for_project(project))
options = ClaudeAgentOptions(
    model=os.environ.get("MODEL", "claude-sonnet-5"),
    system_prompt="You help with the files of one project. Be brief.",
    tools=[],  # none of Claude Code's own
    cwd=project,
    setting_sources=[],
)


async def chat() -> None:
    """Talk until there are no more lines."""
    async with ClaudeSDKClient(skills.options(options)) as client:
        for line in sys.stdin:
            await skills.refresh(client)
            await client.query(line.strip())
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    if message.is_error:
                        sys.exit(f"error: {message.result}\n\nhint: {HINT}")
                    print(message.result, flush=True)


asyncio.run(chat())
