"""Pending imports: fetch, concurrent plans, drop, expiry."""

from __future__ import annotations

import socket
import threading

import pytest

from satchel.errors import NotFound
from satchel.ui import imports, state
from satchel.ui.auth import UiAccess

SKILL = "---\nname: {name}\ndescription: Does things. Use when asked.\n---\nDo.\n"


def bring(visit, *names: str) -> str:
    """Return the key of the plan."""
    answer = visit.upload({f"{name}/SKILL.md": SKILL.format(name=name) for name in names})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("/")[2]


def waiting(home) -> list[str]:
    """The keys of all plans."""
    return list(home.plans._pending)  # noqa: SLF001 - what it holds has no other sign


@pytest.fixture
def home(visit):
    return visit.client.app.state


@pytest.fixture
def tarpit():
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/o/r"


def test_a_fetch_that_never_ends_holds_up_nothing_and_can_be_cancelled(visit, home, tarpit):
    def fetch():
        return visit.post("/skills/import/git", data={"source": tarpit})

    pages = [fetch().headers["location"] for _ in range(imports.MAX_FETCHES)]
    full = fetch()
    assert full.status_code == 403
    assert "Too many requests" in full.text
    assert "Fetching <code>" in visit.get(pages[0]).text
    assert visit.post(f"{pages[0]}/cancel").status_code == 303
    assert visit.get(pages[0]).status_code == 404
    assert fetch().status_code == 303
    home.imports.close()


def test_behind_a_password_no_repository_is_fetched(enter, tarpit):
    visit = enter(UiAccess(password="a long password"), trust="all")
    visit.client.post(
        "/enter", data={"password": "a long password"}, headers={"Origin": "http://127.0.0.1"}
    )
    answer = visit.post("/skills/import/git", data={"source": tarpit})
    assert answer.status_code == 403
    assert "Repositories cannot be fetched here" in answer.text
    assert "./folder" not in visit.get("/skills/import").text


# --- clean-up -----------------------------------------------------------------------------


@pytest.fixture
def slow(visit, monkeypatch):
    """Plans of a source block until they are released."""
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


def test_what_is_dropped_while_a_plan_is_made_is_closed_afterwards(
    visit, home, slow, project, spooled
):
    arrival = home.imports.get(home.plans.get(bring(visit, "alpha", "beta")).import_key)
    began, go = slow(arrival)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            home.imports.plan(arrival)
        except NotFound as exc:
            caught.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(5)
    home.imports.drop(arrival.key)
    home.plans.drop(arrival.plan)
    assert len(list(spooled.iterdir())) == 1, "it is being read"
    go.set()
    thread.join(10)
    assert len(caught) == 1
    assert arrival.bundle is None
    assert not list(spooled.iterdir())
    assert waiting(home) == []
    stage = project / ".agents/.satchel/stage"
    assert not stage.exists() or not list(stage.iterdir())


def test_two_plans_at_once_leave_one(visit, home, slow):
    arrival = home.imports.get(home.plans.get(bring(visit, "alpha", "beta")).import_key)
    began, go = slow(arrival)
    threads = [
        threading.Thread(target=home.imports.rename, args=(arrival, "alpha", name))
        for name in ("gamma", "delta")
    ]
    for thread in threads:
        thread.start()
    assert began.wait(5)
    go.set()
    for thread in threads:
        thread.join(10)
    assert waiting(home) == [arrival.plan]


def test_what_waited_too_long_is_over_and_swept(visit, home, monkeypatch, spooled):
    plan = bring(visit, "alpha")
    source = home.plans.get(bring(visit, "beta", "gamma")).import_key
    assert visit.get(f"/plans/{plan}").status_code == 200
    monkeypatch.setattr(state, "PLAN_LIFETIME_S", -1.0)
    monkeypatch.setattr(imports, "IMPORT_LIFETIME_S", -1.0)
    for answer in (
        visit.get(f"/plans/{plan}"),
        visit.post(f"/plans/{plan}/yes"),
        visit.get(f"/skills/import/{source}"),
    ):
        assert answer.status_code == 404
    assert len(list(spooled.iterdir())) == 2
    home.sweep()
    assert not list(spooled.iterdir())
    assert waiting(home) == []


def test_a_plan_that_is_dropped_while_it_is_read_has_expired(visit, home):
    key = bring(visit, "alpha")
    home.plans.get(key).plan.close()
    answer = visit.get(f"/plans/{key}/diff?step=0&path=SKILL.md")
    assert answer.status_code == 404
    assert "This preview has expired" in answer.text


def test_somebody_was_quicker_is_said_even_when_the_source_is_gone(visit, home, skill):
    key = bring(visit, "beta")
    home.imports.drop(home.plans.get(key).import_key)
    skill("beta", "Somebody else's. Use when asked.")
    answer = visit.post(f"/plans/{key}/yes")
    assert answer.status_code == 409
    assert "meanwhile" in answer.text
