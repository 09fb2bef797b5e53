"""Login, logout and language."""

from __future__ import annotations


def test_a_page_speaks_the_language_of_its_reader(visit):
    assert "页面不存在" in visit.get("/nowhere", headers={"Accept-Language": "zh-CN"}).text
    assert "Page not found" in visit.get("/nowhere").text
    visit.post("/language", data={"name": "zh"})
    assert "页面不存在" in visit.get("/nowhere").text


def test_who_signed_out_is_told_so_in_a_language_of_their_choice(visit):
    out = visit.post("/leave").headers["location"]
    door = visit.get(out)
    assert "You are signed out" in door.text
    assert "Already signed in?" not in door.text
    asked = visit.post(
        "/language", data={"name": "zh"}, headers={"Referer": f"http://127.0.0.1{out}"}
    )
    assert (asked.status_code, asked.headers["location"]) == (303, out)
    assert 'lang="zh-CN"' in visit.get("/enter").text
    visit.client.cookies.clear()
    assert "You are signed out" not in visit.get("/enter").text
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert "Already signed in?" in visit.get("/enter", headers=led).text
