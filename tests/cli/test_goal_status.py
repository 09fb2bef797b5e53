"""`satchel goal status`: counts, workers, what waits, and the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest

from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.model import Goal, Plan, Step

pytestmark = pytest.mark.timeout(120)
ASK = """\
goal: Ask somebody
steps:
  - {id: ask, action_type: human, prompt: "Well?"}
"""


@pytest.fixture
def place(empty):
    """A project whose goal asks."""
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    assert empty.run("goal", "run", "ask.yaml", "--id", "asks").status == 8
    return empty


def test_a_question_is_nothing_wrong(place):
    shown = place.run("goal", "status")
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        "local: 1 not ended · 1 waiting for you",
        "Last 24 hours: 0 ended",
    ]
    found = json.loads(place.run("goal", "status", "--json").out)
    assert (found["goals"]["asking"], found["workers"], found["stuck"]) == (1, [], [])


def test_a_question_of_yesterday_waits(place):
    [folder] = [folder for folder, _, files in os.walk(place.home) if "journal.jsonl" in files]
    path = os.path.join(folder, "journal.jsonl")
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        line.pop("sha", None)
        if "step" in line:
            line["step"]["started"] = time.time() - 90_000
    os.unlink(os.path.join(folder, "last"))
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    shown = place.run("goal", "status")
    assert shown.status == 0
    row = "○ asks · ask (25 h 00 min): It has waited for a person for more than a day"
    assert shown.out.splitlines()[-1] == row


def test_a_goal_without_a_worker_is_wrong(empty):
    database = empty.home / "goals.db"

    async def submit() -> None:
        async with DbosEngine(None, str(database)) as engine:
            await engine.submit(Goal("week-1", Plan("Wait", (Step("a", prompt="Go"),))))

    asyncio.run(submit())
    empty.home.joinpath(".config/satchel").mkdir(parents=True, exist_ok=True)
    config = empty.home / ".config/satchel/config.toml"
    config.write_text(f'engine = "dbos:sqlite:///{database}"\n', encoding="utf-8")
    shown = empty.run("goal", "status")
    assert shown.status == 1
    assert shown.out.startswith("dbos: 1 not ended · 1 queued\n")
    assert shown.err == "No worker is alive for 1 goal: run `satchel goal worker`\n"
    found = json.loads(empty.run("goal", "status", "--json").out)
    assert (found["unattended"], found["needs_attention"]) == (1, True)
