"""Which skills exist here: order, shadowing, snapshots, refresh."""

from __future__ import annotations

import os
import shutil

import pytest

from satchel import Filter, Library, Location, Satchel
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


@pytest.mark.req("A6", "B5")
def test_the_record(tmp_path):
    path = make_skill(tmp_path / ".agents" / "skills", "team/review", "Reviews code.")
    skill = Satchel.for_project(tmp_path, trust="all").get_skill("review")
    assert skill is not None
    assert (skill.name, skill.description, skill.id) == ("review", "Reviews code.", "team/review")
    assert skill.path == path
    assert skill.base_dir == os.path.dirname(path)
    assert skill.mtime == pytest.approx(os.path.getmtime(path))
    assert (skill.source, skill.is_system) == ("user", False)
    assert set(skill.to_dict()) >= {"id", "name", "description", "source", "is_system", "path"}
    built_in = Satchel.for_project(tmp_path).get_skill("write-a-skill")
    assert built_in is not None
    assert built_in.is_system
    assert built_in.id == "write-a-skill"


@pytest.mark.req("A7", "C4", "D1")
def test_the_one_liners(tmp_path):
    make_skill(tmp_path / "skills", "demo", "Demonstrates.", body="Step one.\n")
    satchel = Satchel.for_project(tmp_path, trust="all", builtin=False)
    assert len(satchel.library.discover()) == 1
    assert len(satchel.library.scan()) == 1
    assert [skill.name for skill in satchel.list_skills()] == ["demo"]
    assert satchel.get_skill("demo").source == "project"
    assert satchel.get_skill("other") is None
    assert satchel.load_content("demo").strip() == "Step one."
    assert satchel.get_skill_content("demo").strip() == "Step one."
    assert satchel.get_skill_content("nothing") is None
    assert "Demonstrates." in satchel.get_descriptions()


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
def test_other_agents_places_are_one_setting_away(tmp_path):
    make_skill(tmp_path / ".claude/skills", "theirs")
    assert Satchel.for_project(tmp_path, trust="all").get_skill("theirs") is None
    assert Satchel.for_project(tmp_path, trust="all", ecosystem=True).get_skill("theirs")
    make_skill(tmp_path / "extra", "mine")
    assert Satchel.for_project(tmp_path, trust="all", locations=["extra"]).get_skill("mine")


def test_ancestors_up_to_the_git_root(tmp_path):
    (tmp_path / "repo/.git").mkdir(parents=True)
    make_skill(tmp_path / "repo/skills", "upper")
    make_skill(tmp_path / "skills", "outside")
    deep = tmp_path / "repo/packages/app"
    deep.mkdir(parents=True)
    found = Satchel.for_project(deep, trust="all", ancestors=True, builtin=False).list_skills()
    assert [skill.name for skill in found] == ["upper"]


@pytest.mark.req("B12")
def test_system_wins_and_both_stay_visible(tmp_path):
    make_skill(tmp_path / ".agents/sys.skills", "report", "system's")
    make_skill(tmp_path / ".agents/skills", "report", "user's")
    satchel = Satchel.for_project(tmp_path, trust="all", builtin=False)
    assert [skill.description for skill in satchel.list_skills()] == ["system's"]
    hidden = [skill for skill in satchel.list_skills(hidden=True) if skill.state == "shadowed"]
    assert [(skill.description, skill.winner) for skill in hidden] == [
        ("user's", ".agents/sys.skills/report")
    ]
    assert satchel.catalogue().account.full == ("report",)


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


@pytest.mark.req("B11")
def test_the_first_skill_creates_the_users_folder(tmp_path):
    satchel = Satchel.for_project(tmp_path, builtin=False)
    path = satchel.init("first-one")
    assert path == str(tmp_path / ".agents/skills/first-one/SKILL.md")
    assert [skill.name for skill in satchel.list_skills()] == ["first-one"]


@pytest.mark.req("B2", "A9")
def test_one_bad_skill_hides_no_other(tmp_path):
    make_skill(tmp_path, "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/SKILL.md").write_text("# no frontmatter\n")
    snapshot = Library([str(tmp_path)]).snapshot()
    assert [skill.name for skill in snapshot.skills] == ["good"]
    assert [(problem.code, problem.path) for problem in snapshot.problems] == [
        ("no-frontmatter", str(tmp_path / "bad/SKILL.md"))
    ]


@pytest.mark.req("A14")
@pytest.mark.parametrize("indexed", [False, True])
def test_refresh_sees_every_kind_of_change_and_reads_only_that(tmp_path, indexed):
    from satchel.library import Index

    root = tmp_path / "skills"
    for number in range(40):
        make_skill(root, f"skill-{number:02d}")
    _age(root)
    index = Index(str(tmp_path / "cache")) if indexed else None
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


def _age(root) -> None:
    """Wait until nothing counts as just changed: such files are looked at once more."""
    import time

    time.sleep(0.06)


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
