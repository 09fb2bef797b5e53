"""Approval requests: when they are made, and what an approval covers."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from satchel.errors import InvalidInput
from satchel.testing import make_skill, make_tool_skill

ANSWERS = """import json, sys
json.loads(sys.stdin.readline())
print(json.dumps({"output": "%s", "error": ""}))
"""


@pytest.mark.parametrize("answer", ["n", "no", 1, [False], object(), None])
def test_only_true_approves(talks, answer):
    session = talks.begin(approve=lambda ask: answer, ask=("deploy",))
    assert session.refusal_for("deploy", {}) is not None
    assert asyncio.run(session.arefusal_for("deploy", {})) is not None

    async def later(ask):
        return answer

    session = talks.begin(approve=later, ask=("deploy",))
    assert session.refusal_for("deploy", {}) is not None
    assert asyncio.run(session.arefusal_for("deploy", {})) is not None


def test_a_single_text_is_one_pattern(talks):
    session = talks.begin(ask="deploy")
    assert session.refusal_for("deploy", {}) is not None
    assert session.refusal_for("Deploy", {}) is not None  # in doubt somebody is asked
    assert session.refusal_for("dep", {}) is None
    assert session.child(tools="Read*").names == ("ReadFile",)
    child = session.child(include="code-*")
    assert child.call("Skill", {"name": "write-docs"}).error is not None
    assert child.call("Skill", {"name": "code-review"}).status == "success"
    with pytest.raises(InvalidInput):
        session.child(tools=7)


@pytest.mark.parametrize("path", ["main.py", "node_modules/h.py", "part/h.py"])
def test_an_approval_covers_all_files_of_a_tool(talks, path):
    folder = Path(
        make_tool_skill(talks.place, "job", ANSWERS % "GOOD", more="network: true\n")
    ).parent
    make_skill(folder, "part", "Helps. Use never.")

    def approve(_ask):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("changed\n")
        return True

    reply = talks.begin(approve=approve, sandbox="off").call("job_run", {})
    assert "changed while the user was asked" in reply.text


def test_an_approval_does_not_cover_a_tool_that_changed(talks):
    network = "network: true\n"
    make_tool_skill(talks.place, "job", ANSWERS % "GOOD", more=network)
    asked = []

    def approve(ask):
        asked.append(ask)
        if len(asked) == 1:
            make_tool_skill(talks.place, "job", ANSWERS % "OTHER", more=f"{network}files: write\n")
        return len(asked) == 1

    session = talks.begin(approve=approve, sandbox="off")
    reply = session.call("job_run", {})
    assert reply.error.code == "PERMISSION_DENIED"
    assert "changed while the user was asked" in reply.text
    assert session.call("job_run", {}).error.code == "PERMISSION_DENIED"
    assert len(asked) == 2
    assert asked[0].revision != asked[1].revision
    assert "change the project's files" in asked[1].question


def test_a_tool_forbidden_during_the_question_is_not_run(talks):
    talks.add("strict", disallowed_tools="deploy")

    async def main():
        answered = asyncio.Event()

        async def approve(ask):
            await answered.wait()
            return True

        session = talks.begin(approve=approve, ask=("deploy",))
        first = asyncio.create_task(session.arefusal_for("deploy", {}))
        second = asyncio.create_task(session.arefusal_for("deploy", {}))
        await asyncio.sleep(0.1)
        await session.acall("Skill", {"name": "strict"})
        answered.set()
        return await first, await second

    for refusal in asyncio.run(main()):
        assert "`strict` forbids `deploy`" in refusal.text


def test_threads_and_tasks_ask_one_at_a_time(talks):
    at_once: list[int] = []
    inside = threading.Semaphore(0)
    lock = threading.Lock()
    count = 0

    def approve(ask):
        nonlocal count
        with lock:
            count += 1
            at_once.append(count)
        time.sleep(0.03)
        with lock:
            count -= 1
        inside.release()
        return True

    session = talks.begin(approve=approve, ask=("deploy",))
    threads = [threading.Thread(target=session.refusal_for, args=("deploy", {})) for _ in range(3)]

    async def main():
        for thread in threads:
            thread.start()
        return await asyncio.gather(*(session.arefusal_for("deploy", {}) for _ in range(3)))

    assert asyncio.run(main()) == [None] * 3
    for thread in threads:
        thread.join()
    assert at_once == [1] * 6
