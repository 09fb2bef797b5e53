"""Ways in which a level, a package or a plugin might be trusted, or reach outside. None may work.

The user opens `project`, which somebody else made, and has trusted `mine`. Each try prepares one
thing; `asked` means that it may be offered once the project is trusted, and not before.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from installed import environment, node_package, plugin, python_package
from satchel import Satchel
from satchel.cli.project import open_project
from satchel.errors import SatchelError
from satchel.library.lockfile import LockedSource, LockedVerdict, LockEntry, render_lock
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.testing import make_skill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class World(NamedTuple):
    """Where a try is made."""

    base: Path
    project: Path
    """What the user opens."""
    outside: Path
    """A folder of the user's, outside the project, with a skill `evil`."""
    plugins: Path
    env: pytest.MonkeyPatch


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "state"))
    (tmp_path / "home/.claude/plugins").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    make_skill(tmp_path / "outside/skills", "evil")
    make_skill(tmp_path / "mine/.agents/skills", "good")
    Satchel.for_project(tmp_path / "mine", trust="ask").trust()
    plugins = tmp_path / "home/.claude/plugins"
    return World(tmp_path, tmp_path / "project", tmp_path / "outside", plugins, monkeypatch)


TRIES: dict[str, tuple[Callable[[World], Path | None], bool]] = {}


def attack(*, asked: bool = False) -> Callable[..., Callable[[World], Path | None]]:
    """Register a try, which returns the folder that is opened when it is not `project`."""

    def register(function: Callable[[World], Path | None]) -> Callable[[World], Path | None]:
        TRIES[function.__name__.strip("_")] = (function, asked)
        return function

    return register


def record(site: Path, name: str, *rows: str) -> None:
    python_package(site, name, rows=rows)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def repository(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    return folder


# --- found, and offered only with the project ---------------------------------------------


@attack(asked=True)
def _node_package(world):
    node_package(world.project / "node_modules", "left", "evil")


@attack(asked=True)
def _node_package_with_agents_folder(world):
    node_package(world.project / "node_modules", "left", "evil", inside=".agents/skills")


@attack(asked=True)
def _node_package_with_scope(world):
    node_package(world.project / "node_modules", "@acme/left", "evil")


@attack(asked=True)
def _python_package_in_the_project(world):
    python_package(environment(world.project / ".venv"), "left", "evil")


@attack(asked=True)
def _python_package_of_the_active_environment(world):
    python_package(environment(world.base / "active"), "left", "evil")
    world.env.setenv("VIRTUAL_ENV", str(world.base / "active"))


@attack(asked=True)
def _package_in_a_trusted_place(world):
    python_package(environment(world.base / "mine/env"), "left", "evil")
    world.env.setenv("VIRTUAL_ENV", str(world.base / "mine/env"))


@attack(asked=True)
def _plugin_of_the_user(world):
    plugin(world.plugins, "left", "evil")


@attack(asked=True)
def _plugin_of_this_project(world):
    plugin(world.plugins, "left", "evil", scope="project", projectPath=str(world.project))


@attack(asked=True)
def _level_above(world):
    make_skill(repository(world.base / "mono") / ".agents/skills", "evil")
    (world.base / "mono/part/.agents").mkdir(parents=True)
    return world.base / "mono/part"


@attack(asked=True)
def _level_of_another_agent_above(world):
    make_skill(repository(world.base / "mono") / ".claude/skills", "evil")
    (world.base / "mono/part/.agents").mkdir(parents=True)
    return world.base / "mono/part"


@attack(asked=True)
def _level_between_a_trusted_root_and_the_project(world):
    make_skill(repository(world.base / "mine") / "vendor/.claude/skills", "evil")
    (world.base / "mine/vendor/part/.agents").mkdir(parents=True)
    return world.base / "mine/vendor/part"


@attack(asked=True)
def _part_of_a_trusted_repository(world):
    make_skill(repository(world.base / "mine") / "vendor/.agents/skills", "evil")
    return world.base / "mine/vendor"


@attack(asked=True)
def _package_of_a_part_of_a_trusted_repository(world):
    part = repository(world.base / "mine") / "vendor"
    (part / ".agents").mkdir(parents=True)
    node_package(part / "node_modules", "left", "evil")
    return part


# --- not found, or refused, also with the project trusted ---------------------------------


@attack()
def _record_leads_out_of_the_packages(world):
    site = environment(world.project / ".venv")
    make_skill(world.project / "lib/.agents/skills", "evil")
    record(site, "left", "../../../../lib/.agents/skills/evil/SKILL.md")


@attack()
def _record_leads_out_of_the_project(world):
    make_skill(world.outside / "x/.agents/skills", "evil")
    rows = "../../../../../outside/x/.agents/skills/evil/SKILL.md"
    record(environment(world.project / ".venv"), "left", rows)


@attack()
def _record_with_an_absolute_path(world):
    make_skill(world.outside / "x/.agents/skills", "evil")
    path = f"{world.outside}/x/.agents/skills/evil/SKILL.md"
    record(environment(world.project / ".venv"), "left", path)


@attack()
def _record_names_a_folder_without_a_package(world):
    site = environment(world.project / ".venv")
    make_skill(site / ".agents/skills", "evil")
    record(site, "left", ".agents/skills/evil/SKILL.md")


@attack()
def _record_is_a_link(world):
    site = environment(world.project / ".venv")
    folder = python_package(site, "left", "evil")
    path = folder.parents[2] / "left-1.0.dist-info/RECORD"
    path.rename(world.base / "RECORD")
    link(path, world.base / "RECORD")


@attack()
def _record_is_a_pipe(world):
    site = environment(world.project / ".venv")
    python_package(site, "left", "evil")
    (site / "left-1.0.dist-info/RECORD").unlink()
    os.mkfifo(site / "left-1.0.dist-info/RECORD")


@attack()
def _folder_without_a_record(world):
    site = environment(world.project / ".venv")
    make_skill(site / "left/.agents/skills", "evil")


@attack()
def _path_file_adds_a_folder(world):
    site = environment(world.project / ".venv")
    other = environment(world.base / "other")
    python_package(other, "left", "evil")
    (site / "left.pth").write_text(f"{other}\nimport os\n")


@attack()
def _editable_package_names_a_folder(world):
    site = environment(world.project / ".venv")
    record(site, "left")
    make_skill(world.outside / "left/.agents/skills", "evil")
    url = {"url": f"file://{world.outside}", "dir_info": {"editable": True}}
    (site / "left-1.0.dist-info/direct_url.json").write_text(json.dumps(url))


@attack()
def _environment_is_a_link(world):
    python_package(environment(world.base / "other"), "left", "evil")
    link(world.project / ".venv", world.base / "other")


@attack()
def _packages_are_a_link_out_of_the_environment(world):
    other = environment(world.base / "other")
    python_package(other, "left", "evil")
    environment(world.project / ".venv").rmdir()
    link(world.project / ".venv/lib/python3.11/site-packages", other)


@attack()
def _skills_of_a_package_are_a_link(world):
    site = environment(world.project / ".venv")
    link(site / "left/.agents/skills", world.outside / "skills")
    record(site, "left", "left/.agents/skills/evil/SKILL.md")


@attack()
def _skill_of_a_package_is_a_link(world):
    site = environment(world.project / ".venv")
    link(site / "left/.agents/skills/evil", world.outside / "skills/evil")
    record(site, "left", "left/.agents/skills/evil/SKILL.md")


@attack()
def _skill_file_of_a_package_is_a_link(world):
    site = environment(world.project / ".venv")
    link(site / "left/.agents/skills/evil/SKILL.md", world.outside / "skills/evil/SKILL.md")
    record(site, "left", "left/.agents/skills/evil/SKILL.md")


@attack()
def _node_modules_are_a_link(world):
    node_package(world.base / "other", "left", "evil")
    link(world.project / "node_modules", world.base / "other")


@attack()
def _node_package_is_a_link(world):
    link(world.project / "node_modules/left", world.outside)


@attack()
def _scope_of_node_is_a_link(world):
    node_package(world.base / "other", "left", "evil")
    link(world.project / "node_modules/@acme", world.base / "other")


@attack()
def _skills_of_a_node_package_are_a_link(world):
    link(world.project / "node_modules/left/skills", world.outside / "skills")


@attack()
def _level_above_the_root_of_the_repository(world):
    make_skill(world.base / "above/.agents/skills", "evil")
    return repository(world.base / "above/mono")


@attack()
def _level_without_a_repository(world):
    make_skill(world.base / "above/.agents/skills", "evil")
    (world.base / "above/part/.agents").mkdir(parents=True)
    return world.base / "above/part"


@attack()
def _repository_of_the_home_folder(world):
    repository(world.base / "home")
    make_skill(world.base / "home/.goose/skills", "evil")  # which only projects have
    (world.base / "home/part/.agents").mkdir(parents=True)
    return world.base / "home/part"


def owned_by_another(world: World, *names: str) -> None:
    """Let some paths belong to another user."""
    lstat, paths = os.lstat, {str(world.base / name) for name in names}

    def changed(path, **keywords):
        info = lstat(path, **keywords)
        if str(path) not in paths:
            return info
        values = list(info)
        values[4] = 54_321
        return os.stat_result(values)

    world.env.setattr(os, "lstat", changed)


@attack()
def _repository_of_another_user(world):
    make_skill(repository(world.base / "mono") / ".agents/skills", "evil")
    (world.base / "mono/part/.agents").mkdir(parents=True)
    owned_by_another(world, "mono/.git")
    return world.base / "mono/part"


@attack()
def _level_of_another_user(world):
    make_skill(repository(world.base / "mono") / "left/.agents/skills", "evil")
    (world.base / "mono/left/part/.agents").mkdir(parents=True)
    owned_by_another(world, "mono/left")
    return world.base / "mono/left/part"


@attack()
def _skills_of_a_level_are_a_link(world):
    link(repository(world.base / "mono") / ".agents/skills", world.outside / "skills")
    (world.base / "mono/part/.agents").mkdir(parents=True)
    return world.base / "mono/part"


@attack()
def _plugin_of_another_user(world):
    plugin(world.plugins, "left", "evil")
    owned_by_another(world, "home/.claude/plugins/installed_plugins.json")


@attack()
def _record_of_plugins_is_a_link(world):
    plugin(world.base / "other", "left", "evil")
    link(world.plugins / "installed_plugins.json", world.base / "other/installed_plugins.json")


@attack()
def _plugin_outside_the_folder_of_plugins(world):
    plugin(world.plugins, "left", installPath=str(world.outside))


@attack()
def _plugin_with_a_relative_path(world):
    plugin(world.plugins, "left", installPath="../outside")


@attack()
def _plugin_names_a_folder_outside(world):
    folder = plugin(world.plugins, "left")
    names = ["../../../../../../outside/skills", str(world.outside / "skills")]
    (folder / ".claude-plugin/plugin.json").write_text(json.dumps({"skills": names}))


@attack()
def _skills_of_a_plugin_are_a_link(world):
    link(plugin(world.plugins, "left") / "skills", world.outside / "skills")


@attack()
def _plugin_of_another_project(world):
    plugin(world.plugins, "left", "evil", scope="project", projectPath=str(world.outside))


@attack()
def _project_switches_a_plugin_on(world):
    plugin(world.plugins, "left", "evil")
    off, on = ({"enabledPlugins": {"left@market": value}} for value in (False, True))
    (world.plugins.parent / "settings.json").write_text(json.dumps(off))
    (world.project / ".claude").mkdir()
    (world.project / ".claude/settings.json").write_text(json.dumps(on))


@attack()
def _project_switches_packages_on(world):
    python_package(environment(world.project / ".venv"), "left", "evil")
    (world.project / "satchel.toml").write_text("packaged = true\n")
    world.env.setenv("SATCHEL_PACKAGED", "false")


def evil_of(satchel: Satchel) -> list[str]:
    """The states in which a skill `evil` is found."""
    satchel.refresh()
    return [skill.state for skill in satchel.list_skills(hidden=True) if skill.name == "evil"]


def is_loaded(satchel: Satchel) -> bool:
    try:
        satchel.load_content("evil")
    except SatchelError:
        return False
    return True


def test_there_are_forty_tries():
    assert len(TRIES) >= 40


@pytest.mark.parametrize("name", TRIES)
def test_nothing_is_trusted_by_a_place(world, name):
    prepare, is_asked = TRIES[name]
    folder = prepare(world) or world.project
    satchel = open_project(str(folder), {}, {})
    states = evil_of(satchel)
    assert states == (["untrusted"] if is_asked else [])
    assert not is_loaded(satchel)
    if is_asked:
        satchel.trust()
        assert evil_of(satchel) == ["active"]
        assert is_loaded(satchel)
        assert satchel.untrust()
        assert evil_of(satchel) == ["untrusted"]
    else:
        satchel.trust()
        assert evil_of(satchel) == []
        assert not is_loaded(satchel)
    # In Python the folder that was given is trusted, and links out of a package are not followed.
    assert evil_of(Satchel.for_project(folder)) == (["active"] if is_asked else [])


def test_a_lockfile_of_a_package_pins_nothing(world):
    folder = python_package(environment(world.project / ".venv"), "left", "evil")
    tree = hash_tree(FolderTree(str(folder / "evil")))
    entry = LockEntry(
        "evil",
        "evil",
        LockedSource("git", "u"),
        "",
        tree.digest,
        tree.files,
        LockedVerdict("clean"),
    )
    (folder.parent / "satchel.lock").write_bytes(render_lock({"evil": entry}))
    (world.project / "satchel.toml").write_text('trust = "locked"\n')
    for satchel in (open_project(str(world.project), {}, {}), Satchel.for_project(world.project)):
        assert evil_of(satchel) == ["untrusted"]
        assert not is_loaded(satchel)


@pytest.mark.parametrize("place", ["package", "plugin"])
def test_the_tools_that_a_package_requests_need_approval(world, place):
    if place == "package":
        folder = python_package(environment(world.project / ".venv"), "left")
    else:
        folder = plugin(world.plugins, "left") / "skills"
    make_skill(folder, "evil", allowed_tools="Bash")
    if place == "package":
        record(world.project / ".venv/lib/python3.11/site-packages", "left",
               "left/.agents/skills/evil/SKILL.md")  # fmt: skip
    satchel = Satchel.for_project(world.project)
    assert evil_of(satchel) == ["active"]
    assert [request.tools for request in satchel.tool_requests("evil")] == [("Bash",)]


def test_a_link_that_is_put_there_after_the_scan_is_refused(world):
    folder = python_package(environment(world.project / ".venv"), "left", "evil")
    satchel = Satchel.for_project(world.project)
    skill = satchel.get_skill("evil")
    assert skill is not None
    (folder / "evil/SKILL.md").unlink()
    (folder / "evil").rmdir()
    link(folder / "evil", world.outside / "skills/evil")
    with pytest.raises(SatchelError):
        satchel.library.integrity.check(skill)
