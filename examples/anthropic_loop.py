"""A chat with skills on the Anthropic SDK: `python anthropic_loop.py FOLDER`, a line is a turn."""

import os
import sys
from typing import Any

from anthropic import Anthropic

from satchel import Satchel

if not os.environ.get("ANTHROPIC_API_KEY"):
    sys.exit("error: `ANTHROPIC_API_KEY` is not set\n\nhint: Run `export ANTHROPIC_API_KEY=…`")
client = Anthropic()
model = os.environ.get("MODEL", "claude-sonnet-5")
session = Satchel.for_project(sys.argv[1] if len(sys.argv) > 1 else ".").session()
instructions = "You help with the files of one project. Be brief.\n\n" + session.prompt
system: list[Any] = [{"type": "text", "text": instructions, "cache_control": {"type": "ephemeral"}}]
messages: list[Any] = []
for line in sys.stdin:
    messages.append({"role": "user", "content": session.with_tail(line.strip())})
    while True:
        tools: list[Any] = session.definitions("anthropic")
        reply = client.messages.create(
            model=model, max_tokens=4096, system=system, tools=tools, messages=messages
        )
        messages.append({"role": "assistant", "content": reply.content})
        results: list[dict[str, Any]] = []
        for block in reply.content:
            if block.type == "tool_use":
                answer = session.call(block.name, block.input)  # never raises
                results.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": block.id,
                        "content": answer.text,
                        "is_error": answer.status == "error",
                    }
                )
        if not results:
            break
        messages.append({"role": "user", "content": results})
    print("".join(block.text for block in reply.content if block.type == "text"), flush=True)
