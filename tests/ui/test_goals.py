"""Goals in the browser: list, board, steps, and actions."""

from __future__ import annotations

import asyncio
import html
import re
import threading
import time
from typing import Any, NamedTuple, cast

import pytest

from model_server import Reply, loopback
from satchel.errors import ServerFailed, StepFailed
from satchel.goals.approval_files import FileApproval
from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.engines.factory import Background, approvals_folder, local_folder
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, Plan, Retry, Step, Usage
from satchel.i18n import Message
from satchel.session.permissions import ApprovalRequest
from satchel.tools.framing import framed
from satchel.tools.proposed_changes import ProposedChange
from satchel.ui.events import LiveEvents
from satchel.ui.goal_service import GoalService

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
        return Background(cast("Any", Started([None], 0)), "", 0)

    def close(self) -> None:
        self.runner.free.set()
        self.do(self.engine.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Started(NamedTuple):
    """A process that runs until its code is set."""

    codes: list[int | None]
    at: int

    def poll(self) -> int | None:
        return self.codes[self.at]


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("SATCHEL_MODEL", "anthropic:claude-sonnet-5")


@pytest.fixture
def elsewhere(visit):
    made = Elsewhere(visit.satchel.settings)
    app_of(visit).goals.start_process = made.go_on
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


def test_the_list_has_waiting_goals_first_then_the_latest(visit, elsewhere):
    elsewhere.run("one", Step("a", prompt="go"), goal=f"Say {EVIL}")
    elsewhere.run("two", *ASKING)
    elsewhere.run("three", Step("a", prompt="go"), Step("b", prompt="fail {{steps.a.output}}"))
    text = visit.get("/goals").text
    assert EVIL not in text
    assert html.escape(EVIL, quote=False)[:10] in text
    assert re.findall(r'id="goal-(\w+)"', text) == ["two", "three", "one"]
    assert "Waiting for you" in text
    assert re.search(r'<progress max="2" value="1"', text)
    for kind, names in {"asking": ["two"], "failed": ["three"], "done": ["one"]}.items():
        part = visit.part(f"/goals?state={kind}").text
        assert "<html" not in part
        assert re.findall(r'id="goal-(\w+)"', part) == names
    assert "No goals" in visit.get("/goals?state=cancelled").text
    assert len(re.findall(r'id="goal-', visit.get("/goals?state=nonsense&before=nan").text)) == 3


class Lacking(Scripted):
    """A worker without the skill `weekly`."""

    def abilities(self):
        return {"model": f"test:{EVIL}", "skills": {"greeting": "0123456789ab"}}

    def version_of(self, step):
        return None if step.skill else ""


def test_the_list_shows_the_workers_and_what_waits_for_one(enter, tmp_path, monkeypatch):
    address = f"sqlite:///{tmp_path}/goals.db"
    monkeypatch.setenv("SATCHEL_ENGINE", f"dbos:{address}")
    visit = enter(trust="all")
    assert "No worker is alive" not in visit.get("/goals").text
    engine = DbosEngine(Lacking(), address)
    goal = Goal("week", Plan("Wait", (Step("a", "skill", skill="weekly", prompt="Go"),)))

    async def begin():
        await engine.__aenter__()
        await engine.submit(goal)
        while True:
            status = await engine.status()
            if status.waiting and status.workers[0].skills:
                return status.workers[0].name
            await asyncio.sleep(0.05)

    with asyncio.Runner() as loop:
        worker = loop.run(begin())
        page = visit.get("/goals").text
        loop.run(engine.__aexit__(None, None, None))
    assert EVIL not in page
    words = re.sub(r"<[^>]+>", "", page)
    for text in (f"● {worker}", "○ Waiting", "week · a", "does not have skill:weekly", "1/100"):
        assert text in words
    assert "/goals/week?step=a" in page
    assert "No worker is alive" in visit.get("/goals").text
    assert 'id="workers"' not in visit.get("/goals?state=done").text


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
    for words in ("1/3", "10 tokens in", "? Waiting for you", "✓ Done"):
        assert words in re.sub(r"<[^>]+>", "", text)
    assert visit.get("/goals/none").status_code == 404
    assert visit.get("/goals/..%2f..").status_code == 404


def test_a_step_shows_its_input_and_output(visit, elsewhere, skill):
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
    assert "a table for {{inputs.who}}" in first
    assert "&#34;rows&#34;: [" in first
    assert "1,200 tokens in" in first
    assert "$0.5000" in first
    second = visit.part("/goals/week/steps/second").text
    assert re.search(r'<a href="/skill\?ref=[^"]+">greeting</a>', second)
    assert "clock_read" in second
    assert "{{steps.last.output}}" in second
    assert visit.part("/goals/week/steps/none").status_code == 404
    assert "second did it" in visit.get("/goals/week?step=second").text


def test_the_result_of_a_finished_goal_is_on_top(visit, elsewhere):
    elsewhere.run("week", Step("a", prompt="a table"), Step("b", prompt="say {{steps.a.output}}"))
    text = visit.get("/goals/week").text
    assert text.index(">Result</h2>") < text.index("b did it") < text.index('id="drawing"')
    assert "Retry failed steps" not in text
    elsewhere.run("two", Step("a", prompt="table"), Step("b", prompt="go"))
    text = visit.get("/goals/two").text
    assert "Result: a" in text
    assert "Result: b" in text
    assert EVIL not in text


def test_a_failed_tool_step_is_explained_to_people_not_to_the_model(visit, elsewhere):
    async def misled(_):
        raise StepFailed(
            Message("There is no file `{path}`", path="orders.csv"),
            Message("Call ReadFile on its folder to see what is there"),
            code="NOT_FOUND",
            retryable=False,
        )

    elsewhere.runner.run = misled
    elsewhere.run("week", Step("read", "tool", tool="ReadFile", arguments={"path": "orders.csv"}))
    text = visit.get("/goals/week?step=read").text
    assert "There is no file <code>orders.csv</code>" in text
    assert "Call ReadFile" not in text
    assert "Check the arguments of this step" in text
    assert "Retry failed steps" in text


# --- a new goal ---------------------------------------------------------------------------

PLAN = """\
goal: Report the week
inputs: {week: 46, drafts: false, team: shop}
steps:
  - {id: ask, action_type: human, prompt: "{{inputs.week}} {{inputs.reader}} {{inputs.team}}?"}
"""


def draft_of(visit, **sent) -> str:
    answer = visit.post("/goals/+new", **sent)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


@pytest.mark.req("C6")
def test_a_goal_starts_from_a_plan_of_the_project_with_its_inputs(visit, project, elsewhere):
    (project / "plans").mkdir()
    (project / "plans" / "week.yaml").write_text(PLAN, "utf-8")
    (project / "other.yaml").write_text("name: no plan\n", "utf-8")
    page = visit.get("/goals/+new").text
    assert re.findall(r"<option>([^<]+)", page) == ["plans/week.yaml"]
    draft = draft_of(visit, data={"path": "plans/week.yaml"})
    text = visit.get(draft).text
    for field in (
        'name="week" type="number" step="1" value="46"',
        'name="drafts" value="true">',
        'name="team" value="shop"',
        'name="reader" value="" autocomplete="off" required',
    ):
        assert field in text, field
    refused = visit.post(draft, data={"week": "47", "team": "<b>"})
    assert refused.status_code == 422
    assert "<code>reader</code> is missing" in refused.text
    assert 'value="&lt;b&gt;"' in refused.text, "what was typed is kept"
    began = visit.post(draft, data={"week": "47", "team": "x", "reader": "Ann", "drafts": "true"})
    goal = began.headers["location"].rpartition("/")[2]
    assert goal.startswith("report-the-week-")
    until(visit, goal, "asking")
    assert "47 Ann x?" in visit.get(f"/goals/{goal}").text
    plan = elsewhere.do(elsewhere.engine.report(goal)).plan
    assert plan.inputs == {"week": 47, "drafts": True, "team": "x", "reader": "Ann"}
    assert visit.get(draft).status_code == 404


def test_an_uploaded_plan_with_errors_is_shown_and_not_started(visit):
    file = {"file": ("<x>.yaml", "goal: Go\nsteps:\n  - {id: a, tool: nobody}\n")}
    draft = draft_of(visit, files=file)
    text = visit.get(draft).text
    assert "nobody" in text
    assert "line 3: " in text
    assert "Start goal" not in text
    assert visit.post(draft).status_code == 422
    assert visit.post("/goals/+new", data={"path": "../../etc/passwd"}).status_code == 422
    assert visit.post(f"{draft}/cancel").headers["location"] == "/goals/+new"


WORDS = "Report the week\r\n\r\n" + '- "sales" of each day: 销售 --file\r\n' * 400


def planned(visit, draft: str):
    """The answer to the poll of the page once the process has ended."""
    end = time.monotonic() + 50
    while "Making a plan…" in (answer := visit.part(draft)).text:
        assert time.monotonic() < end
        time.sleep(0.1)
    return answer


@pytest.mark.req("C6")
def test_a_goal_starts_from_words(visit, elsewhere):
    steps = [{"id": "look", "prompt": "Look"}, {"id": "tell", "prompt": "{{steps.look.output}}"}]
    with loopback([Reply(calls=[("submit_plan", {"goal": "-", "steps": steps})])]) as server:
        assert 'maxlength="20000">' in visit.get("/goals/+new").text
        draft = draft_of(visit, data={"words": WORDS})
        assert "Making a plan…" in visit.get(draft).text
        assert visit.post(draft).status_code == 409
        answer = planned(visit, draft)
        assert answer.headers.get("HX-Redirect") == draft, answer.text
    said = WORDS.replace("\r\n", "\n").strip()
    assert said in server.requests[0].last_user
    text = visit.get(draft).text
    assert "<td>look</td>" in text
    assert "Start goal" in text
    goal = visit.post(draft).headers["location"].rpartition("/")[2]
    until(visit, goal, "done")
    plan = elsewhere.do(elsewhere.engine.report(goal)).plan
    assert (plan.goal, [one.id for one in plan.steps]) == (said, ["look", "tell"])


def test_words_without_a_plan_show_why(visit):
    with loopback([Reply("no such key", status=401)]):
        draft = draft_of(visit, data={"words": "Report the week"})
        text = planned(visit, draft).text
    assert 'role="alert"' in text
    assert "error: " in text
    assert "no such key" in text
    assert visit.post(draft).status_code == 409


def test_words_and_steps_need_a_model(monkeypatch, request):
    monkeypatch.delenv("SATCHEL_MODEL")
    visit, elsewhere = map(request.getfixturevalue, ("visit", "elsewhere"))
    page = visit.get("/goals/+new").text
    assert "No model is configured" in page
    assert 'maxlength="20000" disabled>' in page
    refused = visit.post("/goals/+new", data={"words": "Report the week"})
    assert refused.status_code == 422
    assert "Report the week" in refused.text, "what was typed is kept"
    file = {"file": ("a.yaml", "goal: Go\nsteps:\n  - {id: a, action_type: llm, prompt: Go}\n")}
    assert "No model is configured" in visit.get(draft_of(visit, files=file)).text
    elsewhere.run("week", *ASKING)
    answer = visit.post("/goals/week/answer", data={"step": "review"})
    assert answer.status_code == 422
    assert "No model is configured" in answer.text
    assert state(visit, "week") == "asking"


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
    assert elsewhere.options == [["--engine", "local", "--ask-in-browser"]]
    assert "shorter, please" in visit.part("/goals/week/steps/review").text
    again = visit.post("/goals/week/answer", data={"step": "review", "value": "other"})
    assert again.status_code == 409
    assert "answered already, with another answer" in again.text


def test_a_refused_step_fails_its_goal(visit, elsewhere):
    elsewhere.run("week", *ASKING)
    answer = visit.post("/goals/week/answer", data={"step": "review", "say": "no"})
    assert answer.headers["location"] == "/goals/week"  # a form without a script
    until(visit, "week", "failed")
    assert "answered by browser" in visit.part("/goals/week/board").text
    visit.post("/language", data={"name": "zh"})
    assert "The answer was no" not in visit.part("/goals/week/board").text  # nor in the drawing


def test_a_simple_schema_is_a_form_and_its_answer_has_the_types(visit, elsewhere):
    elsewhere.run("week", Step("ask", "human", prompt=framed("file", "", "Which?"), output=FORM))
    board = visit.part("/goals/week/board").text
    for one in ('"value.count" type="number"', 'select id="field-ask-2"', "How many", ">Which?\n"):
        assert one in board
    wrong = visit.post("/goals/week/answer", data={"step": "ask", "value.count": "x"})
    assert wrong.status_code == 422
    assert "is not a number" in wrong.text
    data = {"step": "ask", "value.count": "3", "value.sure": "true", "value.colour": ""}
    visit.post("/goals/week/answer", data=data)
    until(visit, "week", "done")
    report = elsewhere.do(elsewhere.engine.report("week"))
    assert report.steps["ask"].output == {"count": 3, "sure": True}


def test_a_running_goal_is_cancelled_and_gone_on_with_then_deleted(visit, elsewhere):
    elsewhere.run(
        "week", Step("a", prompt="hold"), Step("b", prompt="go", needs=("a",)), wait=False
    )
    until(visit, "week", "running")
    for action in ("retry", "delete"):
        assert visit.post(f"/goals/week/{action}", data={}).status_code == 409
    visit.post("/goals/week/cancel")
    until(visit, "week", "cancelled")
    elsewhere.runner.free.set()
    assert ">Resume</button>" in visit.part("/goals/week/board").text
    visit.post("/goals/week/retry", data={})
    until(visit, "week", "done")
    assert "Revision 2" in visit.part("/goals/week/board").text
    told = visit.post("/goals/week/delete").headers["location"]
    assert "Removed: <code>week</code>" in visit.get(told).text
    assert visit.get("/goals/week").status_code == 404


def test_a_step_is_done_again_with_all_that_depend_on_it(visit, elsewhere):
    elsewhere.run("week", Step("a", prompt="go"), Step("b", prompt="x {{steps.a.output}}"))
    assert visit.post("/goals/week/retry", data={}).status_code == 409
    assert "These steps run again: b" in visit.part("/goals/week/steps/b").text
    visit.post("/goals/week/retry", data={"from": "b"})
    until(visit, "week", "done")
    assert "Revision 2" in visit.part("/goals/week/board").text
    assert visit.post("/goals/week/retry", data={"from": "none"}).status_code == 404


def test_a_tool_that_writes_has_to_be_allowed(visit, elsewhere):
    elsewhere.run("week", Step("ask", "human", prompt="May I?"), Step("do", "tool", tool="a_write",
                  needs=("ask",)))  # fmt: skip
    assert "Allow tools to write" in visit.part("/goals/week/board").text
    visit.post("/goals/week/answer", data={"step": "ask", "allow": "1"})
    assert elsewhere.options == [["--engine", "local", "--allow-tools"]]


def test_a_tool_that_was_not_allowed_is_asked_about(visit, elsewhere):
    elsewhere.run("week", Step("ask", "human", prompt="May I?"))
    folder = approvals_folder(visit.satchel.settings, "week")
    change = ProposedChange(f"a{EVIL}.txt", "changed", 3, 1_004, "@@ -1 +1 @@\n-old\n+<i>new</i>")
    mode = ProposedChange("run.sh", "changed", 3, 3, executable=True)
    request = ApprovalRequest("note_add", {}, "note", changes=(change, mode))

    async def answer():
        asked = asyncio.ensure_future(FileApproval(folder)(request))
        await asyncio.sleep(0)  # it is written at once
        text = visit.part("/goals/week/board").text
        key = re.findall(r'name="key" value="([^"]+)"', text)[0]
        assert ">1<" in visit.get("/badges").text
        assert "Waiting for you" in visit.get("/goals").text
        codes = [
            visit.post("/goals/week/approve", data={"key": key, "say": "yes"}).status_code
            for _ in range(2)
        ]
        return text, codes, await asked

    text, codes, approved = asyncio.run(answer())
    assert (codes, approved) == ([303, 409], True)
    assert "Apply the changes that the tool <code>note_add</code>" in text
    assert "3 → 1,004 bytes" in text
    assert "3 → 3 bytes, becomes executable" in text
    assert "&lt;i&gt;new&lt;/i&gt;" in text
    assert EVIL not in text
    visit.post("/goals/week/answer", data={"step": "ask"})
    assert elsewhere.options == [["--engine", "local", "--ask-in-browser"]]


# --- processes ----------------------------------------------------------------------------


def test_a_process_that_fails_shows_the_reason(visit, elsewhere, tmp_path):
    log = tmp_path / "log"
    log.write_text(f"earlier\nerror: The key is missing {EVIL}\n", "utf-8")
    app_of(visit).goals.start_process = lambda *_, **__: Background(
        cast("Any", Started([6], 0)), str(log), len("earlier\n")
    )
    elsewhere.run("week", *ASKING)
    visit.post("/goals/week/answer", data={"step": "review"})
    text = visit.part("/goals/week/board").text
    assert "error: The key is missing &lt;script&gt;" in text
    assert "earlier" not in text


@pytest.fixture
def starts(visit, elsewhere):
    """The exit codes of the processes that were started; none of them does anything."""
    codes: list[int | None] = []

    def start(*_, **__):
        codes.append(None)
        return Background(cast("Any", Started(codes, len(codes) - 1)), "", 0)

    app_of(visit).goals.start_process = start
    return codes


ASK = Step("ask", "human", prompt="Well?")


def test_three_clicks_start_one_process(visit, elsewhere, starts):
    elsewhere.run("week", ASK)
    for _ in range(3):
        assert visit.post("/goals/week/resume").status_code == 303
    assert len(starts) == 1
    for _ in range(3):
        assert visit.post("/goals/week/answer", data={"step": "ask"}).status_code == 303
    assert len(starts) == 1
    # That process ended before it got the answer: the same answer starts another.
    starts[0] = 8
    assert visit.post("/goals/week/answer", data={"step": "ask"}).status_code == 303
    assert len(starts) == 2


TWO = (ASK, Step("too", "human", prompt="And this?"))


def test_a_process_gets_the_permission_to_write(visit, elsewhere, starts):
    elsewhere.run("week", *TWO)
    visit.post("/goals/week/answer", data={"step": "ask"})
    visit.post("/goals/week/answer", data={"step": "too", "allow": "1"})
    assert len(starts) == 2
    elsewhere.run("other", Step("a", prompt="fail"))
    codes = [visit.post("/goals/other/retry", data={}).status_code for _ in range(3)]
    assert codes == [303, 409, 409], "a second try of the same is refused"
    assert len(starts) == 3


def test_a_goal_without_its_engine_shows_an_error_and_is_loaded_again(visit, monkeypatch):
    def away(_):
        raise OSError("no database")

    monkeypatch.setattr("satchel.ui.engine_connection.open_engine", away)
    answer = visit.get("/goals/week")
    assert answer.status_code == 503
    assert "does not answer: no database" in answer.text
    assert 'href="/goals/week"' in answer.text
    assert answer.headers["refresh"] == answer.headers["retry-after"] == "3"
    assert visit.get("/goals/..%20x").status_code == 404


# --- the engine ---------------------------------------------------------------------------


class Slow:
    """An engine that opens in a thread, which cannot be cancelled."""

    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.opened = self.closed = 0

    async def __aenter__(self):
        await asyncio.to_thread(self.go.wait, 10)
        self.opened += 1
        return self

    async def __aexit__(self, *_):
        self.closed += 1


@pytest.fixture
def slow(monkeypatch):
    made: list[Slow] = []

    def open_engine(_):
        made.append(Slow())
        return made[-1]

    monkeypatch.setattr("satchel.ui.engine_connection.open_engine", open_engine)
    monkeypatch.setattr("satchel.ui.engine_connection.ENGINE_TIMEOUT_S", 0.05)
    monkeypatch.setattr("satchel.ui.engine_connection.MIN_ENGINE_WAIT_S", 0.01)
    return made


def test_an_engine_that_opens_slowly_is_opened_once(satchel, slow):
    async def ask() -> None:
        service = GoalService(satchel, LiveEvents(satchel))
        for _ in range(3):
            with pytest.raises(ServerFailed, match="it takes too long"):
                await service.connection.engine()
        slow[0].go.set()
        found = None
        while found is None:
            try:
                found = await service.connection.engine()
            except ServerFailed:
                await asyncio.sleep(0.01)
        assert found is cast("Any", slow[0])
        await service.close()

    asyncio.run(asyncio.wait_for(ask(), 10))
    assert [(one.opened, one.closed) for one in slow] == [(1, 1)]
