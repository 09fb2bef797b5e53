"""Goals in one process: in memory, and with a folder that outlives it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time

import pytest

from goal_plans import QUICK, Runner
from satchel.errors import Conflict, NotFound, Refused
from satchel.goals.engines.local import LocalEngine
from satchel.goals.engines.local_journal import Journal
from satchel.goals.model import Answer, Goal, Plan, Step

PLAN = Plan("g", (Step("a", prompt="x"), Step("b", prompt="{{steps.a.output}}")), retry=QUICK)
ASKING = Plan(
    "g",
    (
        Step("a", prompt="x"),
        Step("h", "human", prompt="{{steps.a.output}}?"),
        Step("b", prompt="{{steps.h.output}}"),
    ),
)
LONG = Plan("g", (Step("a", prompt="x"), Step("long", prompt="wait", needs=("a",))))


def journal(folder: str, goal: str = "g") -> list[dict]:
    with open(os.path.join(folder, "goals", goal, "journal.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    for line in lines:
        assert len(line.pop("sha")) == 32
    return lines


async def test_a_disk_error_is_reported(tmp_path):
    runner = Runner()
    async with LocalEngine(runner, str(tmp_path)) as engine:
        await engine.submit(Goal("g", LONG))
        held = engine._loaded["g"]  # noqa: SLF001
        while "long" not in runner.began:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        held.journal._add_line = full  # noqa: SLF001
        held.journal.request_cancel()
        assert (await engine.wait("g", 10)).state in {"failed", "cancelled"}


async def test_there_is_no_priority_where_every_goal_begins_at_once():
    async with LocalEngine(Runner()) as engine:
        with pytest.raises(Refused, match="begins every goal at once"):
            await engine.submit(Goal("g", PLAN, priority=1))


async def test_versions_need_workers():
    async with LocalEngine(Runner()) as engine:
        with pytest.raises(Refused, match="cannot wait for other versions"):
            await engine.submit(Goal("g", PLAN, versions={"skill:x": "1"}))
        await engine.submit(Goal("g", PLAN))
        await engine.wait("g")
        with pytest.raises(Refused, match="cannot wait for other versions"):
            await engine.retry("g", versions={"skill:x": "1"})


# --- with a folder ------------------------------------------------------------------------


async def test_without_a_runner_goals_wait_for_one(tmp_path):
    async with LocalEngine(None, str(tmp_path)) as client:
        assert (await client.submit(Goal("g", ASKING))).state == "queued"
        async with LocalEngine(Runner(), str(tmp_path)) as engine:
            await engine.resume("g")
            assert (await engine.wait("g")).state == "asking"
        await client.answer("g", "h", Answer())
        async with LocalEngine(Runner(), str(tmp_path)) as engine:
            await engine.resume("g")
            assert (await engine.wait("g")).state == "done"
        assert (await client.retry("g", from_step="b")).state == "queued"
        await client.cancel("g")
        assert (await client.report("g")).state == "cancelled"


async def test_other_processes_can_read_answer_and_cancel(tmp_path):
    plan = Plan(
        "g",
        (
            Step("h", "human", prompt="?"),
            Step("long", prompt="wait"),
            Step("b", "human", prompt="?"),
        ),
    )
    async with (
        LocalEngine(Runner(), str(tmp_path)) as engine,
        LocalEngine(Runner(), str(tmp_path)) as other,
    ):
        await engine.submit(Goal("g", plan))
        await asyncio.sleep(0.05)
        assert (await other.report("g")).state == "running"
        assert (await other.submit(Goal("g", plan))).state == "running"
        for ask in (other.resume, other.retry):
            with pytest.raises(Conflict):
                await ask("g")
        await other.answer("g", "h", Answer(by="Bob"))
        began = time.monotonic()
        await other.cancel("g")
        assert (await other.wait("g", 30)).state == "cancelled"
        assert time.monotonic() - began < 30
        assert (await engine.report("g")).state == "cancelled"
        assert {"answer": {"by": "Bob"}, "to": "h", "of": 1} in journal(str(tmp_path))


def _submitted(folder, runner):
    async def main():
        async with LocalEngine(runner, folder) as engine:
            await engine.submit(Goal("g", PLAN))
            return await engine.wait("g")

    return asyncio.run(main())


def _looked_at(folder):
    async def main():
        async with LocalEngine(None, folder) as engine:
            assert [one.id for one in await engine.list()] == ["g"]
            return await engine.report("g")

    return asyncio.run(main())


async def _until_long_runs(runner: Runner) -> None:
    while "long" not in runner.began:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_a_line_that_a_crash_tore_costs_one_step(tmp_path):
    runner, again = Runner(), Runner()
    async with LocalEngine(runner, str(tmp_path / "state")) as engine:
        await engine.submit(Goal("g", LONG))
        await _until_long_runs(runner)
        shutil.copytree(tmp_path / "state", tmp_path / "crashed")
    path = tmp_path / "crashed" / "goals" / "g" / "journal.jsonl"
    written = path.read_bytes().rpartition(b'{"begun"')[0]  # before `long` begins
    path.write_bytes(written[:-30])
    async with LocalEngine(again, str(tmp_path / "crashed")) as engine:
        await engine.resume("g")
        await _until_long_runs(again)
        await engine.cancel("g")
    async with LocalEngine(None, str(tmp_path / "crashed")) as engine:
        assert (await engine.report("g")).steps["a"].output == "a<x>"
    assert again.began == ["a", "long"]


def _refuses_to_run_again(folder: str, reason: str) -> None:
    """The goal is damaged, the report says why, and no step runs again."""
    assert reason in _looked_at(folder).reason
    runner = Runner()
    with pytest.raises(Conflict, match="is damaged") as raised:
        _submitted(folder, runner)
    assert reason in raised.value.args[0]
    assert "satchel goal remove g" in raised.value.hint
    assert runner.began == []


def test_a_flipped_byte_of_a_journal_damages_the_goal_and_no_step_runs_again(tmp_path):
    whole = _submitted(str(tmp_path), Runner())
    path = tmp_path / "goals" / "g" / "journal.jsonl"
    data = path.read_bytes()
    ends = [place for place, byte in enumerate(data) if byte == ord("\n")]
    for place in sorted({*range(0, len(data), 13), *ends}):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        report = _looked_at(str(tmp_path))
        if report.state != "damaged":  # the mark of a digest: what it is about is as it was
            assert report == whole, place
            continue
        if place > ends[0]:  # without its mark the first line is only found by the second
            number = sum(end < place for end in ends) + 1
            assert f"Line {number} of " in report.reason
        _refuses_to_run_again(str(tmp_path), report.reason)


LINES = 7
"""Of the journal of a goal with two steps: its start, a run, two begins and results, its end."""


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        *(([*range(n), *range(n + 1, LINES)], f"Line {n + 1} of ") for n in range(LINES - 1)),
        *(([*range(n)], "last lines") for n in range(LINES)),
        ([0, 1, 3, 2, 4, 5, 6], "Line 3 of "),
        ([0, 1, 2, 2, 3, 4, 5, 6], "Line 4 of "),
    ],
)
def test_lines_that_are_removed_moved_or_repeated_damage_the_goal(tmp_path, order, reason):
    _submitted(str(tmp_path), Runner())
    path = tmp_path / "goals" / "g" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == LINES
    path.write_bytes(b"".join(lines[n] for n in order))
    _refuses_to_run_again(str(tmp_path), reason)


def test_a_goal_whose_journal_is_gone_does_not_run_again(tmp_path):
    _submitted(str(tmp_path), Runner())
    (tmp_path / "goals" / "g" / "journal.jsonl").unlink()
    _refuses_to_run_again(str(tmp_path), "last lines")


def test_journals_without_digests_are_read_and_continued(tmp_path):
    whole = _submitted(str(tmp_path), Runner())
    path = tmp_path / "goals" / "g" / "journal.jsonl"
    path.with_name("last").unlink()  # as Satchel 0.1 wrote it
    lines = [line for line in journal(str(tmp_path)) if "begun" not in line]
    old = [json.dumps(line, separators=(",", ":")) for line in lines]
    path.write_text("\n".join([*old[:2], old[2][:9], *old[2:4], ""]), encoding="utf-8")
    assert _submitted(str(tmp_path), Runner()).steps == whole.steps
    path.write_text("\n".join([old[0][:30], *old[1:], ""]), encoding="utf-8")
    assert _looked_at(str(tmp_path)).state == "damaged"


def test_a_lock_of_a_removed_goal_is_replaced(tmp_path):
    folder = str(tmp_path / "goal")
    mine = Journal(folder)
    assert mine.lock()
    mine.begin(Goal("g", PLAN), 1.0)
    other, third = Journal(folder), Journal(folder)
    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(other.lock(5)))
    waiting.start()
    waiting.join(0.2)
    mine.remove()
    waiting.join()
    assert taken == [True]
    assert not third.lock(0)  # one lock, and not a file that is gone
    assert other.submitted_at() is None
    other.unlock()


async def test_a_goal_that_another_process_runs_is_not_removed(tmp_path):
    folder = str(tmp_path / "state")
    async with LocalEngine(Runner(), folder) as engine:
        await engine.submit(Goal("g", PLAN))
        await engine.wait("g")
        other = Journal(os.path.join(folder, "goals", "g"))
        assert other.lock()
        try:
            with pytest.raises(Conflict):
                await engine.forget("g")
        finally:
            other.unlock()
        await engine.forget("g")
        for name in ("g", "", "..", "../goals"):
            with pytest.raises(NotFound):
                await engine.forget(name)
