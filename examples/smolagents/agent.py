"""A chat with skills, on smolagents: `python agent.py FOLDER`, each line is a turn."""

import os
import sys

from smolagents import LogLevel, OpenAIModel

from satchel import Satchel
from satchel.integrations.smolagents import SkillsToolCallingAgent

if not os.environ.get("OPENAI_API_KEY"):
    sys.exit("error: `OPENAI_API_KEY` is not set\n\nhint: Run `export OPENAI_API_KEY=…`")
satchel = Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else ".")
model = OpenAIModel(
    os.environ.get("MODEL", "gpt-5.4-mini"),
    api_base=os.environ.get("OPENAI_BASE_URL"),
    api_key=os.environ.get("OPENAI_API_KEY"),
)
agent = SkillsToolCallingAgent(
    tools=[],
    model=model,
    instructions="You help with the files of one project. Be brief.",
    skills=satchel,
    verbosity_level=LogLevel.OFF,
)
for line in sys.stdin:
    print(agent.run(line.strip(), reset=False), flush=True)
