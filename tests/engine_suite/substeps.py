"""Lists of items, conditions, deadlines of people, and notifications."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from engine_suite.bench import QUICK, Gate, broken, fails_until, gives, holds, person, states, work
from satchel.errors import Conflict
from satchel.goals import substeps
from satchel.goals.model import Answer, Condition, ForEach, Notify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_suite.bench import Bench
    from satchel.goals.model import Work

LIST = {"type": "array", "items": {"type": "object"}}
EACH = ForEach("{{steps.list.output}}", at_once=3)


async def _prompt(work: Work) -> str:
    await asyncio.sleep(0)
    return work.prompt


# --- for_each -----------------------------------------------------------------------------


async def each_item_is_a_substep(bench: Bench) -> None:
    """A step is done for every item of an output, in order, with a bound on what runs at once."""
    running = most = 0

    async def count(work: Work) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return work.prompt

    items = [{"name": f"n{number}"} for number in range(9)]
    goal = bench.goal(
        work("list", output=LIST),
        work("each", prompt="<{{item.name}}>", for_each=EACH),
        work("after", prompt="{{steps.each.output.8}} {{steps.each.output.0}}"),
        work={"list": gives(items), **{f"each.{number}": count for number in range(9)}},
    )
    report = await bench.run(goal)
    assert report.steps["each"].output == [f"<n{number}>" for number in range(9)]
    assert [*report.substeps] == ["each.list", *(f"each.{number}" for number in range(9))]
    assert {result.state for result in report.substeps.values()} == {"done"}
    assert bench.script(goal).work("after").prompt == "<n8> <n0>"
    assert bench.script(goal).counts()["each.0"] == 1
    assert "each" not in bench.script(goal).counts()
    assert most <= 3
    keys = {bench.script(goal).work(f"each.{number}").key for number in range(9)}
    assert len(keys) == 9


async def large_outputs_of_items(bench: Bench) -> None:
    """Items and outputs that are stored apart are put together like small ones."""
    items = [{"name": "x" * 30_000, "number": number} for number in range(3)]
    goal = bench.goal(
        work("list", output=LIST),
        work("each", prompt="{{item.number}}{{item.name}}", for_each=EACH),
        work("after", prompt="{{steps.each.output.2}}"),
        work={"list": gives(items), **{f"each.{number}": _prompt for number in range(3)}},
    )
    await bench.run(goal)
    assert bench.script(goal).work("after").prompt == "2" + "x" * 30_000


async def lists_of_plans_and_inputs(bench: Bench) -> None:
    """A list may be written in the plan or be an input, and may be empty."""
    goal = bench.goal(
        work("plan", prompt="{{item}}", for_each=ForEach(["a", "{{inputs.b}}"])),
        work("input", prompt="{{item}}", for_each=ForEach("{{inputs.list}}")),
        work("empty", prompt="{{item}}", for_each=ForEach([])),
        inputs={"b": "B", "list": [1, 2]},
        work={f"{name}.{number}": _prompt for name in ("plan", "input") for number in range(2)},
    )
    report = await bench.run(goal)
    assert report.steps["plan"].output == ["a", "B"]
    assert report.steps["input"].output == ["1", "2"]
    assert report.steps["empty"].output == []


async def some_items_may_fail(bench: Bench) -> None:
    """As many items may fail as the plan allows; their outputs are None, with the reasons."""
    goal = bench.goal(
        work("each", prompt="{{item}}", for_each=ForEach([0, 1, 2], failures=1)),
        work("after", prompt="{{steps.each.output}}"),
        work={"each.1": fails_until(Gate()), "each.0": _prompt, "each.2": _prompt},
    )
    report = await bench.run(goal)
    assert report.steps["each"].output == ["0", None, "2"]
    assert any("broken" in note for note in report.steps["each"].notes)
    assert report.substeps["each.1"].state == "failed"
    assert bench.script(goal).work("after").prompt == '["0", null, "2"]'


async def too_many_items_fail(bench: Bench) -> None:
    """When too many items fail, no more begin."""
    names = [f"each.{number}" for number in range(4)]
    goal = bench.goal(
        work("each", prompt="{{item}}", for_each=ForEach([0, 1, 2, 3], at_once=1)),
        work=dict.fromkeys(names, fails_until(Gate())),
    )
    report = await bench.run(goal, "failed")
    assert report.steps["each"].error
    assert report.steps["each"].error.code == "ITEMS_FAILED"
    assert len(bench.script(goal).counts()) == 1


async def items_are_tried_again(bench: Bench) -> None:
    """A retry repeats the items that failed, and no others."""
    mended = Gate()

    async def fail_last(work: Work) -> str:
        script = bench.script(goal)
        await bench.until(lambda: mended.is_open or script.times("each.0", "ended") == 1)
        if not mended.is_open:
            raise broken()
        return work.prompt

    goal = bench.goal(
        work("each", prompt="{{item}}", for_each=ForEach([0, 1])),
        work={"each.0": _prompt, "each.1": fail_last},
    )
    await bench.run(goal, "failed")
    mended.open()
    await bench.engine.retry(goal.id)
    report = await bench.finish(goal)
    assert report.steps["each"].output == ["0", "1"]
    assert bench.script(goal).counts() == {"each.0": 1, "each.1": 2}


async def lists_that_cannot_be_used(bench: Bench) -> None:
    """A list that is too long, or none, fails its step before any item begins."""
    for items in (list("abc"), "abc"):
        goal = bench.goal(
            work("list", output={"type": ["array", "string"]}),
            work("each", for_each=ForEach("{{steps.list.output}}", most=2)),
            work={"list": gives(items)},
        )
        report = await bench.run(goal, "failed")
        assert report.steps["each"].error
        assert report.steps["each"].error.code == "BAD_LIST"
        assert bench.script(goal).counts() == {"list": 1}


async def items_survive_a_restart(bench: Bench) -> None:
    """Items that were done are not done again after the engine was closed."""
    gate = Gate()
    goal = bench.goal(
        work("each", prompt="{{item}}", for_each=ForEach([0, 1, 2])),
        work={"each.0": _prompt, "each.1": holds(gate), "each.2": _prompt},
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "each.0", "each.1", "each.2")
    await bench.until(
        lambda: sum(bench.script(goal).times(f"each.{n}", "ended") for n in (0, 2)) == 2
    )
    report = await bench.engine.report(goal.id)
    assert report.steps["each"].state == "running"
    await asyncio.sleep(0.3)  # the engine records what has ended
    engine = await bench.reopen()
    gate.open()
    if engine.name == "local":
        await engine.resume(goal.id)
    report = await bench.finish(goal)
    assert report.steps["each"].output == ["0", "held", "2"]
    counts = bench.script(goal).counts()
    assert (counts["each.0"], counts["each.2"]) == (1, 1)


async def questions_beside_items(bench: Bench) -> None:
    """Items are done while a person is asked, and once."""
    goal = bench.goal(
        person("ask"),
        work("each", prompt="{{item}}", for_each=ForEach([0, 1])),
        work("after", prompt="{{steps.each.output}} {{steps.ask.output}}"),
        work={"each.0": _prompt, "each.1": _prompt},
    )
    report = await bench.run(goal, "asking")
    states(report, each="done", ask="asking", after="waiting")
    await bench.engine.answer(goal.id, "ask", Answer(value="go"))
    await bench.finish(goal)
    assert bench.script(goal).counts() == {"each.0": 1, "each.1": 1, "after": 1}
    assert bench.script(goal).work("after").prompt == '["0", "1"] go'


# --- when ---------------------------------------------------------------------------------


async def conditions_leave_steps_out(bench: Bench) -> None:
    """A step whose condition does not hold is left out with its dependents; the goal is done."""
    value = "{{steps.check.output.count}}"
    goal = bench.goal(
        work("check", output={"type": "object", "properties": {"count": {"type": "integer"}}}),
        work("many", when=Condition(value, above=5)),
        work("few", when=Condition(value, below=5, differs=0)),
        work("text", when=Condition("{{inputs.lang}}", equals="de")),
        work("part", when=Condition("{{inputs.tags}}", contains="x")),
        person("ask", when=Condition(value, equals=4)),
        work("each", for_each=ForEach([1, 2]), when=Condition(value, equals=4)),
        work("after", prompt="{{steps.many.output}}"),
        work("join", "many", "few", on_failure="continue"),
        inputs={"lang": "de", "tags": ["y"]},
        work={"check": gives({"count": 3})},
    )
    report = await bench.run(goal)
    states(report, many="skipped", few="done", text="done", part="skipped", ask="skipped")
    states(report, each="skipped", after="skipped", join="skipped")
    assert report.steps["after"].error
    assert report.steps["after"].error.code == "CONDITION"
    assert bench.script(goal).counts() == {"check": 1, "few": 1, "text": 1}


async def dependents_of_a_step_that_was_left_out(bench: Bench) -> None:
    """With `continue`, what depends on a step that was left out runs without its output."""
    goal = bench.goal(
        work("maybe", when=Condition("{{inputs.n}}", above=5), on_failure="continue"),
        work("after", prompt="<{{steps.maybe.output}}>"),
        inputs={"n": 1},
    )
    report = await bench.run(goal)
    states(report, maybe="skipped", after="done")
    assert bench.script(goal).work("after").prompt == "<null>"


async def values_that_cannot_be_compared(bench: Bench) -> None:
    """A text is no number: the step fails and says so."""
    goal = bench.goal(
        work("text"), work("a", when=Condition("{{steps.text.output}}", above=1)),
        work={"text": gives("12")},
    )  # fmt: skip
    report = await bench.run(goal, "failed")
    assert report.steps["a"].error
    assert report.steps["a"].error.code == "NOT_COMPARABLE"


# --- deadlines ----------------------------------------------------------------------------


async def default_of_a_question(bench: Bench) -> None:
    """When nobody answers in time, the default counts; without one the step fails."""
    goal = bench.goal(
        person("ask", deadline=0.3, default="later"),
        work("after", prompt="{{steps.ask.output}}"),
    )
    await bench.engine.submit(goal)
    await bench.in_state(goal, "after", "done")
    report = await bench.finish(goal)
    assert report.steps["ask"].output == "later"
    assert any("No answer" in note for note in report.steps["ask"].notes)
    assert [one.prompt for one in bench.script(goal).works("after")] == ["later"]

    goal = bench.goal(person("ask", deadline=0.3), work("after", "ask"))
    await bench.engine.submit(goal)
    await bench.in_state(goal, "ask", "failed")
    report = await bench.finish(goal, "failed")
    assert report.steps["ask"].error
    assert report.steps["ask"].error.code == "DEADLINE"


async def answer_before_the_deadline(bench: Bench) -> None:
    """An answer in time counts, and the default never."""
    goal = bench.goal(
        person("ask", deadline=1.5, default="later"),
        person("other"),
        work("after", prompt="{{steps.ask.output}}"),
    )
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="now"))
    await bench.in_state(goal, "after", "done")
    await asyncio.sleep(2)
    with pytest.raises(Conflict):
        await bench.engine.answer(goal.id, "ask", Answer(value="later"))
    await bench.engine.answer(goal.id, "other", Answer())
    report = await bench.finish(goal)
    assert report.steps["ask"].output == "now"
    assert bench.script(goal).counts() == {"after": 1}


# --- notifications ------------------------------------------------------------------------

SECRET = "whsec_" + base64.b64encode(b"a secret of a test").decode()


class Receiver:
    """A server that receives notifications."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        """The next answers; 204 when empty."""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    def types(self) -> list[str]:
        """The events whose signatures are right."""
        return [self.event(number)["type"] for number in range(len(self.requests))]

    def event(self, number: int) -> dict[str, Any]:
        headers, body = self.requests[number]
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.digest(b"a secret of a test", signed, hashlib.sha256)
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        return json.loads(body)


@contextmanager
def _receiver(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.statuses = [*statuses]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
            self.send_header("location", f"{receiver.url}/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_WEBHOOK_SECRET", SECRET)
        patch.setattr(substeps, "_NOTIFY_RETRY", QUICK)
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


async def questions_and_ends_are_notified(bench: Bench) -> None:
    """A signed request is sent when a person is needed and when the goal ends, once each."""
    with _receiver(503) as receiver:
        notify = Notify(receiver.url, "TEST_WEBHOOK_SECRET")
        goal = bench.goal(
            person("ask"), person("other"), work("after", "ask", "other"), notify=notify
        )
        await bench.run(goal, "asking")
        assert sorted(receiver.types()) == ["goal.asking"] * 3  # one of them was tried again
        assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 2
        await bench.engine.answer(goal.id, "other", Answer())
        await bench.in_state(goal, "other", "done")
        await bench.engine.wait(goal.id, bench.patience)
        await bench.engine.answer(goal.id, "ask", Answer())
        report = await bench.finish(goal)
        assert receiver.types()[3:] == ["goal.done"]
        assert receiver.event(3)["data"] == {"goal": goal.id, "revision": 1}
        assert report.substeps["notify.end"].state == "done"
        assert SECRET not in str(report)


async def failures_are_notified(bench: Bench) -> None:
    """The end of a goal that fails is notified, even when nothing else runs any more."""
    with _receiver() as receiver:
        notify = Notify(receiver.url, "TEST_WEBHOOK_SECRET", ("failed",))
        goal = bench.goal(
            work("bad"), person("ask"), work("beside"), notify=notify,
            work={"bad": fails_until(Gate(), broken()), "beside": holds(Gate())},
        )  # fmt: skip
        await bench.run(goal, "failed")
        assert receiver.types() == ["goal.failed"]


async def notifications_that_fail(bench: Bench) -> None:
    """A redirect is not followed; a goal ends as it would without the notification."""
    with _receiver(302) as receiver:
        notify = Notify(receiver.url, "TEST_WEBHOOK_SECRET", ("done",))
        report = await bench.run(bench.goal(work("a"), notify=notify))
        assert len(receiver.requests) == 1
        assert report.substeps["notify.end"].error
        notify = Notify(receiver.url, "TEST_MISSING_SECRET", ("done",))
        report = await bench.run(bench.goal(work("a"), notify=notify))
        assert len(receiver.requests) == 1
        error = report.substeps["notify.end"].error
        assert error
        assert error.code == "NO_SECRET"
