"""A chat with skills, on the OpenAI Agents SDK: `python agent.py FOLDER`, each line is a turn."""

import asyncio
import os
import sys

from agents import Runner, SQLiteSession, set_tracing_disabled

from satchel import Satchel
from satchel.integrations.openai_agents import SkillsAgent

if not os.environ.get("OPENAI_API_KEY"):
    sys.exit("error: `OPENAI_API_KEY` is not set\n\nhint: Run `export OPENAI_API_KEY=…`")
set_tracing_disabled(disabled=True)  # traces would go to OpenAI's server
satchel = Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else ".")
session = satchel.session()  # one conversation
agent = SkillsAgent(
    "Helper",
    instructions="You help with the files of one project. Be brief.",
    model=os.environ.get("MODEL", "gpt-5.4-mini"),
    skills=session,
)


async def chat() -> None:
    """Talk until there are no more lines."""
    memory = SQLiteSession("1")  # the SDK's own history, in memory
    for line in sys.stdin:
        message = session.with_tail(line.strip())
        result = await Runner.run(agent, message, session=memory)
        print(result.final_output, flush=True)


asyncio.run(chat())
