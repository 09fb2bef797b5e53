"""A chat with skills on the OpenAI SDK: `python openai_loop.py FOLDER`, a line is a turn."""

import os
import sys
from typing import Any

from openai import OpenAI

from satchel import Satchel

if not os.environ.get("OPENAI_API_KEY"):
    sys.exit("error: `OPENAI_API_KEY` is not set\n\nhint: Run `export OPENAI_API_KEY=…`")
client = OpenAI()
model = os.environ.get("MODEL", "gpt-5.4-mini")
session = Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else ".").session()
system = "You help with the files of one project. Be brief.\n\n" + session.prompt
messages: list[Any] = [{"role": "system", "content": system}]
for line in sys.stdin:
    messages.append({"role": "user", "content": session.with_tail(line.strip())})
    while True:
        tools: list[Any] = session.definitions("openai")
        completion = client.chat.completions.create(model=model, messages=messages, tools=tools)
        reply = completion.choices[0].message
        messages.append(reply)
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            if call.type == "function":
                answer = session.call(call.function.name, call.function.arguments)  # never raises
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer.text})
    print(reply.content, flush=True)
