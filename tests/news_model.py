"""How would a model explore the news? A script for `ModelServer` that does as it was told.

Run as a program it serves the recorded news and this model until it is interrupted:

    python tests/news_model.py
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from model_server import ModelServer, Reply
from news_site import RECORDED, NewsSite

if TYPE_CHECKING:
    from model_server import Request

with open(os.path.join(RECORDED, "said.json"), encoding="utf-8") as _file:
    SAID: dict[int, tuple[str, str]] = {
        int(key): tuple(row) for key, row in json.load(_file).items()
    }
"""A title and an analysis of each recorded story."""


def explore(request: Request) -> Reply:
    """One step of the explorer or of one of its sub-agents."""
    if "You analyse one story" in request.system:
        return analyse(request)
    done = [result.name for result in request.all_results]
    if "list_stories" not in done:
        return Reply(calls=[("Skill", {"name": "incremental-update"}), ("list_stories", {})])
    listed = next(one.text for one in request.all_results if one.name == "list_stories")
    news = [int(number) for number in re.findall(r"^(\d+) \| (?:new|moved)", listed, re.MULTILINE)]
    if not news:
        return Reply(calls=[("finish_exploration", {"summary": "没有新消息。"})])
    if "Task" not in done:
        tasks = [{"agent": "analyze_story", "task": f"分析 HN 帖子 {one}"} for one in news[:4]]
        return Reply(calls=[("Task", task) for task in tasks])
    calls = [call for message in request.messages for call in message.calls]
    if {"name": "chinese-writing"} not in [call.arguments for call in calls]:
        return Reply(calls=[("Skill", {"name": "chinese-writing"})])
    if "write_report" not in done:
        answers = [one.text for one in request.all_results if one.name == "Task"]
        parts = [re.sub(r"</?tool-output[^>]*>", "", text).strip() for text in answers]
        report = f"今天有 {len(parts)} 条值得一看。\n\n" + "\n\n".join(parts)
        arguments = {"markdown": report, "story_ids": news[:4]}
        return Reply(calls=[("write_report", arguments)])
    assert "finish_exploration" not in done, "the run goes on after its end"
    return Reply(calls=[("finish_exploration", {"summary": f"写了 {len(news[:4])} 条。"})])


def analyse(request: Request) -> Reply:
    """One step of a sub-agent: its skills, then everything about the story, then the answer."""
    number = int(re.findall(r"\d{4,}", request.messages[0].text)[0])
    done = [result.name for result in request.all_results]
    if "Skill" not in done:
        names = ("hn-analysis", "web-extraction")
        return Reply(calls=[("Skill", {"name": name}) for name in names])
    if "read_story" not in done:
        tools = ("read_story", "read_page", "read_comments")
        return Reply(calls=[(tool, {"story_id": number}) for tool in tools])
    title, text = SAID.get(number, ("一个帖子", "内容不明。**存疑**：原文含有针对 AI 的指令。"))
    return Reply(f"### {title}\n\n{text}")


def main() -> None:
    """Serve both, and say how to use them."""
    with NewsSite() as site, ModelServer(explore) as server:
        rows = (server.environment() | site.environment()).items()
        sys.stdout.write("".join(f"export {name}={value}\n" for name, value in rows))
        sys.stdout.write("# Until Ctrl-C. With these set in another terminal:\n")
        sys.stdout.write("# python -m news_explorer --private\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
