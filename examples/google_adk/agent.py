"""A chat with skills, on Google's ADK: `python agent.py FOLDER`, each line is a turn."""

import asyncio
import os
import sys

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.genai import types

from satchel import Satchel
from satchel.integrations.google_adk import SkillsToolset

if not {"GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"} & set(os.environ):
    sys.exit("error: `GOOGLE_API_KEY` is not set\n\nhint: Run `export GOOGLE_API_KEY=…`")
skills = SkillsToolset(Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else "."))
agent = LlmAgent(
    name="helper",
    model=os.environ.get("MODEL", "gemini-3.5-flash"),
    instruction="You help with the files of one project. Be brief.",
    tools=[skills],
)
app = App(name="helper", root_agent=agent, plugins=[skills.plugin])


async def chat() -> None:
    """Talk until there are no more lines."""
    async with InMemoryRunner(app=app) as runner:
        session = await runner.session_service.create_session(app_name="helper", user_id="me")
        for line in sys.stdin:
            message = types.UserContent(parts=[types.Part(text=line.strip())])
            async for event in runner.run_async(
                user_id="me", session_id=session.id, new_message=message
            ):
                if event.is_final_response() and event.content and event.content.parts:
                    print(event.content.parts[0].text, flush=True)


asyncio.run(chat())
