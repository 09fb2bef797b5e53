"""A chat with skills, on LangChain: `python agent.py FOLDER`, and each line is a turn."""

import os
import sys

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from satchel import Satchel
from satchel.integrations.langchain import SkillsMiddleware

if not os.environ.get("OPENAI_API_KEY"):
    sys.exit("error: `OPENAI_API_KEY` is not set\n\nhint: Run `export OPENAI_API_KEY=…`")
satchel = Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else ".")
agent = create_agent(
    ChatOpenAI(model=os.environ.get("MODEL", "gpt-5.4-mini")),
    system_prompt="You help with the files of one project. Be brief.",
    middleware=[SkillsMiddleware(satchel)],
    checkpointer=InMemorySaver(),
)
thread: RunnableConfig = {"configurable": {"thread_id": "1"}}  # one conversation
for line in sys.stdin:
    result = agent.invoke({"messages": [HumanMessage(line.strip())]}, thread)
    print(result["messages"][-1].text, flush=True)
