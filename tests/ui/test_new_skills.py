"""New skills by a form, and imports from a repository."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from satchel.testing import make_skill


def told(visit, answer) -> str:
    """The page after a redirect."""
    assert answer.status_code == 303, answer.text
    return visit.get(answer.headers["location"]).text


@pytest.mark.req("B6", "B11")
def test_the_form_writes_a_small_valid_skill_which_can_be_taken_back(visit, project):
    assert not (project / ".agents").exists()
    answer = visit.post(
        "/skills/add",
        data={"name": "Release Notes!", "description": "Writes notes. Use when a version ships."},
    )
    assert answer.status_code == 303
    location = answer.headers["location"]
    assert location.startswith("/skills?open=.agents%2Fskills%2Frelease-notes&told=")
    key = location.rpartition("#row-")[2]
    shown = visit.get(location).text
    assert f'<tr id="row-{key}" class="skill is-full is-new"' in shown
    text = (project / ".agents/skills/release-notes/SKILL.md").read_text()
    assert text.startswith("---\nname: release-notes\ndescription: ")
    assert [skill.name for skill in visit.satchel.list_skills()].count("release-notes") == 1
    assert "Added: <code>release-notes</code>" in shown
    for action, there in (("undo", False), ("redo", True)):
        number = re.search(r'name="number" value="(\d+)"', shown)
        assert number is not None
        shown = told(visit, visit.post(f"/{action}", data={"number": number[1]}))
        assert (project / ".agents/skills/release-notes").exists() is there


@pytest.mark.req("B6")
def test_typed_text_stays_when_the_name_is_taken(visit, skill):
    skill("notes")
    answer = visit.post("/skills/add", data={"name": "Notes", "description": "Mine & <yours>"})
    assert answer.status_code == 422
    assert "exists already" in answer.text
    assert "Mine &amp; &lt;yours&gt;" in answer.text
    answer = visit.post("/skills/add", data={"name": " "})
    assert answer.status_code == 422
    assert "A skill needs a name" in answer.text


@pytest.mark.req("B6")
def test_the_form_says_the_id_and_what_the_description_lacks_while_one_types(visit, skill):
    skill("taken")
    part = visit.post("/skills/add/check", data={"name": "My PDF Forms", "description": "PDFs"})
    assert "<code>my-pdf-forms</code>" in part.text
    assert "The description should have at least 40 characters" in part.text
    good = visit.post(
        "/skills/add/check",
        data={
            "name": "x",
            "description": "Fills in the forms of a PDF file. Use when a form is to be filled in.",
        },
    )
    assert "No issues" in good.text
    assert ">✗ Taken<" in visit.post("/skills/add/check", data={"name": "Taken"}).text


# --- git ------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    """A repository with two skills."""
    folder = tmp_path / "repo"
    for name in ("greet", "wave"):
        make_skill(folder / "skills", name, f"Says {name}. Use for greetings.", body="Do.")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def arrived(visit, address: str) -> str:
    """The target of a fetch."""
    for _ in range(200):
        answer = visit.part(f"{address}/progress")
        if "hx-redirect" in answer.headers:
            return answer.headers["hx-redirect"]
        if "hx-get" not in answer.text:
            return answer.text
        time.sleep(0.02)
    raise AssertionError("it never ended")


@pytest.mark.req("B8")
def test_a_repository_is_fetched_and_chosen_from(visit, repository, project):
    answer = visit.post("/skills/import/git", data={"source": f"file://{repository}"})
    assert answer.status_code == 303
    address = answer.headers["location"]
    plan = arrived(visit, address)
    assert visit.get(address).headers["location"] == plan
    page = visit.get(plan).text
    assert ">greet</h2>" in page
    assert ">wave</h2>" in page
    told(visit, visit.post(f"{plan}/yes", data={"take": ["wave"]}))
    assert (project / ".agents/skills/wave/SKILL.md").is_file()
    assert not (project / ".agents/skills/greet").exists()
    assert visit.satchel.store().lock()["wave"].place.kind == "git"


def test_a_missing_repository_is_an_error_and_a_fetch_can_be_cancelled(visit, tmp_path):
    gone = visit.post("/skills/import/git", data={"source": f"file://{tmp_path}/nothing"})
    text = arrived(visit, gone.headers["location"])
    assert "cannot be fetched" in text
    cancelled = visit.post(f"{gone.headers['location']}/cancel")
    assert cancelled.headers["location"] == "/skills/import"
    assert visit.get(gone.headers["location"]).status_code == 404


@pytest.mark.req("B6")
def test_a_name_of_which_no_id_can_be_made_asks_for_one(visit, project):
    typed = {"name": "会议纪要", "description": "Writes notes. Use after meetings."}
    first = visit.post("/skills/add/check", data=typed).text
    assert 'name="own"' in first
    # The field stays while it is edited.
    assert 'name="own"' not in visit.post("/skills/add/check", data={**typed, "asked": "1"}).text
    asked = visit.post("/skills/add", data=typed)
    assert asked.status_code == 422
    assert "No id can be made of <code>会议纪要</code>" in asked.text
    assert 'name="own" value="" required' in asked.text
    wrong = visit.post("/skills/add", data={**typed, "own": "../x"})
    assert wrong.status_code == 422
    assert "is not a valid name" in wrong.text
    for own in ("meeting-notes", "weekly"):
        assert visit.post("/skills/add", data={**typed, "own": own}).status_code == 303
        assert "# 会议纪要" in (project / ".agents/skills" / own / "SKILL.md").read_text()
    taken = visit.post("/skills/add", data={**typed, "own": "weekly"})
    assert taken.status_code == 422
    assert "exists already" in taken.text


# --- unusable scope -------------------------------------------------------------------------


@pytest.fixture
def astray(project, tmp_path):
    """The project's skill folder is a link that leads out of it."""
    (tmp_path / "elsewhere").mkdir()
    (project / ".agents").mkdir()
    (project / ".agents/skills").symlink_to(tmp_path / "elsewhere")
    make_skill(tmp_path / ".config/agents/skills", "mine", "Mine. Use when.", body="Do.")
    return "~/.config/agents/skills/mine"


@pytest.mark.req("B7", "B11")
def test_a_scope_that_leads_elsewhere_is_one_problem_on_the_page(visit, astray):
    for address in ("/history", "/skills/add", "/skills/add?scope=global", "/skills/import"):
        answer = visit.get(address)
        assert answer.status_code == 200
        assert answer.text.count("leads outside the project") == 1
        assert "Replace the link by a copy" in answer.text
    form = visit.get("/skills/add").text
    assert 'value="project" disabled>' in form
    assert 'value="global" checked>' in form
    assert visit.post("/skills/add", data={"name": "more", "scope": "global"}).status_code == 303
    refused = visit.post("/skills/add", data={"name": "kept", "description": "Typed."})
    assert refused.status_code == 422
    assert "Typed." in refused.text
    for address in ("/skill", "/skill/edit"):
        assert visit.get(address, params={"ref": astray}).status_code == 200, address
    assert visit.post("/skills/remove", params={"ref": astray}).status_code == 303
