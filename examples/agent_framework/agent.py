"""A chat with skills, on Microsoft Agent Framework: `python agent.py FOLDER`, a line is a turn."""

import asyncio
import os
import sys

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient

from satchel import Satchel
from satchel.integrations.agent_framework import SkillsProvider

if not os.environ.get("OPENAI_API_KEY"):
    sys.exit("error: `OPENAI_API_KEY` is not set\n\nhint: Run `export OPENAI_API_KEY=…`")
skills = SkillsProvider(Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else "."))
agent = Agent(
    OpenAIChatClient(os.environ.get("MODEL", "gpt-5.4-mini")),
    instructions="You help with the files of one project. Be brief.",
    context_providers=[skills],
    default_options={"store": False},  # the history stays in this process
)


async def chat() -> None:
    """Talk until there are no more lines."""
    session = agent.create_session()
    for line in sys.stdin:
        result = await agent.run(line.strip(), session=session)
        print(result.text, flush=True)


asyncio.run(chat())
