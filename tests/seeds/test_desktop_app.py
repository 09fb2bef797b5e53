"""An app that ships `.agents/sys.skills`, has the user's `.agents/skills`, and only ReadFile."""

from __future__ import annotations

import json
import re
import zipfile

import pytest

from satchel.errors import Refused
from seeds.conftest import skill

REPORT = ".agents/sys.skills/weekly-report-generator/SKILL.md"
MAIL = ".agents/skills/mail/SKILL.md"
FILES = {
    REPORT: skill("weekly-report-generator", "Writes the weekly report", "Ask for the week.\n"),
    ".agents/skills/weekly-report-generator/SKILL.md": skill(
        "weekly-report-generator", "The user's own report", "Write it shorter.\n"
    ),
    MAIL: skill("Mail Helper", "Answers mail", "Run script.py first.\n"),
    ".agents/skills/mail/script.py": "print('mail')\n",
    ".agents/skills/draft/SKILL.md": "Not a skill yet.\n",
    "appsettings.secret": "hidden\n",
}


@pytest.fixture
def app(project):
    project.write(FILES)
    return project


def paths_in(prompt: str) -> list[str]:
    return re.findall(r"\(path `([^`]+)`\)", prompt)


@pytest.mark.req("B1", "B2", "B5", "B12")
def test_both_folders_are_listed_and_the_system_s_skill_wins(app):
    satchel = app.open()
    assert [
        (one.id, one.name, one.description, one.is_system) for one in satchel.list_skills()
    ] == [
        ("weekly-report-generator", "weekly-report-generator", "Writes the weekly report", True),
        ("mail", "Mail Helper", "Answers mail", False),
    ]
    hidden = [one for one in satchel.list_skills(hidden=True) if one.state == "shadowed"]
    assert [(one.ref, one.shadowed_by) for one in hidden] == [
        (".agents/skills/weekly-report-generator", ".agents/sys.skills/weekly-report-generator")
    ]


@pytest.mark.req("B3", "B4")
def test_an_agent_with_readfile_alone_is_told_where_each_skill_is(app):
    session = app.open().session(tools=["ReadFile"])
    assert [one["name"] for one in session.definitions()] == ["ReadFile"]
    assert "call ReadFile with its path" in session.prompt
    assert "`Mail Helper` (id `mail`)" in session.prompt
    assert paths_in(session.prompt) == [REPORT, MAIL]
    assert "Ask for the week." not in session.prompt
    assert session.prompt.count("weekly-report-generator`") == 1
    for path, text in zip((REPORT, MAIL), ("Ask for the week.", "Run script.py"), strict=True):
        assert text in session.call("ReadFile", {"path": path}).text


@pytest.mark.req("B3")
def test_where_descriptions_have_no_room_the_paths_are_listed(app):
    small = app.open().catalogue(290, "paths")
    assert small.account.named == ("weekly-report-generator", "Mail Helper")
    assert REPORT in small.text
    assert MAIL in small.text
    tiny = app.open().catalogue(60, "paths")
    assert tiny.text == "2 skills: find one with ReadFile: it lists a folder."
    entries = app.open().session(tools=["ReadFile"]).call("ReadFile", {"path": ".agents/skills"})
    assert "mail" in entries.text


@pytest.mark.req("B2", "B4")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        (".agents/skills/mail/script.py", None),
        (".agents/skills/draft/SKILL.md", None),
        (".agents/skills/../../../outside.md", "ACCESS_DENIED"),
        ("appsettings.secret", "ACCESS_DENIED"),
        ("nothing.md", "NOT_FOUND"),
    ],
)
def test_readfile_reads_allowed_files_of_the_run_directory(app, path, code):
    (app.project.parent / "outside.md").write_text("outside\n")
    error = app.open().session(tools=["ReadFile"]).call("ReadFile", {"relativePath": path}).error
    assert (error and error.code) == code


@pytest.mark.req("B6", "B7", "B9", "B11")
def test_a_change_reaches_the_next_request(app):
    satchel = app.open()
    session = satchel.session(tools=["ReadFile"])
    assert session.prompt == session.prompt
    store = satchel.store()
    store.apply(store.plan_add("Trip Plan", description="Plans trips"))
    assert ".agents/skills/trip-plan/SKILL.md" in paths_in(session.prompt)
    store.apply(store.plan_remove(["trip-plan"]))
    assert paths_in(session.prompt) == [REPORT, MAIL]
    with pytest.raises(Refused):
        satchel.store_of(satchel.get_skill("weekly-report-generator"))


@pytest.mark.req("B6", "B7", "B8")
def test_after_one_yes_the_commands_add_import_and_delete(app, tmp_path):
    assert "weekly-report-generator" in app.say_yes("list")
    refused = app.run("new", "周报生成", "--kind", "minimal")
    assert refused.status == 2
    assert "Give it an id with `--id`" in refused.err
    assert app.run("new", "周报生成", "--kind", "minimal", "--id", "weekly-report").status == 0
    text = (app.project / ".agents/skills/weekly-report/SKILL.md").read_text(encoding="utf-8")
    assert text.startswith("---\nname: weekly-report\n")
    assert "# 周报生成\n" in text
    with zipfile.ZipFile(tmp_path / "trips.zip", "w") as file:
        file.writestr("trips/SKILL.md", skill("trips", "Plans trips. Use for holidays."))
    assert app.run("install", str(tmp_path / "trips.zip"), "--id", "holiday", "--yes").status == 0
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as file:
        file.writestr("none/notes.md", "No skill.\n")
    nothing = app.run("install", str(tmp_path / "none.zip"), "--yes")
    assert nothing.err.startswith("error: There is no SKILL.md in `none.zip`\n")
    listed = {one["id"]: one["is_system"] for one in json.loads(app.run("list", "--json").out)}
    assert listed == {
        "weekly-report-generator": True, "mail": False, "weekly-report": False, "holiday": False,
    }  # fmt: skip
    assert ".agents/skills/holiday/SKILL.md" in app.run("catalogue", "--form", "paths").out
    assert app.run("remove", "holiday", "--yes").status == 0
    system = ("remove", "weekly-report-generator", "--yes")
    assert [app.run(*system).status for _ in range(2)] == [0, 4], "the user's own, then no other"
