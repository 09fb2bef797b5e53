"""The page of settings, and the switch of one skill."""

from __future__ import annotations

import re
import tomllib
from html import unescape

from satchel.ui.auth import UiAccess


def read_toml(path) -> dict:
    return tomllib.loads(path.read_text())


def follow(visit, answer) -> str:
    """The page that an answer leads to, as text."""
    assert answer.status_code == 303, answer.text
    text = re.sub(r"<[^>]*>", " ", visit.get(answer.headers["location"]).text)
    return " ".join(unescape(text).split())


def states(visit) -> dict[str, str]:
    text = visit.get("/skills").text
    return {
        name: state
        for state, name in re.findall(
            r'class="skill is-([\w ]+)".*?<bdi>([\w-]+)</bdi>', text, re.DOTALL
        )
    }


def test_each_setting_has_its_value_and_its_source(visit, project, monkeypatch):
    monkeypatch.setenv("SATCHEL_SHORTLIST", "7")
    (project / "satchel.toml").write_text("budget = 900\n")
    text = visit.get("/settings").text
    sections = {
        match[1]: " ".join(match[0].split())
        for match in re.finditer(
            r'<section class="setting">.*?<code>(\w+)</code>.*?</section>', text, re.DOTALL
        )
    }
    assert len(sections) == 26
    assert ">satchel.toml<" in sections["budget"]
    assert ">SATCHEL_SHORTLIST<" in sections["shortlist"]
    assert "<form" not in sections["shortlist"]  # the environment wins over every file
    assert ">Default<" in sections["sandbox"]
    assert "All projects" not in sections["sandbox"]  # a project may not set it


def test_a_setting_is_written_applied_at_once_and_undone(visit, project, skill):
    skill("tidy", "Tidies a room. Use when asked.")
    form = {"name": "budget", "value": "700", "scope": "project"}
    answer = visit.post("/settings", data=form)
    page = follow(visit, answer)
    assert "Saved" in page
    assert "Restart" not in page
    assert read_toml(project / "satchel.toml") == {"budget": 700}
    assert 'value="700"' in visit.get("/catalogue").text
    note = visit.get(answer.headers["location"]).text.partition("<main")[0]
    undo = dict(re.findall(r'name="(name|value|scope)" value="(.*?)"', note))
    assert undo == {**form, "value": ""}
    follow(visit, visit.post("/settings", data=undo))
    assert read_toml(project / "satchel.toml") == {}
    assert 'value="700"' not in visit.get("/catalogue").text


def test_the_page_is_also_in_chinese(visit):
    visit.client.post("/language", data={"name": "zh"}, headers={"Origin": "http://127.0.0.1"})
    text = visit.get("/settings").text
    assert "不提供匹配这些模式的技能" in text
    assert "Never offer" not in text


def test_a_setting_that_is_read_at_the_start_says_so(visit, project):
    form = {"name": "trust", "value": "locked", "scope": "project"}
    assert "Restart satchel ui" in follow(visit, visit.post("/settings", data=form)).replace(
        "`", ""
    )


def test_wrong_values_and_scopes_change_nothing(visit, project):
    for form, status in (
        ({"name": "budget", "value": "many", "scope": "project"}, 422),
        ({"name": "sandbox", "value": "off", "scope": "project"}, 403),
        ({"name": "nothing", "value": "1", "scope": "project"}, 404),
        ({"name": "budget", "value": "1", "scope": "everywhere"}, 422),
    ):
        assert visit.post("/settings", data=form).status_code == status, form
    assert not (project / "satchel.toml").exists()


def test_users_on_other_machines_cannot_change_settings(enter, project):
    access = UiAccess(password="a long password")
    visit = enter(access, trust="all")
    visit.client.post(
        "/enter", data={"password": "a long password"}, headers={"Origin": "http://127.0.0.1"}
    )
    assert 'action="/settings"' not in visit.get("/settings").text
    answer = visit.post("/settings", data={"name": "sandbox", "value": "off", "scope": "user"})
    assert answer.status_code == 403
    assert "satchel config set" in answer.text


def test_a_skill_is_turned_off_and_on_and_the_change_is_undone(visit, project, skill):
    skill("tidy", "Tidies a room. Use when asked.")
    skill("wash", "Washes dishes. Use when asked.")
    (project / "satchel.toml").write_text("# mine\nexclude = ['old-*']\n")
    switch = {"url": "/skill/offer?ref=.agents/skills/tidy"}
    page = follow(visit, visit.post(switch["url"], data={"offered": "off"}))
    assert "The skill is off" in page
    assert read_toml(project / "satchel.toml") == {"exclude": ["old-*", "tidy"]}
    assert "# mine" in (project / "satchel.toml").read_text()
    assert states(visit)["tidy"] == "excluded"
    assert states(visit)["wash"] != "excluded"
    assert "tidy" not in visit.satchel.catalogue().text
    text = visit.get("/skill?ref=.agents/skills/tidy").text
    assert 'aria-checked="false"' in text
    follow(visit, visit.post(switch["url"], data={"offered": "on"}))
    assert read_toml(project / "satchel.toml") == {"exclude": ["old-*"]}
    assert "tidy" in visit.satchel.catalogue().text


def test_a_skill_that_a_pattern_excludes_is_not_turned_on(visit, project, skill):
    skill("old-tidy", "Tidies a room. Use when asked.")
    follow(
        visit,
        visit.post("/settings", data={"name": "exclude", "value": "old-*", "scope": "project"}),
    )
    answer = visit.post("/skill/offer?ref=.agents/skills/old-tidy", data={"offered": "on"})
    assert answer.status_code == 403
    assert read_toml(project / "satchel.toml") == {"exclude": ["old-*"]}
