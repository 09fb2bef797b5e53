"""`satchel improve` with a scripted model over HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from model_server import ModelServer, Reply, model_of
from satchel import Satchel
from satchel.errors import InvalidInput, ModelFailed, NotFound
from satchel.evals.improvement import MAX_REQUESTS, DescriptionSearch, accept
from satchel.testing import make_skill

pytestmark = pytest.mark.timeout(180)
OLD = "Adds up the lines of an invoice. Use when the user asks for an invoice."
PROMPTS = [
    "Tally the restaurant receipts", "Tally my receipts", "What do these receipts come to",
    "Receipts of the trip, please", "How much is the invoice", "Sum of this invoice",
]  # fmt: skip


@pytest.fixture
def project(tmp_path):
    """Two skills with trigger tests."""
    folder = tmp_path / "project/.agents/skills"
    for name, text, prompts in (
        ("invoices", OLD, PROMPTS),
        ("travel", "Plans a trip. Use when the user asks for a journey.",
         ["Plan my trip to Rome", "A journey by train", "Where should my trip go", "Book a trip"]),
    ):  # fmt: skip
        make_skill(folder, name, text, body="Do it well.\n")
        (folder / name / "evals").mkdir()
        cases = {"should": prompts, "should_not": ["Write a poem", "Paint a picture"]}
        (folder / name / "evals/triggers.yaml").write_text(json.dumps(cases))
    return tmp_path / "project"


def search_with(project, script):
    """The result of a search for `invoices`, and the server."""
    satchel = Satchel.for_project(project, trust="all", builtin=False, packaged=False)
    with ModelServer(script) as server:
        skill = satchel.get_skill("invoices")
        assert skill is not None
        model = model_of(server, "anthropic", "claude-sonnet-5")
        search = DescriptionSearch(satchel, skill, model)
        try:
            result = search.run()
        finally:
            satchel.close()
    return search, result, server


def proposing(*texts: str, choice: str = "invoices"):
    """A model that proposes texts in turn, and chooses one skill for all requests."""
    rest = iter(texts)

    def script(request):
        if "final_result" in request.tools:
            count = len(re.findall(r"(?m)^\d+\. ", request.last_user))
            return Reply(calls=[("final_result", {"response": [choice] * count})])
        return next(rest, texts[-1])

    return script


BETTER = "Adds up invoices and receipts: the tally. Use when the user asks for a sum or a receipt."


def test_a_better_description_is_found_and_confirmed(project):
    search, result, server = search_with(project, proposing("Nothing.", BETTER))
    assert result.proposal == BETTER
    assert result.is_better
    assert result.seen.after == result.seen.total > result.seen.before
    assert result.held_out.after > result.held_out.before
    assert result.neighbours.after >= result.neighbours.before > 0
    assert result.choices == (3, 3, 4)
    assert result.requests == len(server.requests) <= MAX_REQUESTS
    held_out = [prompt.text for prompt in search.held_out]
    proposals = [request for request in server.requests if "final_result" not in request.tools]
    assert not any(text in request.last_user for text in held_out for request in proposals)
    assert 0 < result.cost < (search.estimate() or 0)


def test_a_description_that_takes_the_requests_of_another_skill_is_refused(project):
    greedy = "Adds up receipts, tally, and plans a trip or journey to Rome by train: book a trip."
    _, result, server = search_with(project, proposing(greedy))
    assert (result.proposal, result.is_better) == (OLD, False)
    assert len(server.requests) == MAX_REQUESTS - 2
    assert "other_skill_loses_its_requests" not in server.requests[0].last_user


def test_a_model_that_no_longer_chooses_the_skill_decides_against_the_proposal(project):
    def script(request):
        if "final_result" in request.tools:
            name = "" if BETTER in request.last_user else "invoices"
            return Reply(calls=[("final_result", {"response": [name] * 4})])
        return BETTER

    _, result, _ = search_with(project, script)
    assert (result.choices, result.is_better) == ((3, 1, 4), False)


def test_a_provider_that_refuses_ends_the_search(project):
    with pytest.raises(ModelFailed, match="no credit"):
        search_with(project, lambda _: Reply("no credit", status=400))


def test_too_few_prompts_are_refused(project):
    path = project / ".agents/skills/invoices/evals/triggers.yaml"
    path.write_text(json.dumps({"should": PROMPTS[:3]}))
    with pytest.raises(NotFound, match="too few"):
        search_with(project, proposing(BETTER))


@pytest.mark.parametrize(
    "style", ["plain", "> folded\n  over lines", '"quoted: text"', "|\n  kept"]
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_accepting_changes_the_description_and_nothing_else(tmp_path, style, ending):
    folder = tmp_path / ".agents/skills/a"
    folder.mkdir(parents=True)
    text = f"---\nname: a\ndescription: {style}\nlicense: MIT\n---\nBody with description: x\n"
    (folder / "SKILL.md").write_bytes(text.replace("\n", ending).encode())
    satchel = Satchel.for_project(tmp_path, trust="all", builtin=False, packaged=False)
    skill = satchel.get_skill("a")
    assert skill is not None
    accept(satchel.store_of(skill), skill, BETTER)
    changed = (folder / "SKILL.md").read_bytes().decode()
    lines = ["---", "name: a", f'description: "{BETTER}"', "license: MIT", "---",
             "Body with description: x", ""]  # fmt: skip
    assert changed.split(ending) == lines
    satchel.close()
    again = Satchel.for_project(tmp_path, trust="all", builtin=False, packaged=False)
    assert [skill.description for skill in again.list_skills()] == [BETTER]
    again.close()


def test_a_description_that_cannot_be_told_from_other_lines_is_left(tmp_path):
    folder = tmp_path / ".agents/skills/a"
    folder.mkdir(parents=True)
    text = "---\n{name: a, description: Flow style of YAML}\n---\nBody\n"
    (folder / "SKILL.md").write_text(text)
    satchel = Satchel.for_project(tmp_path, trust="all", builtin=False, packaged=False)
    skill = satchel.get_skill("a")
    assert skill is not None
    with pytest.raises(InvalidInput, match="cannot be replaced"):
        accept(satchel.store_of(skill), skill, BETTER)
    assert (folder / "SKILL.md").read_text() == text
    satchel.close()


def test_the_command_shows_the_figures_and_accepts_the_diff(project, tmp_path):
    path = project / ".agents/skills/invoices/SKILL.md"
    before = path.read_text()
    with ModelServer(proposing(BETTER)) as server:
        environment = {**os.environ, **server.environment(), "SATCHEL_TRUST": "all",
                       "SATCHEL_HOME": str(tmp_path / "home")}  # fmt: skip

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "satchel", "improve", "invoices",
                       "--model", "anthropic:claude-sonnet-5", *options]  # fmt: skip
            return subprocess.run(command, cwd=project, env=environment, text=True,
                                  capture_output=True, check=False)  # fmt: skip

        asked = run()
        assert "estimated cost: $" in asked.stderr
        assert "pass `--yes`" in asked.stderr
        assert server.requests == []
        shown = run("--yes", "--dry-run")
        assert (shown.returncode, path.read_text()) == (0, before), shown.stderr
        assert f"+description: {BETTER[:40]}" in shown.stdout
        assert re.search(r"held-out prompts +\d/4 +\d/4", shown.stdout)
        accepted = run("--yes", "--json")
    assert json.loads(accepted.stdout)["is_better"]
    assert path.read_text() == before.replace(OLD, BETTER)
    command = [sys.executable, "-m", "satchel", "undo"]
    subprocess.run(command, cwd=project, env=environment, check=True)
    assert path.read_text() == before
