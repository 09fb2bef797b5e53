"""Discovery: order, shadowing, snapshots, refresh and filters."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from satchel import Filter, Library, Location, Satchel
from satchel.errors import NotFound
from satchel.testing import make_skill


def names(library: Library) -> list[str]:
    return [skill.name for skill in library.snapshot().skills]


@pytest.mark.req("A1", "C2")
def test_skills_are_found_recursively(tmp_path):
    root = tmp_path / "skills"
    make_skill(root, "one")
    make_skill(root, "group/two")
    make_skill(root, "one/nested")
    make_skill(root, "one/references/not-a-skill")
    make_skill(root, "node_modules/three")
    make_skill(root, ".git/four")
    assert sorted(names(Library([str(root)]))) == ["nested", "one", "two"]


@pytest.mark.req("A7")
def test_a_scan_does_not_read_bodies(tmp_path, monkeypatch):
    make_skill(tmp_path, "demo", body="x" * 200_000)
    read = []
    real = os.read

    def counting(descriptor, size):
        data = real(descriptor, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "read", counting)
    library = Library([str(tmp_path)])
    assert names(library) == ["demo"]
    assert sum(read) <= 4096


@pytest.mark.req("C1", "B1")
def test_the_location_table(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    places = [".agents/sys.skills", ".agents/skills", "skills", ".skills"]
    project = tmp_path / "project"
    for number, place in enumerate(places):
        make_skill(project / place, f"s{number}")
        make_skill(project / place, "same", f"from {place}")
    make_skill(tmp_path / "home/.config/agents/skills", "s9")
    (project / "SKILL.md").write_text("---\nname: project\ndescription: The folder itself.\n---\n")
    satchel = Satchel.for_project(project, trust="all", builtin=False)
    assert [skill.name for skill in satchel.list_skills()] == [
        "s0", "same", "s1", "s2", "s3", "project", "s9",
    ]  # fmt: skip
    assert satchel.get_skill("same").description == "from .agents/sys.skills"
    assert satchel.get_skill("same").is_system
    assert not satchel.get_skill("same").origin.writable
    assert satchel.get_skill("s9").source == "global"


@pytest.mark.req("C1")
def test_other_agents_folders_are_read_after_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    for place in ("project/skills", "project/.claude/skills", "home/.claude/skills"):
        make_skill(tmp_path / place, "same", place)
        make_skill(tmp_path / place, place.replace("/", "-").replace(".", ""))
    make_skill(project / "extra", "mine")
    (project / "satchel.toml").write_text("ecosystem = false\n")
    satchel = Satchel.for_project(project, trust="all", locations=["extra"])
    assert satchel.get_skill("same").description == "project/skills"
    assert [skill.origin.label for skill in satchel.list_skills()] == [
        "skills", "skills", ".claude/skills", "extra", "~/.claude/skills",
    ]  # fmt: skip
    assert [one.code for one in satchel.library.snapshot().problems] == ["setting-refused"]
    off = Satchel.for_project(project, trust="all", ecosystem=False)
    assert {skill.origin.label for skill in off.list_skills()} == {"skills"}


def test_the_users_skill_wins_over_a_built_in_one(tmp_path):
    make_skill(tmp_path / "skills", "write-a-skill", "mine")
    satchel = Satchel.for_project(tmp_path, trust="all", builtin=True)
    assert satchel.get_skill("write-a-skill").description == "mine"


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(NotFound) as caught:
        Satchel.for_project(tmp_path / "none")
    assert caught.value.code == "NOT_FOUND"
    (tmp_path / ".git").mkdir()
    (tmp_path / "below").mkdir()
    made = Satchel.for_project(tmp_path / "below")
    assert made.settings.project == str(tmp_path / "below")


def test_a_link_between_locations_is_one_skill(tmp_path):
    make_skill(tmp_path / ".agents/skills", "one")
    make_skill(tmp_path / ".claude/skills", "two")
    (tmp_path / ".claude/skills/one").symlink_to("../../.agents/skills/one")
    (tmp_path / ".agents/skills/two").symlink_to("../../.claude/skills/two")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/skills").symlink_to("../.agents/skills")
    for trust in ("all", "ask"):
        satchel = Satchel.for_project(tmp_path, trust=trust)
        every = satchel.list_skills(hidden=True)
        assert [skill.ref for skill in every] == [".agents/skills/one", ".agents/skills/two"]


@pytest.mark.parametrize("trust", ["ask", "all"])
def test_a_link_of_a_project_takes_nothing_from_the_user(tmp_path, monkeypatch, trust):
    home, project = tmp_path / "home", tmp_path / "home/project"
    monkeypatch.setenv("HOME", str(home))
    make_skill(home / ".config/agents/skills", "mine")
    make_skill(home / "elsewhere", "theirs")
    project.mkdir()
    (project / "skills").symlink_to("../.config/agents/skills")
    (project / "team").symlink_to("../elsewhere")
    satchel = Satchel.for_project(project, trust=trust, locations=["team"])
    assert [skill.ref for skill in satchel.list_skills(hidden=True)] == [
        "~/.config/agents/skills/mine"
    ]
    assert [(one.code, one.path) for one in satchel.library.snapshot().problems] == [
        ("outside-root", str(project / "skills")),
        ("outside-root", str(project / "team")),
    ]


def test_skills_that_are_not_offered_are_logged_once(tmp_path, caplog):
    make_skill(tmp_path / "skills", "waits")
    (tmp_path / "skills/bad").mkdir()
    (tmp_path / "skills/bad/SKILL.md").write_text("# no frontmatter\n")
    (tmp_path / "satchel.toml").write_text("budgt = 1\n")
    satchel = Satchel.for_project(tmp_path, trust="ask", include=["wait*", "typo"])
    assert caplog.messages == []
    satchel.list_skills()
    assert sorted(caplog.messages) == [
        "1 skill of this folder is not trusted yet: run `satchel trust`",
        "No skill matches these patterns of `include`: typo",
        f"Settings ignored: {tmp_path}/satchel.toml: There is no setting `budgt`",
        f"Skills broken: {tmp_path}/skills/bad/SKILL.md",
    ]
    assert {record.name for record in caplog.records} == {"satchel"}
    caplog.clear()
    make_skill(tmp_path / "skills", "other")
    satchel.refresh()
    assert caplog.messages == []
    make_skill(tmp_path / ".skills", "waits")
    satchel.refresh()
    assert caplog.messages == ["2 skills of this folder are not trusted yet: run `satchel trust`"]


def test_the_same_name_twice_in_one_place(tmp_path):
    make_skill(tmp_path, "a", "first")
    for folder in ("b", "c"):
        (tmp_path / folder).mkdir()
        text = f"---\nname: a\ndescription: in {folder}\n---\n"
        (tmp_path / folder / "SKILL.md").write_text(text)
    snapshot = Library([str(tmp_path)]).snapshot()
    assert [skill.description for skill in snapshot.skills] == ["in c"]
    doubles = [problem for problem in snapshot.problems if problem.code == "duplicate-name"]
    assert len(doubles) == 2
    assert "/b" in doubles[1].values["first"]
    assert "/c" in doubles[1].values["last"]


@pytest.mark.req("A14")
@pytest.mark.parametrize("indexed", [False, True])
def test_refresh_sees_every_kind_of_change_and_reads_only_that(tmp_path, indexed):
    from satchel.library import ScanCache

    root = tmp_path / "skills"
    for number in range(40):
        make_skill(root, f"skill-{number:02d}")
    time.sleep(0.06)  # stamps of just written files are not trusted
    index = ScanCache(str(tmp_path / "cache")) if indexed else None
    library = Library([str(root)], index=index)
    assert len(library.snapshot()) == 40
    if indexed:
        library = Library([str(root)], index=index)
        assert len(library.snapshot()) == 40
        assert library.files_read == 0

    make_skill(root, "skill-03", "Edited description.")
    library.refresh()
    assert library.files_read == 1
    assert library.get_skill("skill-03").description == "Edited description."

    make_skill(root, "added")
    make_skill(root, "skill-05/inner")
    library.refresh()
    assert library.get_skill("added")
    assert library.get_skill("inner")

    shutil.rmtree(root / "skill-07")
    os.rename(root / "skill-08", root / "renamed")
    library.refresh()
    assert library.get_skill("skill-07") is None
    assert library.get_skill("skill-08").base_dir == str(root / "renamed")

    (root / "skill-09/SKILL.md").write_text("broken now")
    library.refresh()
    assert library.get_skill("skill-09") is None
    make_skill(root, "skill-09")
    library.refresh()
    assert library.get_skill("skill-09")

    shutil.rmtree(root)
    assert len(library.refresh()) == 0
    make_skill(root, "again")
    assert [skill.name for skill in library.refresh().skills] == ["again"]


def test_filters(tmp_path):
    make_skill(tmp_path, "git-log", tags=["vcs"])
    make_skill(tmp_path, "git-push", tags=["vcs", "Risky"])
    make_skill(tmp_path, "excel", tags="office, data")

    def kept(**wanted):
        return names(Library([str(tmp_path)], wanted=Filter(**wanted)))

    assert kept(include=("git-*",)) == ["git-log", "git-push"]
    assert kept(exclude=("git-p*",)) == ["excel", "git-log"]
    assert kept(tags=("risky",)) == ["git-push"]
    assert kept(tags=("data",)) == ["excel"]
    hidden = Library([str(tmp_path)], wanted=Filter(("excel",))).snapshot().hidden
    assert {skill.state for skill in hidden} == {"excluded"}


def test_find_by_name_id_ref_and_path(tmp_path):
    path = make_skill(tmp_path / "skills", "team/demo")
    snapshot = Library([Location(str(tmp_path / "skills"), label="skills")]).snapshot()
    for reference in ("demo", "team/demo", "skills/team/demo", path, os.path.dirname(path)):
        assert [skill.name for skill in snapshot.find(reference)] == ["demo"], reference
    assert snapshot.find("nothing") == []


def test_every_method_of_a_library_works_on_a_filtered_one(tmp_path):
    for name in ("one", "two"):
        make_skill(tmp_path, name)
    whole = Library([Location(str(tmp_path), label="here")])
    part = whole.filtered(Filter(("one",)))
    assert (names(part), names(whole)) == (["one"], ["one", "two"])
    assert part.refresh() is part.snapshot() is part.discover()
    assert [skill.state for skill in part.every()] == ["active", "excluded"]
    two = part.find("two")[0]
    assert two == part.by_ref("here/two") == part.find(two.path)[0] == part.named("two")[0]
    assert part.get_skill("two") is None
    assert part.load_content("one").strip() == "Do the thing."
    assert (part.untrusted_skills(), part.untrusted_notice()) == ([], "")
    assert part.modified(part.every()) == part.strays() == []
    assert part.unmatched(("two", "x*")) == ["x*"]
    assert (
        part.served_skill_at(two.path)
        is part.served_skills_of(two)
        is part.served_skills_at("")
        is None
    )
    assert [skill.id for skill in part.skills_containing(os.path.realpath(two.path))] == ["two"]
    assert (part.wants(two.base_dir), whole.wants(two.base_dir)) == (False, True)
    assert part.files_read == whole.files_read
    part.invalidate()
    part.close()
