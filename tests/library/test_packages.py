"""Skills that installed packages ship: Python packages and `node_modules`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from installed import environment, node_package, python_package, remove_package, settle
from satchel import Satchel
from satchel.cli.project import open_project
from satchel.testing import make_skill

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def found(satchel: Satchel) -> dict[str, str]:
    return {skill.name: skill.ref for skill in satchel.refresh()}


def test_a_package_of_the_projects_environment_is_found_with_its_version(project):
    site = environment(project / ".venv")
    python_package(site, "fast_api", "serve", "route", version="0.9")
    skill = Satchel.for_project(project).get_skill("serve")
    assert skill is not None
    assert (skill.source, skill.ref) == ("package", "package:fast-api/serve")
    assert skill.origin.version == skill.to_dict()["version"] == "0.9"
    assert "Do the thing." in Satchel.for_project(project).load_content("route")


def test_the_environment_is_the_nearest_then_the_active_one(project, monkeypatch):
    (project / ".git").mkdir()
    python_package(environment(project / ".venv"), "outer", "outer")
    python_package(environment(project.parent / "active"), "active", "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(project.parent / "active"))
    part = project / "packages/part"
    part.mkdir(parents=True)
    assert list(found(Satchel.for_project(part))) == ["outer"]
    python_package(environment(part / ".venv"), "inner", "inner")
    assert list(found(Satchel.for_project(part))) == ["inner"]
    assert list(found(Satchel.for_project(project.parent))) == ["active"]


def test_the_packages_of_this_process_are_the_last_choice(project, monkeypatch):
    """The tests have fastapi and pydantic-ai, which ship one skill and nine."""
    monkeypatch.delenv("VIRTUAL_ENV")
    skills = Satchel.for_project(project).list_skills()
    assert sorted(skill.origin.label for skill in skills) == [
        "package:fastapi", *(["package:pydantic-ai-slim"] * 9),
    ]  # fmt: skip
    assert all(skill.origin.version for skill in skills)


@pytest.mark.parametrize("receipt", ["uv-receipt.toml", "pipx_metadata.json"])
def test_the_environment_of_an_installed_tool_is_no_projects(project, monkeypatch, receipt):
    monkeypatch.delenv("VIRTUAL_ENV")
    own = project.parent / "own"
    python_package(environment(own), "left", "tool")
    monkeypatch.setattr(sys, "prefix", str(own))
    assert list(found(Satchel.for_project(project))) == ["tool"]
    (own / receipt).touch()
    assert list(found(Satchel.for_project(project))) == []
    monkeypatch.setenv("VIRTUAL_ENV", str(own))
    assert list(found(Satchel.for_project(project))) == ["tool"]


def test_node_modules_are_found_in_both_layouts_and_in_scopes(project):
    modules = project / "node_modules"
    node_package(modules, "plain", "one", version="2.1.0")
    node_package(modules, "@acme/tool", "two", inside=".agents/skills")
    node_package(modules, "none")
    satchel = Satchel.for_project(project)
    assert found(satchel) == {"two": "npm:@acme/tool/two", "one": "npm:plain/one"}
    skill = satchel.get_skill("one")
    assert skill is not None
    assert skill.origin.version == "2.1.0"


def test_what_is_installed_later_is_noticed(project):
    site = environment(project / ".venv")
    satchel = Satchel.for_project(project)
    assert found(satchel) == {}
    settle()
    python_package(site, "first", "first")
    assert list(found(satchel)) == ["first"]
    settle()
    satchel.refresh()
    node_package(project / "node_modules", "second", "second")
    python_package(site, "third", "third")
    assert sorted(found(satchel)) == ["first", "second", "third"]
    remove_package(site, "first")
    assert sorted(found(satchel)) == ["second", "third"]
    assert sorted(found(Satchel.for_project(project))) == ["second", "third"]


def test_packages_win_over_nothing(project):
    """Neither a skill of the project, nor one of the user, nor a built-in one is replaced."""
    names = ("deploy", "mine", "write-a-tool-skill", "new")
    python_package(environment(project / ".venv"), "loud", *names)
    make_skill(project / "skills", "deploy")
    make_skill(project.parent / "user", "mine")
    satchel = Satchel.for_project(project, builtin=True, locations=[str(project.parent / "user")])
    offered = {skill.name: skill.source for skill in satchel.list_skills()}
    assert [offered[name] for name in names] == ["project", "extra", "builtin", "package"]
    hidden = [skill for skill in satchel.list_skills(hidden=True) if skill.source == "package"]
    assert [skill.state for skill in hidden] == ["active", "shadowed", "shadowed", "shadowed"]


def test_one_setting_turns_them_off(project, monkeypatch):
    python_package(environment(project / ".venv"), "loud", "loud")
    assert found(Satchel.for_project(project, packaged=False)) == {}
    monkeypatch.setenv("SATCHEL_PACKAGED", "false")
    assert open_project(str(project), {}, {}).list_skills(hidden=True) == []


def test_a_warm_refresh_costs_little(project):
    site = environment(project / ".venv")
    for number in range(200):
        shipped = (f"skill-{number}",) if number < 10 else ()
        python_package(site, f"package_{number}", *shipped, rows=[f"m{n}.py" for n in range(50)])
    settle()
    medians = []
    for packaged in (False, True):
        satchel = Satchel.for_project(project, packaged=packaged)
        times = []
        for _ in range(60):
            started = time.process_time()
            satchel.refresh()
            times.append(time.process_time() - started)
        medians.append(sorted(times)[len(times) // 2])
    assert len(satchel.list_skills()) == 10
    assert medians[1] - medians[0] < 0.005, medians


def test_no_other_file_of_an_environment_is_read(project, monkeypatch):
    site = environment(project / ".venv")
    python_package(site, "one", "one")
    for number in range(30):
        (site / "one" / f"module_{number}").mkdir()
    satchel = Satchel.for_project(project)
    satchel.refresh()
    settle()
    satchel.refresh()
    read: list[str] = []
    listed, opened = os.listdir, os.scandir
    monkeypatch.setattr(os, "listdir", lambda path=".": read.append(str(path)) or listed(path))
    monkeypatch.setattr(os, "scandir", lambda path=".": read.append(str(path)) or opened(path))
    satchel.refresh()
    assert [path for path in read if "site-packages" in path and ".agents" not in path] == []
