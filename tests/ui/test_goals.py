"""Goals in the browser: list, board, steps, and actions."""

from __future__ import annotations

import asyncio
import html
import re
import threading
import time
from typing import Any, NamedTuple, cast

import pytest

from satchel.goals.engines.factory import Background, local_folder
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, Plan, Retry, Step, Usage

EVIL = '<script>alert("x")</script>'
FORM = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "title": "How many"},
        "colour": {"enum": ["red", "green"]},
        "sure": {"type": "boolean"},
    },
    "required": ["count"],
}


class Scripted:
    """A runner scripted by its prompt: `fail` fails, `hold` waits, `table` is JSON."""

    def __init__(self) -> None:
        self.free = threading.Event()

    async def run(self, work):
        while "hold" in work.prompt and not self.free.is_set():  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)
        if "fail" in work.prompt and not self.free.is_set():
            raise ValueError(f"no luck {EVIL}")
        if "table" in work.prompt:
            return Done({"rows": [1, True, None], "by": EVIL}, Usage(1, 1_200, 34, 0.5))
        skills, notes = (("greeting",), ("cut",)) if "skilled" in work.prompt else ((), ())
        return Done(f"{work.step.id} did it", Usage(1, 10, 5), skills, ("clock_read",), notes)


class Elsewhere:
    """An engine in a thread, which replaces another process."""

    def __init__(self, settings) -> None:
        self.runner = Scripted()
        self.options: list[list[str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.engine = LocalEngine(self.runner, folder=local_folder(settings))
        self.do(self.engine.__aenter__())

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def run(self, name: str, *steps: Step, wait: bool = True, **more):
        plan = Plan(more.pop("goal", f"Reach {name}"), steps, retry=Retry(1, 0.01), **more)
        self.do(self.engine.submit(Goal(name, plan)))
        return self.do(self.engine.wait(name)) if wait else None

    def go_on(self, settings, goal_id, options, *, project):
        """Replaces the process that the server starts."""
        self.options.append(list(options))
        self.do(self.engine.resume(goal_id))
        return Background(cast("Any", Alive()), "", 0)

    def close(self) -> None:
        self.runner.free.set()
        self.do(self.engine.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Alive(NamedTuple):
    """A running process."""

    def poll(self) -> None:
        pass


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("SATCHEL_MODEL", "anthropic:claude-sonnet-5")


@pytest.fixture
def elsewhere(visit):
    made = Elsewhere(visit.satchel.settings)
    app_of(visit).goals.start = made.go_on
    yield made
    made.close()


def app_of(visit):
    return visit.client.app.state


def state(visit, name: str) -> str:
    found = re.search(r'data-state="(\w+)"', visit.part(f"/goals/{name}/board").text)
    assert found is not None
    return found[1]


def until(visit, name: str, wanted: str) -> None:
    end = time.monotonic() + 10
    while state(visit, name) != wanted:
        assert time.monotonic() < end, state(visit, name)
        time.sleep(0.05)


ASKING = (
    Step("draft", prompt="Write"),
    Step("review", "human", prompt=f"Is {{{{steps.draft.output}}}} right? {EVIL}"),
    Step("send", prompt="Send {{steps.review.output}}"),
)


# --- the list -----------------------------------------------------------------------------


def test_the_list_has_the_latest_first_and_can_be_filtered(visit, elsewhere):
    elsewhere.run("one", Step("a", prompt="go"), goal=f"Say {EVIL}")
    elsewhere.run("two", *ASKING)
    elsewhere.run("three", Step("a", prompt="go"), Step("b", prompt="fail {{steps.a.output}}"))
    text = visit.get("/goals").text
    assert EVIL not in text
    assert html.escape(EVIL, quote=False)[:10] in text
    assert re.findall(r'id="goal-(\w+)"', text) == ["three", "two", "one"]
    assert re.search(r'<progress max="2" value="1"', text)
    for kind, names in {"asking": ["two"], "failed": ["three"], "done": ["one"]}.items():
        part = visit.part(f"/goals?state={kind}").text
        assert "<html" not in part
        assert re.findall(r'id="goal-(\w+)"', part) == names
    assert "No goal is like that" in visit.get("/goals?state=cancelled").text
    assert len(re.findall(r'id="goal-', visit.get("/goals?state=nonsense&before=nan").text)) == 3


# --- one goal -----------------------------------------------------------------------------


def test_a_goal_is_drawn_with_a_link_for_each_step_and_no_style_of_its_own(visit, elsewhere):
    elsewhere.run("week", *ASKING, goal=f"Report {EVIL}")
    text = visit.get("/goals/week").text
    assert EVIL not in text
    assert "<style" not in text
    assert " style=" not in text
    found = re.findall(r'<a class="(\w+)" href="(/goals/week\?step=\w+)"', text)
    assert found == [
        ("done", "/goals/week?step=draft"),
        ("asking", "/goals/week?step=review"),
        ("waiting", "/goals/week?step=send"),
    ]
    for words in ("1 of 3 steps", "10 tokens in", "? asking", "✓ done"):
        assert words in re.sub(r"<[^>]+>", "", text)
    assert visit.get("/goals/none").status_code == 404
    assert visit.get("/goals/..%2f..").status_code == 404


def test_a_step_shows_what_it_was_told_and_what_it_gave(visit, elsewhere, skill):
    skill("greeting")
    visit.satchel.library.refresh()
    elsewhere.run(
        "week",
        Step("first", prompt="a table for {{inputs.who}}"),
        Step("second", prompt="skilled: {{steps.first.output}} and {{steps.last.output}}"),
        Step("last", prompt="later"),
        inputs={"who": EVIL},
    )
    first = visit.part("/goals/week/steps/first").text
    assert EVIL not in first
    assert "<mark" in first
    for token in ('<span class="j-key">&#34;rows&#34;</span>', '<span class="j-word">null</span>'):
        assert token in first
    assert "1,200 tokens in" in first
    assert "$0.5000" in first
    second = visit.part("/goals/week/steps/second").text
    assert re.search(r'<a href="/skill\?ref=[^"]+">greeting</a>', second)
    assert "clock_read" in second
    assert "last did it" in second
    assert visit.part("/goals/week/steps/none").status_code == 404
    assert "second did it" in visit.get("/goals/week?step=second").text


# --- actions ------------------------------------------------------------------------------


@pytest.mark.req("C6")
def test_an_approved_goal_goes_on_at_once(visit, elsewhere):
    elsewhere.run("week", *ASKING)
    board = visit.part("/goals/week/board").text
    assert "Is draft did it right? &lt;script&gt;" in board
    data = {"step": "review", "say": "yes", "value": "shorter, please", "note": "why not"}
    answer = visit.post("/goals/week/answer", data=data, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert 'id="board-in"' in answer.text
    until(visit, "week", "done")
    assert elsewhere.options == [["--engine", "local"]]
    assert "shorter, please" in visit.part("/goals/week/steps/review").text
    again = visit.post("/goals/week/answer", data={"step": "review", "value": "other"})
    assert again.status_code == 409
    assert "answered already, with another answer" in again.text


def test_a_refused_step_fails_its_goal(visit, elsewhere):
    elsewhere.run("week", *ASKING)
    answer = visit.post("/goals/week/answer", data={"step": "review", "say": "no"})
    assert answer.headers["location"] == "/goals/week"  # a form without a script
    until(visit, "week", "failed")
    assert "Step <code>review</code>: browser said no" in visit.part("/goals/week/board").text
    visit.post("/language", data={"name": "zh"})
    assert "said no" not in visit.part("/goals/week/board").text  # nor in the drawing


def test_a_simple_schema_is_a_form_and_its_answer_has_the_types(visit, elsewhere):
    elsewhere.run("week", Step("ask", "human", prompt="Which?", output=FORM))
    board = visit.part("/goals/week/board").text
    for field in ('name="value.count" type="number"', '<select id="field-ask-2"', "How many"):
        assert field in board
    wrong = visit.post("/goals/week/answer", data={"step": "ask", "value.count": "x"})
    assert wrong.status_code == 422
    assert "`x` is no number" in wrong.text
    data = {"step": "ask", "value.count": "3", "value.sure": "true", "value.colour": ""}
    visit.post("/goals/week/answer", data=data)
    until(visit, "week", "done")
    report = elsewhere.do(elsewhere.engine.report("week"))
    assert report.steps["ask"].output == {"count": 3, "sure": True}


def test_a_running_goal_is_cancelled_and_gone_on_with(visit, elsewhere):
    elsewhere.run(
        "week", Step("a", prompt="hold"), Step("b", prompt="go", needs=("a",)), wait=False
    )
    until(visit, "week", "running")
    assert visit.post("/goals/week/retry", data={}).status_code == 409
    visit.post("/goals/week/cancel")
    until(visit, "week", "cancelled")
    elsewhere.runner.free.set()
    assert "Go on with it" in visit.part("/goals/week/board").text
    visit.post("/goals/week/retry", data={})
    until(visit, "week", "done")
    assert "Revision 2" in visit.part("/goals/week/board").text


def test_a_step_is_done_again_with_all_that_depend_on_it(visit, elsewhere):
    elsewhere.run("week", Step("a", prompt="go"), Step("b", prompt="x {{steps.a.output}}"))
    assert visit.post("/goals/week/retry", data={}).status_code == 409
    assert "These steps are done again: b" in visit.part("/goals/week/steps/b").text
    visit.post("/goals/week/retry", data={"from": "b"})
    until(visit, "week", "done")
    assert "Revision 2" in visit.part("/goals/week/board").text
    assert visit.post("/goals/week/retry", data={"from": "none"}).status_code == 404


def test_a_tool_that_writes_has_to_be_allowed(visit, elsewhere):
    elsewhere.run("week", Step("ask", "human", prompt="May I?"), Step("do", "tool", tool="a_write",
                  needs=("ask",)))  # fmt: skip
    assert "Let its tools write" in visit.part("/goals/week/board").text
    refused = visit.post("/goals/week/answer", data={"step": "ask"})
    assert refused.status_code == 403
    assert "which may write or use the network" in refused.text
    assert "satchel goal approve week ask --engine local --allow-tools" in refused.text
    assert state(visit, "week") == "asking"
    visit.post("/goals/week/answer", data={"step": "ask", "allow": "1"})
    assert elsewhere.options == [["--engine", "local", "--allow-tools"]]


def test_without_a_model_nothing_is_said_to_the_goal(project, monkeypatch, request):
    monkeypatch.delenv("SATCHEL_MODEL")
    visit = request.getfixturevalue("visit")
    elsewhere = request.getfixturevalue("elsewhere")
    elsewhere.run("week", *ASKING)
    answer = visit.post("/goals/week/answer", data={"step": "review"})
    assert answer.status_code == 422
    assert "No model is chosen" in answer.text
    assert "satchel goal approve week review --engine local --model PROVIDER:NAME" in answer.text
    assert state(visit, "week") == "asking"


# --- processes ----------------------------------------------------------------------------


def test_a_process_of_its_own_goes_on_with_a_local_goal(project, monkeypatch, request):
    """The real process: `satchel goal resume`."""
    monkeypatch.delenv("SATCHEL_MODEL")  # no step needs one
    visit = request.getfixturevalue("visit")

    async def begin() -> None:
        async with LocalEngine(Scripted(), local_folder(visit.satchel.settings)) as engine:
            await engine.submit(Goal("week", Plan("Ask", (Step("ask", "human", prompt="Well?"),))))
            await engine.wait("week")

    asyncio.run(begin())
    visit.post("/goals/week/answer", data={"step": "ask", "value": "well"})
    end = time.monotonic() + 25
    while state(visit, "week") != "done":
        assert time.monotonic() < end, visit.part("/goals/week/board").text
        time.sleep(0.05)
    while app_of(visit).goals.is_running("week"):  # else it would still run in the next test
        time.sleep(0.05)


def test_a_process_that_cannot_go_on_says_why(visit, elsewhere, tmp_path):
    class Dead:
        def poll(self) -> int:
            return 6

    log = tmp_path / "log"
    log.write_text(f"earlier\nerror: The key is missing {EVIL}\n", "utf-8")
    app_of(visit).goals.start = lambda *_, **__: Background(
        cast("Any", Dead()), str(log), len("earlier\n")
    )
    elsewhere.run("week", *ASKING)
    visit.post("/goals/week/answer", data={"step": "review"})
    text = visit.part("/goals/week/board").text
    assert "error: The key is missing &lt;script&gt;" in text
    assert "earlier" not in text
