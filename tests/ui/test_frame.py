"""The house itself: the door, the gate, the words."""

from __future__ import annotations


def test_a_link_opens_one_session_and_is_worthless_afterwards(visit):
    token = visit.access.new_link()
    visit.client.cookies.clear()
    first = visit.get(f"/enter?token={token}")
    assert first.status_code == 303
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=strict" in first.headers["set-cookie"]
    visit.client.cookies.clear()
    again = visit.get(f"/enter?token={token}")
    assert again.status_code == 403
    assert "This link was used" in again.text
    assert visit.get("/skills").headers["location"] == "/enter"


def test_a_page_speaks_the_language_of_its_reader(visit):
    assert "没有这个页面" in visit.get("/nowhere", headers={"Accept-Language": "zh-CN"}).text
    assert "There is no such page" in visit.get("/nowhere").text
    visit.post("/language", data={"name": "zh"})
    assert "没有这个页面" in visit.get("/nowhere").text


def test_nothing_of_a_page_may_run_but_our_own_script(visit):
    policy = visit.get("/nowhere").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_who_changes_something_sees_it_at_once(visit):
    """A watcher hears of a change a moment later; the next page must not be older than that."""
    store = visit.satchel.store()
    for at in range(5):
        with store.plan_add(f"skill-{at}") as plan:
            store.carry_out(plan)
        assert visit.satchel.refresh().get(f"skill-{at}") is not None
    store.undo()
    assert visit.satchel.refresh().get("skill-4") is None
