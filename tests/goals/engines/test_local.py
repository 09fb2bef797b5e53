"""Goals in one process: in memory, and with a folder that outlives it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time

import pytest

from goal_plans import QUICK, Runner
from satchel.errors import Conflict, InvalidInput, NotFound, Refused, StepFailed
from satchel.goals import artefacts
from satchel.goals.artefacts import load
from satchel.goals.engines import _local_shelf
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Answer, Budget, Done, Goal, Plan, Retry, Step, Usage

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


@pytest.fixture(params=["memory", "folder"])
def folder(request, tmp_path):
    return "" if request.param == "memory" else str(tmp_path / "state")


def journal(folder: str, goal: str = "g") -> list[dict]:
    with open(os.path.join(folder, "goals", goal, "journal.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def test_a_goal_runs(folder):
    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            report = await engine.submit(Goal("g", PLAN))
            assert (report.state, report.engine) == ("running", "local")
            report = await engine.wait("g")
            assert report.state == "done"
            assert report.steps["b"].output == "b<a<x>>"
            assert await engine.report("g") == report
            assert await engine.wait("g", 0) == report
            (line,) = await engine.list()
            assert (line.id, line.state, line.done, line.steps) == ("g", "done", 2, 2)
            assert await engine.list(states=["failed"]) == []

    asyncio.run(main())


def test_the_same_goal_again_is_the_same_goal(folder):
    async def main():
        runner = Runner()
        async with LocalEngine(runner, folder) as engine:
            for _ in range(3):
                await engine.submit(Goal("g", PLAN))
            await engine.wait("g")
            assert (await engine.submit(Goal("g", PLAN))).state == "done"
            assert runner.began == ["a", "b"]
            with pytest.raises(Conflict, match="another plan"):
                await engine.submit(Goal("g", ASKING))
            with pytest.raises(InvalidInput, match="no prompt"):
                await engine.submit(Goal("h", Plan("g", (Step("a"),))))

    asyncio.run(main())


def test_a_plan_is_the_same_once_it_is_written_down(folder):
    async def main():
        step = Step("t", "tool", tool="x", arguments={"v": (1, 2)})
        async with LocalEngine(Runner(), folder) as engine:
            await engine.submit(Goal("g", Plan("g", (step,))))
            await engine.wait("g")
            await engine.submit(Goal("g", Plan("g", (step._replace(arguments={"v": [1, 2]}),))))

    asyncio.run(main())


def test_nobody_knows_a_goal_that_is_not_there(folder):
    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            for name in ("gone", "", ".", "..", "../goals", "a/b", "x\0y"):
                for ask in (engine.report, engine.wait, engine.cancel, engine.resume, engine.retry):
                    with pytest.raises(NotFound):
                        await ask(name)
                with pytest.raises(NotFound):
                    await engine.answer(name, "h", Answer())
                with pytest.raises(NotFound):
                    async for _ in engine.watch(name):
                        pass
            assert await engine.list() == []
            with pytest.raises(Refused, match="no workers"):
                await engine.work()

    asyncio.run(main())


def test_cancelling_ends_what_runs(folder):
    async def main():
        runner = Runner()
        async with LocalEngine(runner, folder) as engine:
            await engine.submit(Goal("g", LONG))
            while "long" not in runner.began:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            report = await engine.report("g")
            assert [one.state for one in report.steps.values()] == ["done", "running"]
            with pytest.raises(Conflict, match="is running"):
                await engine.retry("g")
            with pytest.raises(Conflict, match="is running"):
                await engine.resume("g")
            await engine.cancel("g")
            report = await engine.wait("g")
            assert report.state == "cancelled"
            assert [one.state for one in report.steps.values()] == ["done", "cancelled"]
            assert runner.cancelled == ["long"]
            await engine.cancel("g")
            assert (await engine.resume("g")).state == "cancelled"
            report = await engine.retry("g", plan=PLAN)
            assert (await engine.wait("g")).state == "done"
            assert runner.began == ["a", "long", "b"]

    asyncio.run(main())


@pytest.mark.parametrize("waits", [0, 1, 2, 3])
def test_cancelling_at_once(folder, waits):
    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            await engine.submit(Goal("g", LONG))
            for _ in range(waits):
                await asyncio.sleep(0)
            await engine.cancel("g")
            assert (await engine.wait("g", 5)).state == "cancelled"

    asyncio.run(main())


def test_a_person_is_asked(folder):
    async def main():
        runner = Runner()
        async with LocalEngine(runner, folder) as engine:
            await engine.submit(Goal("g", ASKING))
            report = await engine.wait("g")
            assert (report.state, report.steps["h"].output) == ("asking", "a<x>?")
            with pytest.raises(Conflict):
                await engine.answer("g", "b", Answer())
            await engine.answer("g", "h", Answer(value="yes", by="Ann"))
            await engine.answer("g", "h", Answer(value="yes", by="Ann"))
            report = await engine.wait("g")
            assert (report.state, report.steps["b"].output) == ("done", "b<yes>")
            await engine.answer("g", "h", Answer(value="yes", by="Ann"))
            with pytest.raises(Conflict, match="with another answer"):
                await engine.answer("g", "h", Answer(value="no", by="Ann"))
            assert runner.began == ["a", "b"]
            report = await engine.retry("g", from_step="h")
            assert (await engine.wait("g")).state == "asking"
            assert report.revision == 2
            await engine.cancel("g")
            assert (await engine.wait("g")).state == "cancelled"

    asyncio.run(main())


def test_an_answer_while_others_run_is_not_lost(folder):
    plan = Plan("g", (Step("h", "human", prompt="?"), Step("slow"), Step("b", needs=("h",))))
    plan = plan._replace(steps=tuple(s._replace(prompt="x") for s in plan.steps))

    class Slow(Runner):
        async def run(self, work):
            if work.step.id == "slow":
                await asyncio.sleep(0.1)
            return await super().run(work)

    async def main():
        async with LocalEngine(Slow(), folder) as engine:
            await engine.submit(Goal("g", plan))
            while (await engine.report("g")).steps["h"].state != "asking":  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await engine.answer("g", "h", Answer())
            assert (await engine.report("g")).state == "running"
            report = await engine.wait("g")
            assert report.state == "done"

    asyncio.run(main())


def test_what_happens_can_be_watched(folder):
    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            await engine.submit(Goal("g", PLAN))
            told = [(event.step, event.state) async for event in engine.watch("g")]
            assert told == [
                ("", "running"), ("a", "running"), ("a", "done"), ("b", "running"), ("b", "done"),
                ("", "done"),
            ]  # fmt: skip
            again = [(event.step, event.state) async for event in engine.watch("g")]
            assert [one for one in told if one[1] != "running"] == [
                one for one in again if one[1] != "running"
            ]

    asyncio.run(main())


def test_a_retry_keeps_what_holds(folder):
    plan = Plan(
        "g", (Step("a", prompt="x"), Step("b", prompt="fail", needs=("a",))), retry=Retry(1)
    )

    async def main():
        runner = Runner()
        async with LocalEngine(runner, folder) as engine:
            await engine.submit(Goal("g", plan))
            assert (await engine.wait("g")).state == "failed"
            await engine.retry("g")
            assert (await engine.wait("g")).revision == 2
            assert runner.began == ["a", "b", "b"]
            better = plan._replace(steps=(plan.steps[0], plan.steps[1]._replace(prompt="y")))
            with pytest.raises(InvalidInput):
                await engine.retry("g", plan=Plan("", ()))
            with pytest.raises(NotFound):
                await engine.retry("g", from_step="z")
            await engine.retry("g", plan=better)
            report = await engine.wait("g")
            assert (report.state, report.revision, report.plan) == ("done", 3, better)
            await engine.retry("g", from_step="a")
            await engine.wait("g")
            assert runner.began == ["a", "b", "b", "b", "a", "b"]
            assert [work.key for work in runner.work][-1] == "g:b:4"
            assert (await engine.submit(Goal("g", plan))).revision == 4

    asyncio.run(main())


def test_large_outputs_are_beside(folder):
    class Large(Runner):
        async def run(self, work):
            if work.step.id == "a":
                return Done("x" * 1_000)
            return Done(len(work.prompt))

    async def main():
        async with LocalEngine(Large(), folder, large=100) as engine:
            await engine.submit(Goal("g", PLAN))
            report = await engine.wait("g")
            assert report.steps["a"].output["size"] == 1_002
            assert report.steps["b"].output == 1_000
            assert await load(report.steps["a"].output, engine.artefacts) == "x" * 1_000

    asyncio.run(main())


def test_a_fault_of_the_disk_is_said(tmp_path):
    async def main():
        runner = Runner()
        async with LocalEngine(runner, str(tmp_path)) as engine:
            await engine.submit(Goal("g", LONG))
            held = engine._shelf.here["g"]  # noqa: SLF001
            while "long" not in runner.began:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

            def full(*_: object, **__: object) -> None:
                raise OSError(28, "No space left on device")

            held.journal._add = full  # noqa: SLF001
            held.journal.ask_to_stop()
            events = [event async for event in engine.watch("g")]
            assert events[-1].state in {"failed", "cancelled"}

    asyncio.run(main())


def test_without_a_runner_and_a_folder_nothing_can_be_done():
    async def main():
        async with LocalEngine() as engine:
            with pytest.raises(Refused, match="Nobody here"):
                await engine.submit(Goal("g", PLAN))

    asyncio.run(main())


# --- with a folder ------------------------------------------------------------------------


def test_an_engine_that_is_closed_leaves_goals_to_be_resumed(tmp_path):
    async def main():
        async with LocalEngine(Runner(), str(tmp_path)) as engine:
            await engine.submit(Goal("g", LONG))
            await engine.wait("g", 0.05)
        runner = Runner()
        async with LocalEngine(runner, str(tmp_path)) as engine:
            report = await engine.report("g")
            assert report.state == "queued"
            assert "resume" in report.reason
            assert (await engine.wait("g")).state == "queued"
            assert [line.state for line in await engine.list()] == ["queued"]
            assert (await engine.resume("g")).state == "running"
            await engine.wait("g", 0.05)
            assert runner.began == ["long"]

    asyncio.run(main())


def test_submitting_a_goal_whose_process_is_gone_goes_on_with_it(tmp_path):
    async def main():
        async with LocalEngine(Runner(), str(tmp_path)) as engine:
            await engine.submit(Goal("g", LONG))
            await engine.wait("g", 0.05)
        runner = Runner()
        async with LocalEngine(runner, str(tmp_path)) as engine:
            assert (await engine.submit(Goal("g", LONG))).state == "running"
            await engine.wait("g", 0.05)
            assert runner.began == ["long"]

    asyncio.run(main())


def test_without_a_runner_goals_wait_for_one(tmp_path):
    async def main():
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

    asyncio.run(main())


def test_others_can_look_answer_and_cancel(tmp_path):
    plan = Plan(
        "g",
        (
            Step("h", "human", prompt="?"),
            Step("long", prompt="wait"),
            Step("b", "human", prompt="?"),
        ),
    )

    async def main():
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
            assert (await other.wait("g", 5)).state == "cancelled"
            assert time.monotonic() - began < 3
            assert (await engine.report("g")).state == "cancelled"
            assert {"answer": {"by": "Bob"}, "to": "h", "of": 1} in journal(str(tmp_path))

    asyncio.run(main())


def test_an_answer_from_elsewhere_goes_on_at_once(tmp_path):
    async def main():
        async with (
            LocalEngine(Runner(), str(tmp_path)) as engine,
            LocalEngine(Runner(), str(tmp_path)) as other,
        ):
            await engine.submit(Goal("g", ASKING))
            await engine.wait("g")
            await other.answer("g", "h", Answer(value="fine"))
            report = await engine.wait("g")
            assert (report.state, report.steps["b"].output) == ("done", "b<fine>")
            told = [event.state async for event in engine.watch("g") if not event.step]
            assert told == ["done"]

    asyncio.run(main())


def test_a_torn_line_costs_one_step(tmp_path):
    async def main(runner):
        async with LocalEngine(runner, str(tmp_path)) as engine:
            await engine.submit(Goal("g", PLAN))
            return await engine.wait("g")

    asyncio.run(main(Runner()))
    path = tmp_path / "goals" / "g" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = next(n for n, line in enumerate(lines) if b'"step":"b"' in line)
    path.write_bytes(b"".join(lines[:last]) + lines[last][:20])
    runner = Runner()
    assert asyncio.run(main(runner)).state == "done"
    assert runner.began == ["b"]
    assert asyncio.run(main(Runner())).steps["b"].output == "b<a<x>>"


def _say(folder, value, ready, said):
    async def main():
        async with LocalEngine(None, folder) as engine:
            ready.wait()
            try:
                await engine.answer("g", "h", Answer(value=value))
                said.append("accepted")
            except Conflict:
                said.append("refused")

    asyncio.run(main())


@pytest.mark.timeout(60)
def test_of_two_contrary_answers_the_first_holds(tmp_path):
    folder = str(tmp_path)

    async def ask():
        async with LocalEngine(Runner(), folder) as engine:
            await engine.submit(Goal("g", ASKING))
            await engine.wait("g")

    for number in range(10):
        folder = str(tmp_path / str(number))
        asyncio.run(ask())
        ready, said = threading.Barrier(2), []
        both = [threading.Thread(target=_say, args=(folder, value, ready, said)) for value in "YN"]
        for one in both:
            one.start()
        for one in both:
            one.join()
        assert sorted(said) == ["accepted", "refused"]
        assert sum("answer" in line for line in journal(folder)) == 1


def test_an_answer_to_an_earlier_revision_is_not_taken(tmp_path):
    async def main():
        async with LocalEngine(Runner(), str(tmp_path)) as engine:
            await engine.submit(Goal("g", ASKING))
            await engine.wait("g")
            await engine.retry("g", from_step="h")
            await engine.wait("g")
            path = tmp_path / "goals" / "g" / "journal.jsonl"
            with path.open("a") as file:
                file.write('{"answer":{},"to":"h","of":1}\n')
            assert (await engine.resume("g")).state == "asking"

    asyncio.run(main())


def test_a_list_of_some_states_reads_only_the_ends_of_the_others(tmp_path):
    async def main():
        async with LocalEngine(Runner(), str(tmp_path)) as engine:
            for name, plan in (("d", PLAN), ("h", ASKING), ("r", ASKING)):
                await engine.submit(Goal(name, plan))
                await engine.wait(name)
            async with LocalEngine(None, str(tmp_path)) as other:
                await other.retry("r")  # nobody runs it: its last line is the revision
                path = tmp_path / "goals" / "d" / "journal.jsonl"
                lines = path.read_text().splitlines()
                path.write_text("\n".join(["not read", *lines[1:]]) + "\n")
                assert [one.id for one in await other.list(states=["asking"])] == ["h"]
                assert [one.id for one in await other.list(states=["queued"])] == ["r"]

    asyncio.run(main())


def test_memory_does_not_grow_for_ever(monkeypatch):
    monkeypatch.setattr(_local_shelf, "KEPT", 10)

    async def main():
        async with LocalEngine(Runner()) as engine:
            await engine.submit(Goal("asks", ASKING))
            await engine.submit(Goal("long", LONG))
            for number in range(30):
                await engine.submit(Goal(f"g{number}", PLAN))
                await engine.wait(f"g{number}")
            names = [one.id for one in await engine.list(limit=100)]
            assert {"asks", "long", "g29"} <= set(names)
            assert len(names) <= 11
            await engine.cancel("long")
            assert (await engine.wait("long")).state == "cancelled"

    asyncio.run(main())


def test_a_budget_is_for_all_revisions_together(folder):
    class Dear:
        tries = 0

        async def run(self, work):
            self.tries += 1
            raise StepFailed("X", "no", usage=Usage(1, 60, 0))

    plan = Plan("g", (Step("a", prompt="x"),), budget=Budget(tokens=100), retry=Retry(1))

    async def main():
        runner = Dear()
        engine = LocalEngine(runner, folder)
        await engine.submit(Goal("g", plan))
        await engine.wait("g")
        for _ in range(3):
            if folder:
                engine = LocalEngine(runner, folder)
            await engine.retry("g")
            await engine.wait("g")
        report = await engine.report("g")
        assert runner.tries == 2
        assert (report.state, report.steps["a"].error.code) == ("failed", "BUDGET")
        assert report.reason.endswith("it took 120")
        await engine.retry("g", plan=plan._replace(budget=Budget(tokens=200)))
        assert "no" in (await engine.wait("g")).reason
        assert runner.tries == 3

    asyncio.run(main())


def test_a_report_says_when_a_goal_was_over(folder):
    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            assert (await engine.submit(Goal("done", PLAN))).ended == 0.0
            report = await engine.wait("done")
            last = report.steps["b"]
            assert last.started + last.seconds - 0.1 < report.ended <= time.time()
            assert await engine.report("done") == report
            await engine.submit(Goal("asks", ASKING))
            assert (await engine.wait("asks")).ended == 0.0
            await asyncio.sleep(0.05)
            now = time.time()
            await engine.cancel("asks")
            report = await engine.report("asks")
            assert now <= report.ended <= time.time()
            again = await engine.retry("asks")
            assert (again.state, again.ended) == ("running", 0.0)

    asyncio.run(main())


def test_of_an_older_journal_the_last_step_says_when_it_was_over(tmp_path):
    folder = str(tmp_path / "state")

    def make_older():
        lines = journal(folder)
        del lines[-1]["at"]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (tmp_path / "state" / "goals" / "g" / "journal.jsonl").write_text(text, encoding="utf-8")

    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            await engine.submit(Goal("g", PLAN))
            kept = (await engine.wait("g")).ended
            assert journal(folder)[-1]["at"] == kept
            make_older()
            report = await engine.report("g")
            last = report.steps["b"]
            assert report.ended == last.started + last.seconds

    asyncio.run(main())


def test_a_goal_that_is_cancelled_while_it_writes_leaves_nothing(tmp_path, monkeypatch):
    folder = str(tmp_path / "state")
    begun, write = threading.Event(), artefacts._write  # noqa: SLF001 - a slow disk

    def slow(path, data):
        begun.set()
        time.sleep(0.5)
        write(path, data)

    class Large:
        async def run(self, work):
            return Done("x" * 100_000)

    monkeypatch.setattr(artefacts, "_write", slow)

    async def main():
        async with LocalEngine(Large(), folder) as engine:
            await engine.submit(Goal("g", Plan("g", (Step("a", prompt="x"),))))
            assert await asyncio.to_thread(begun.wait, 10)
            await engine.cancel("g")
            assert (await engine.report("g")).state == "cancelled"
            await engine.forget("g")

    asyncio.run(main())  # which waits for its threads
    assert [files for _, _, files in os.walk(folder) if files] == []


def test_what_outlived_its_goal_is_removed_when_it_is_removed_again(folder):
    async def main():
        async with LocalEngine(Runner(), folder) as engine:
            kept = engine.artefacts.of("g")
            name = await kept.put(b'"x"')  # by a process of an older Satchel, say
            other = await engine.artefacts.of("other").put(b'"x"')
            with pytest.raises(NotFound):
                await engine.forget("g")
            with pytest.raises(StepFailed, match="is not there"):
                await kept.get(name)
            assert await kept.get(other) == b'"x"'
            if folder:
                assert os.listdir(os.path.join(folder, "goals")) == []

    asyncio.run(main())
