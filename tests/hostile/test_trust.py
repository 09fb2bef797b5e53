"""Ways in which a cloned project might make itself trusted, or reach outside. None may work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from satchel import Satchel
from satchel.errors import InvalidInput, Refused
from satchel.testing import make_skill


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_BUILTIN", "false")
    folder = tmp_path / "cloned"
    folder.mkdir()
    return folder


def offered(project) -> list[str]:
    return [skill.name for skill in Satchel.for_project(project).list_skills()]


def test_a_location_that_climbs_out_through_a_link(project):
    (project / "d1/d2/d3").mkdir(parents=True)
    os.symlink("d1/d2/d3", project / "deep")
    make_skill(project / "skills", "evil")
    (project / "satchel.toml").write_text('locations = ["deep/../..", "d1", "deep/../../skills"]\n')
    assert offered(project) == []


def test_a_link_that_changes_after_the_settings_were_read(project, tmp_path):
    make_skill(tmp_path / "outside", "evil")
    (project / "inside").mkdir()
    (project / "satchel.toml").write_text('locations = ["inside"]\n')
    satchel = Satchel.for_project(project)
    satchel.trust()
    os.rmdir(project / "inside")
    os.symlink(tmp_path / "outside", project / "inside")
    satchel.refresh()
    assert satchel.list_skills() == []
    assert "outside-root" in {problem.code for problem in satchel.problems()}


@pytest.mark.parametrize("place", ["skills", ".agents/skills", ".skills"])
def test_a_location_that_is_a_link_out(project, tmp_path, place):
    make_skill(tmp_path / "outside", "stolen")
    (project / place).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(tmp_path / "outside", project / place)
    satchel = Satchel.for_project(project)
    assert satchel.list_skills(hidden=True) == []
    assert "outside-root" in {problem.code for problem in satchel.problems()}


def test_a_name_that_is_another_skills_path(project):
    path = make_skill(project / "skills", "good")
    (project / ".agents/skills/evil").mkdir(parents=True)
    text = f"---\nname: {path}\ndescription: Wants the trust of another.\n---\n"
    (project / ".agents/skills/evil/SKILL.md").write_text(text)
    satchel = Satchel.for_project(project)
    satchel.trust(path)
    assert [skill.base_dir for skill in satchel.list_skills()] == [os.path.dirname(path)]


def test_init_trusts_nothing_that_was_there(project):
    make_skill(project / ".agents/skills", "hello-skill/evil")
    with pytest.raises(InvalidInput):
        Satchel.for_project(project).init()
    Satchel.for_project(project).init("mine")
    make_skill(project / ".agents/skills", "mine/evil")
    assert offered(project) == ["mine"]


def test_trusting_the_root_skill_trusts_only_that(project):
    (project / "SKILL.md").write_text("---\nname: rooted\ndescription: At the top.\n---\n")
    make_skill(project / "skills", "other")
    Satchel.for_project(project).trust("rooted")
    assert offered(project) == ["rooted"]


def test_trust_reaches_a_linked_skill_and_stays_with_its_target(project):
    make_skill(project / "lib", "linked")
    make_skill(project / "lib", "other")
    (project / "skills").mkdir()
    os.symlink("../lib/linked", project / "skills/linked")
    os.symlink("../lib/other", project / "skills/other")
    Satchel.for_project(project).trust("linked")
    assert offered(project) == ["linked"]
    os.unlink(project / "skills/linked")
    os.symlink("../lib/other", project / "skills/linked")
    assert "linked" not in offered(project)


def test_a_link_that_goes_to_and_fro_keeps_no_trust(project):
    make_skill(project / "lib", "good")
    make_skill(project / "lib", "evil")
    (project / "skills").mkdir()
    link = project / "skills/one"
    satchel = Satchel.for_project(project)
    seen = []
    for target in ("evil", "good", "evil", "good", "evil"):
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(f"../lib/{target}", link)
        satchel.refresh()
        if target == "good":
            satchel.trust("good")
        seen.append([skill.name for skill in satchel.list_skills()])
    assert seen == [[], ["good"], [], ["good"], []]


def test_a_trusted_folder_replaced_by_a_link_out(project, tmp_path):
    make_skill(project / "skills", "a")
    make_skill(tmp_path / "secret", "a", "Outside.")
    (tmp_path / "secret/a/creds.json").write_text('{"token": "s3cr3t"}')
    satchel = Satchel.for_project(project)
    satchel.trust()
    tools = satchel.tools()
    assert tools.call("Skill", {"name": "a"}).status == "success"
    os.rename(project / "skills/a", tmp_path / "moved")
    os.symlink(tmp_path / "secret/a", project / "skills/a")
    for _ in range(3):
        reply = tools.call("ReadFile", {"path": "skills/a/creds.json"})
        assert reply.status == "error"
        assert "s3cr3t" not in reply.text
        reply = tools.call("ReadFile", {"path": str(project / "skills/a/creds.json")})
        assert reply.status == "error"
        assert tools.call("Skill", {"name": "a"}).status == "error"
        tools = Satchel.for_project(project).tools()


def test_trust_counts_while_watching(project):
    make_skill(project / "skills", "a")
    satchel = Satchel.for_project(project)
    watcher = satchel.library.watch()
    try:
        satchel.refresh()
        satchel.trust()
        assert [skill.name for skill in satchel.list_skills()] == ["a"]
        satchel.untrust()
        assert satchel.list_skills() == []
    finally:
        watcher.close()


@pytest.mark.timeout(60)
def test_approvals_of_many_processes_are_all_kept(project, tmp_path):
    code = (
        "import sys; from satchel import Satchel\n"
        "Satchel.for_project(sys.argv[1]).trust(sys.argv[2])"
    )
    for number in range(8):
        make_skill(project / "skills", f"s{number}")
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(project), f"s{number}"])
        for number in range(8)
    ]
    assert [one.wait() for one in running] == [0] * 8
    assert len(offered(project)) == 8


def test_where_nothing_can_be_kept_trust_says_so(project, tmp_path, monkeypatch):
    make_skill(project / "skills", "a")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "file"))
    with pytest.raises(Refused):
        Satchel.for_project(project).trust("a")


def test_folder_names_that_are_not_utf8_can_be_trusted(project):
    folder = os.fsencode(str(project)) + b"/skills/bad\xff"
    os.makedirs(folder)
    with open(folder + b"/SKILL.md", "wb") as file:
        file.write(b"---\nname: bytes\ndescription: x\n---\nBody\n")
    satchel = Satchel.for_project(project)
    satchel.trust("bytes")
    assert offered(project) == ["bytes"]
    assert satchel.tools().call("Skill", {"name": "bytes"}).status == "success"


@pytest.mark.timeout(30)
def test_a_refresh_after_everything_was_touched_is_one_walk(tmp_path):
    import time

    from satchel import Library

    for number in range(3_000):
        make_skill(tmp_path, f"s{number}")
    library = Library([str(tmp_path)])
    library.snapshot()
    for number in range(3_000):
        (tmp_path / f"s{number}" / "note.txt").write_text("x")
    began = time.process_time()
    library.refresh()
    assert time.process_time() - began < 2.0
    for number in range(0, 3_000, 50):
        os.unlink(tmp_path / f"s{number}" / "SKILL.md")
    began = time.process_time()
    assert len(library.refresh()) == 2_940
    assert time.process_time() - began < 2.0
