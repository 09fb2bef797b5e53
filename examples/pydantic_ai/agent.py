"""A chat with skills, on pydantic-ai: `python agent.py FOLDER`, and each line is a turn."""

import os
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage

from satchel import Satchel
from satchel.integrations.pydantic_ai import SkillsCapability

model = os.environ.get("MODEL", "anthropic:claude-sonnet-5")
if model.startswith("anthropic:") and not os.environ.get("ANTHROPIC_API_KEY"):
    sys.exit("error: `ANTHROPIC_API_KEY` is not set\n\nhint: Run `export ANTHROPIC_API_KEY=…`")
satchel = Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else ".")
agent = Agent(
    model,
    instructions="You help with the files of one project. Be brief.",
    capabilities=[SkillsCapability(satchel)],
)
history: list[ModelMessage] = []
for line in sys.stdin:
    result = agent.run_sync(line.strip(), message_history=history)
    history = result.all_messages()  # a run with this history is the same conversation
    print(result.output, flush=True)
