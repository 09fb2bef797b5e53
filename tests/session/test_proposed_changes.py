"""What a tool proposes to change: who sees it, what an answer covers, and what is applied."""

from __future__ import annotations

import asyncio
import os

import pytest

from needs import needs
from satchel import Satchel
from satchel.testing import make_skill, make_tool_skill
from tool_bench import PlainRunner, answering

WRITES = """
for path in a["paths"].split():
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write("new\\n")
return {"output": "done", "error": ""}
"""
PATHS = """\
parameters:
  - {name: paths, type: string, required: true, description: "Paths. Example: a.txt"}
files: write
"""


class Writer:
    """A project with the tool `job_run`, which writes what it is called with."""

    def __init__(self, tmp_path, tier):
        self.project, self.tier = tmp_path / "project", tier
        self.skills = self.project / ".agents/skills"
        self.asked = []
        self.declare()
        (self.project / "old.txt").write_text("old\n")

    def declare(self, more=""):
        make_tool_skill(self.skills, "job", answering(WRITES), more=PATHS + more)

    def begin(self, approve=None, **options):
        """A session; `approve` is an answer, or a function of the request."""
        settings = {"trust": "all", "builtin": False, "packaged": False}
        satchel = Satchel.for_project(self.project, **settings)
        self.runner = PlainRunner(satchel.settings, self.tier)
        self.overlays = os.path.join(satchel.settings.paths.state, "overlays")
        satchel = Satchel(satchel.library, satchel.settings, runner=self.runner)
        return satchel.session(approve=approve, **options)

    def answer(self, *answers):
        """An `approve` that gives these answers in turn; then it fails."""
        left = list(answers)
        return lambda request: self.asked.append(request) or left.pop(0)

    def paths(self):
        """The paths of each request."""
        return [[change.path for change in request.changes] for request in self.asked]

    def __contains__(self, path):
        file = self.project / path
        return file.exists() and file.read_text() == "new\n"


@pytest.fixture(params=["bwrap", "landlock"])
def writer(request, tmp_path):
    if request.param == "bwrap":
        needs("bwrap")
    return Writer(tmp_path, request.param)


@pytest.fixture
def quick(tmp_path):
    """In one tier only, where the tier makes no difference."""
    return Writer(tmp_path, "landlock")


@pytest.mark.req("E4")
def test_a_person_sees_every_change_after_the_run_and_before_it_is_applied(writer):
    seen = []

    def approve(request):
        seen.append((request, "old.txt" in writer, "a/b.txt" in writer))
        return True

    reply = writer.begin(approve).call("job_run", {"paths": "old.txt a/b.txt"})
    ((request, *applied),) = seen
    assert applied == [False, False]
    assert (request.tool, request.skill, request.reasons) == ("job_run", "job", ())
    created, changed = request.changes
    assert (created.path, created.kind, created.old_size, created.new_size) == (
        "a/b.txt", "created", None, 4,
    )  # fmt: skip
    assert (changed.path, changed.kind, changed.old_size, changed.new_size) == (
        "old.txt", "changed", 4, 4,
    )  # fmt: skip
    assert "-old\n+new" in changed.diff
    assert (
        request.question == "Apply the changes that the tool `job_run` of the skill `job` proposes?"
    )
    assert "old.txt" in writer
    assert "a/b.txt" in writer
    assert "Changed files: `a/b.txt`, `old.txt`" in reply.text


def test_without_changes_no_person_is_asked(quick):
    reply = quick.begin(quick.answer()).call("job_run", {"paths": ""})
    assert (reply.status, quick.asked) == ("success", [])


@pytest.mark.parametrize(
    ("approve", "applied", "text"),
    [
        (True, True, "so a person must accept it"),
        ("all", True, "so a person must accept it"),
        (None, False, "none can be asked here"),
        (False, False, "none can be asked here"),
        (lambda _request: False, False, "the user did not agree\nDo not propose these changes"),
        (lambda _request: "yes", False, "the user did not agree"),
    ],
)
def test_an_answer_in_advance_never_covers_a_file_that_steers(quick, approve, applied, text):
    reply = quick.begin(approve).call("job_run", {"paths": "a.txt AGENTS.md"})
    assert reply.status == "success"
    assert ("a.txt" in quick, "AGENTS.md" in quick) == (applied, False)
    assert len(reply.data["denied"]) == 1 + (not applied)
    assert text in reply.text


@pytest.mark.parametrize(
    ("answers", "applied"),
    [
        ((True, True, False), ["a.txt", "AGENTS.md"]),
        ((False, False, True), ["conftest.py"]),
        ((True, False, False), ["a.txt"]),
    ],
)
def test_each_file_that_steers_is_a_request_of_its_own(quick, answers, applied):
    paths = ["a.txt", "AGENTS.md", "conftest.py"]
    quick.begin(quick.answer(*answers)).call("job_run", {"paths": " ".join(paths)})
    assert quick.paths() == [["a.txt"], ["AGENTS.md"], ["conftest.py"]]
    assert "`AGENTS.md`" in quick.asked[1].question
    assert [path for path in paths if path in quick] == applied


def test_of_many_files_that_steer_the_first_are_asked_about(quick):
    paths = [f".github/{count:02}.md" for count in range(12)]
    reply = quick.begin(quick.answer(*[True] * 10)).call("job_run", {"paths": " ".join(paths)})
    assert [path for path in paths if path in quick] == paths[:10]
    assert "at most" in reply.data["denied"][0]


@pytest.mark.parametrize(
    ("more", "reasons"),
    [
        ("network: true\n", ("use the network",)),
        ("secrets: [API_KEY]\n", ("use the secrets `API_KEY`",)),
    ],
)
def test_network_and_secrets_are_asked_about_before_and_changes_after(
    quick, monkeypatch, more, reasons
):
    quick.declare(more)
    monkeypatch.setenv("API_KEY", "sesame")
    session = quick.begin(quick.answer(True, True, True))
    assert session.call("job_run", {"paths": ""}).status == "success"
    session.call("job_run", {"paths": "a.txt"})
    assert [request.reasons for request in quick.asked] == [reasons, reasons, ()]
    assert quick.paths() == [[], [], ["a.txt"]]
    assert "a.txt" in quick


def test_without_a_sandbox_the_question_comes_before_and_says_so(tmp_path):
    writer = Writer(tmp_path, "none")
    assert writer.begin().call("job_run", {"paths": "a.txt"}).error.code == "PERMISSION_DENIED"
    assert "a.txt" not in writer
    writer.begin(writer.answer(True)).call("job_run", {"paths": "a.txt"})
    assert "directly, since it runs without a sandbox" in writer.asked[0].question
    assert "a.txt" in writer


def test_a_granted_tool_needs_no_question_except_for_files_that_steer(quick):
    make_skill(quick.skills, "plain", "Plain.", allowed_tools="job_run")
    session = quick.begin()
    session.call("Skill", {"name": "plain"})
    session.call("job_run", {"paths": "a.txt AGENTS.md"})
    assert ("a.txt" in quick, "AGENTS.md" in quick) == (True, False)


def test_edits_of_the_user_during_the_question_stay(quick):
    def approve(_request):
        (quick.project / "old.txt").write_text("mine\n")
        return True

    reply = quick.begin(approve).call("job_run", {"paths": "a.txt old.txt"})
    assert (quick.project / "old.txt").read_text() == "mine\n"
    assert "a.txt" not in quick
    assert "`old.txt` was not changed: it was changed meanwhile" in reply.text
    assert "then call the tool again" in reply.text


def test_a_skill_that_is_loaded_while_the_question_is_open_can_forbid(quick):
    make_skill(quick.skills, "strict", "Strict.", disallowed_tools="job_run")
    session = quick.begin(lambda _request: bool(session.call("Skill", {"name": "strict"})))
    reply = session.call("job_run", {"paths": "a.txt"})
    assert "a loaded skill forbids the tool" in reply.text
    assert "a.txt" not in quick


# --- asynchronous hosts ---------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [True, False])
def test_questions_come_one_at_a_time_and_hold_no_place_of_other_calls(quick, blocking):
    """More calls than worker threads, one place for programs, and a loop that goes on."""
    count, open_now, most = 3 * (os.cpu_count() or 1) + 8, 0, 0

    async def later(request):
        nonlocal open_now, most
        open_now, most = open_now + 1, max(most, open_now + 1)
        while len(quick.runner.requests) < count:  # noqa: ASYNC110 - every program runs meanwhile
            await asyncio.sleep(0.01)
        open_now -= 1
        return True

    async def main():
        session = quick.begin((lambda request: asyncio.run(later(request))) if blocking else later)
        calls = [session.acall("job_run", {"paths": f"{name}.txt"}) for name in range(count)]
        return await asyncio.gather(*calls)

    replies = asyncio.run(main())
    assert most == 1
    assert all(f"{name}.txt" in quick for name in range(count)), [one.text for one in replies]


def test_a_call_that_is_cancelled_during_the_question_changes_nothing(quick):
    async def main():
        asked = asyncio.Event()

        async def approve(_request):
            asked.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(quick.begin(approve).acall("job_run", {"paths": "a.txt"}))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert "a.txt" not in quick
    assert [name for name in os.listdir(quick.overlays) if not name.startswith(".")] == []


def test_an_asynchronous_approve_in_a_blocked_loop_discards_and_says_why(quick):
    async def approve(_request):
        return True

    async def main():
        return quick.begin(approve).call("job_run", {"paths": "a.txt"})

    assert "use `acall`" in asyncio.run(main()).text
    assert "a.txt" not in quick
