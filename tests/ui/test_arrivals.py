"""Sources that wait: fetched by a script, chosen from twice at once, dropped, forgotten."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
import zipfile

import pytest
from starlette.testclient import TestClient

from satchel.errors import NotFound
from satchel.facade import Satchel
from satchel.ui import arrivals, house
from satchel.ui.access import Access
from satchel.ui.app import make_app
from ui_visit import ORIGIN, Visit

SKILL = "---\nname: {name}\ndescription: Does things. Use when asked.\n---\nDo.\n"


def packed(*names: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name in names:
            archive.writestr(f"{name}/SKILL.md", SKILL.format(name=name))
    return body.getvalue()


def bring(visit, *names: str) -> str:
    """The key of the plan, or of the arrival where there are several."""
    answer = visit.post("/skills/import/zip", files={"file": ("a.zip", packed(*names))})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("/")[2]


def spools(home) -> list[str]:
    """What is kept of uploads."""
    root = home.arrivals.spools._root  # noqa: SLF001 - what it holds has no other sign
    return os.listdir(root) if root else []


def waiting(home) -> list[str]:
    """The keys of all plans."""
    return list(home.desk._waiting)  # noqa: SLF001 - what it holds has no other sign


@pytest.fixture
def home(visit):
    return visit.client.app.house


@pytest.fixture
def tarpit():
    """A port that takes calls and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/o/r"


def till(done, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


# --- a script and a page do the same --------------------------------------------------------


@pytest.mark.req("B8")
def test_what_a_script_brought_is_decided_in_a_page(visit, home, project):
    keys = [
        visit.post(f"/api/plans/zip?name={name}.zip", content=packed(name)).json()["key"]
        for name in ("alpha", "beta")
    ]
    assert "alpha.zip" in visit.get(f"/plans/{keys[0]}").text
    assert visit.post(f"/plans/{keys[0]}/yes").status_code == 303
    assert (project / ".agents/skills/alpha/SKILL.md").is_file()
    assert visit.post(f"/plans/{keys[1]}/no").status_code == 303
    assert spools(home) == []


@pytest.mark.req("B8")
@pytest.mark.parametrize("answer", ["yes", "no"])
def test_what_a_page_brought_is_decided_by_a_script_and_nothing_stays(visit, home, answer):
    key = bring(visit, "alpha")
    assert len(spools(home)) == 1
    if answer == "yes":
        assert visit.post(f"/api/plans/{key}/yes", json={}).json()["ids"] == ["alpha"]
    else:
        headers = {"X-Satchel-CSRF": visit.csrf}
        assert visit.client.delete(f"/api/plans/{key}", headers=headers).status_code == 204
    assert spools(home) == []


def test_a_script_says_which_skills_of_a_zip(visit):
    answer = visit.post("/api/plans/zip", content=packed("alpha", "beta"))
    assert answer.status_code == 422
    assert "alpha" in answer.json()["error"]["message"]
    every = visit.post("/api/plans/zip?everything=true", content=packed("alpha", "beta")).json()
    assert [step["id"] for step in every["steps"]] == ["alpha", "beta"]
    named = visit.post("/api/plans/zip?skill_id=mine", content=packed("alpha")).json()
    assert [step["id"] for step in named["steps"]] == ["mine"]


# --- git by a script ------------------------------------------------------------------------


def test_a_fetch_that_never_ends_holds_nobody_up_and_can_be_cancelled(visit, home, tarpit):
    began = time.monotonic()
    first = visit.post("/api/plans/git", json={"address": tarpit})
    assert first.status_code == 202
    found = first.json()
    assert (found["state"], found["plan"]) == ("fetching", "")
    assert first.headers["location"] == found["ask"] == f"/api/plans/git/{found['key']}"
    for _ in range(arrivals.MOST_FETCHING - 1):
        assert visit.post("/api/plans/git", json={"address": tarpit}).status_code == 202
    full = visit.post("/api/plans/git", json={"address": tarpit})
    assert full.status_code == 403
    assert "being fetched already" in full.json()["error"]["message"]
    assert visit.get(found["ask"]).json()["state"] == "fetching"
    headers = {"X-Satchel-CSRF": visit.csrf}
    assert visit.client.delete(found["ask"], headers=headers).status_code == 204
    assert visit.get(found["ask"]).status_code == 404
    assert visit.post("/api/plans/git", json={"address": tarpit}).status_code == 202
    assert time.monotonic() - began < 20
    home.arrivals.close()


def test_a_repository_becomes_a_plan_that_a_script_carries_out(visit, home, project, tmp_path):
    """A folder stands for the repository: what follows the fetch is the same."""
    for name in ("alpha", "beta"):
        (tmp_path / "repo" / name).mkdir(parents=True)
        (tmp_path / "repo" / name / "SKILL.md").write_text(SKILL.format(name=name))
    store = visit.satchel.store("project")
    wanted = arrivals.Wanted(names=("beta",))
    arrival = home.arrivals.fetch(store, str(tmp_path / "repo"), "", "", wanted=wanted)
    till(lambda: arrival.state != "fetching")
    found = visit.get(f"/api/plans/git/{arrival.key}").json()
    assert found["state"] == "planned"
    done = visit.post(f"/api/plans/{found['plan']}/yes", json={}).json()
    assert done["ids"] == ["beta"]
    assert not (project / ".agents/skills/alpha").exists()
    unknown = arrivals.Wanted(names=("gamma",))
    arrival = home.arrivals.fetch(store, str(tmp_path / "repo"), "", "", wanted=unknown)
    till(lambda: arrival.state != "fetching")
    failed = visit.get(f"/api/plans/git/{arrival.key}")
    assert failed.status_code == 404
    assert "gamma" in failed.json()["error"]["message"]


def test_somebody_from_another_machine_reaches_no_neighbour_of_this_one(project, tarpit):
    satchel = Satchel.for_project(project, trust="all")
    app = make_app(satchel, Access(password="a long password"))
    with TestClient(app, base_url=ORIGIN, follow_redirects=False) as client:
        client.post("/enter", data={"password": "a long password"}, headers={"Origin": ORIGIN})
        visit = Visit(client, satchel, None)
        answer = visit.post("/api/plans/git", json={"address": tarpit})
        assert answer.status_code == 202
        ask = answer.json()["ask"]
        till(lambda: visit.get(ask).status_code == 403)
        assert "its own network" in visit.get(ask).json()["error"]["message"]
        page = visit.post("/skills/import/git", data={"source": tarpit}).headers["location"]
        till(lambda: "its own network" in visit.get(page).text)
        assert "A path on this machine works" not in visit.get("/skills/import").text
    satchel.close()


# --- what is left ---------------------------------------------------------------------------


@pytest.fixture
def slow(visit, monkeypatch):
    """Plans of a source take till they are let go."""
    store = visit.satchel.store("project")
    real, began, go = store.plan_picked, threading.Event(), threading.Event()

    def plan_picked(*args, **more):
        began.set()
        assert go.wait(5)
        return real(*args, **more)

    def hold_up(arrival):
        monkeypatch.setattr(arrival.store, "plan_picked", plan_picked)
        return began, go

    return hold_up


def test_what_is_dropped_while_a_plan_is_made_is_closed_afterwards(visit, home, slow, project):
    arrival = home.arrivals.look(bring(visit, "alpha", "beta"))
    began, go = slow(arrival)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            home.arrivals.choose(arrival, None)
        except NotFound as exc:
            caught.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(5)
    home.arrivals.drop(arrival.key)
    assert len(spools(home)) == 1  # it is being read
    go.set()
    thread.join(10)
    assert len(caught) == 1
    assert arrival.bundle is None
    assert spools(home) == []
    assert waiting(home) == []
    stage = project / ".agents/.satchel/stage"
    assert not stage.exists() or not list(stage.iterdir())


def test_two_choices_at_once_leave_one_plan(visit, home, slow):
    arrival = home.arrivals.look(bring(visit, "alpha", "beta"))
    began, go = slow(arrival)
    threads = [
        threading.Thread(target=home.arrivals.choose, args=(arrival, {name: name}))
        for name in ("alpha", "beta")
    ]
    for thread in threads:
        thread.start()
    assert began.wait(5)
    go.set()
    for thread in threads:
        thread.join(10)
    assert waiting(home) == [arrival.plan]


def test_what_nobody_came_back_for_is_over_and_swept(visit, home, monkeypatch):
    plan = bring(visit, "alpha")
    source = bring(visit, "beta", "gamma")
    assert visit.get(f"/plans/{plan}").status_code == 200
    monkeypatch.setattr(house, "PATIENCE", -1.0)
    monkeypatch.setattr(arrivals, "PATIENCE", -1.0)
    for answer in (
        visit.get(f"/plans/{plan}"),
        visit.post(f"/plans/{plan}/yes"),
        visit.get(f"/skills/import/{source}"),
    ):
        assert answer.status_code == 404
    assert len(spools(home)) == 2
    home.sweep()
    assert spools(home) == []
    assert waiting(home) == []


def test_a_plan_that_is_thrown_away_under_a_reader_is_said_to_wait_no_more(visit, home):
    key = bring(visit, "alpha")
    home.desk.look(key).plan.close()
    answer = visit.get(f"/plans/{key}/diff?step=0&path=SKILL.md")
    assert answer.status_code == 404
    assert "waits no more" in answer.text


def test_somebody_was_quicker_is_said_even_when_the_source_is_gone(visit, home, skill):
    key = bring(visit, "beta")
    home.arrivals.drop(home.desk.look(key).arrival)
    skill("beta", "Somebody else's. Use when asked.")
    answer = visit.post(f"/plans/{key}/yes")
    assert answer.status_code == 409
    assert "not open any more" not in answer.text
    assert "meanwhile" in answer.text
