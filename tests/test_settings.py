"""Settings: where they come from, which wins, and what a project may not say."""

from __future__ import annotations

import os

import pytest

from satchel import load_settings
from satchel.errors import SettingsError
from satchel.settings import SETTINGS, Settings


@pytest.fixture
def env(tmp_path):
    return {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path / "satchel")}


def user_file(tmp_path, text: str) -> None:
    (tmp_path / "satchel").mkdir(exist_ok=True)
    (tmp_path / "satchel/config.toml").write_text(text)


@pytest.mark.req("A11", "A14")
def test_the_seeds_variables_and_defaults(tmp_path, env):
    assert load_settings(str(tmp_path), env).budget == 12_000
    assert load_settings(str(tmp_path), env).refresh_on_call is True
    chosen = load_settings(
        str(tmp_path),
        {**env, "SKILLS_PROMPT_CHAR_BUDGET": "500", "SKILLS_REFRESH_ON_CALL": "false"},
    )
    assert (chosen.budget, chosen.refresh_on_call) == (500, False)


def test_code_wins_over_environment_over_project_over_user(tmp_path, env):
    project = tmp_path / "project"
    project.mkdir()
    user_file(tmp_path, "budget = 1\nmax_depth = 2\n")
    assert load_settings(str(project), env).budget == 1
    (project / "satchel.toml").write_text("budget = 3\n")
    assert load_settings(str(project), env).budget == 3
    (project / "pyproject.toml").write_text("[tool.satchel]\nbudget = 4\n")
    chosen = load_settings(str(project), env)
    assert (chosen.budget, chosen.max_depth) == (4, 2)
    env["SKILLS_PROMPT_CHAR_BUDGET"] = "5"
    assert load_settings(str(project), env).budget == 5
    assert load_settings(str(project), env, budget=6).budget == 6


def test_a_project_adds_places_and_takes_none_away(tmp_path, env):
    project = tmp_path / "project"
    project.mkdir()
    user_file(tmp_path, 'locations = ["/mine"]\ntrust = "all"\n')
    text = 'locations = ["inside", "../out", "/etc"]\ntrust = "all"\nread_extensions = ["pem"]\n'
    (project / "satchel.toml").write_text(text)
    chosen = load_settings(str(project), env)
    assert chosen.locations == ("/mine",)
    assert chosen.project_locations == ("inside",)
    assert chosen.trust == "all"
    assert "pem" not in chosen.read_extensions
    refused = [name for code, _, name in chosen.remarks if code == "setting-refused"]
    assert sorted(refused) == ["locations: ../out", "locations: /etc", "read_extensions"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("satchel.toml", "budget = "),
        ("satchel.toml", 'budget = "many"'),
        ("satchel.toml", "budget = -1"),
        ("satchel.toml", "budget = true"),
        ("satchel.toml", 'builtin = "perhaps"'),
        ("satchel.toml", 'form = "pdf"'),
        ("satchel.toml", "include = 3"),
        ("satchel.toml", "unknown = 1"),
        ("pyproject.toml", "[tool]\nsatchel = 3"),
        ("pyproject.toml", "[tool.satchel]\nnope = 1"),
    ],
)
def test_a_projects_slip_is_said_and_stops_nobody(tmp_path, env, file, text):
    (tmp_path / file).write_text(text)
    chosen = load_settings(str(tmp_path), env)
    assert chosen.budget == 12_000
    ((code, path, reason),) = chosen.remarks
    assert (code, path) == ("setting-broken", str(tmp_path / file))
    assert reason


@pytest.mark.parametrize("text", ["budget = ", 'form = "pdf"', "unknown = 1", "budget = inf"])
def test_a_slip_of_the_users_own_is_an_error_with_a_hint(tmp_path, env, text):
    user_file(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(str(tmp_path), env)
    assert caught.value.hint
    assert "config.toml" in caught.value.message


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large", "deep"])
def test_a_strangers_file_is_not_waited_for_nor_followed(tmp_path, env, kind):
    file = tmp_path / "satchel.toml"
    if kind == "link":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_text("#" * 300_000 if kind == "large" else "a = " + "[" * 20_000)
    chosen = load_settings(str(tmp_path), env)
    assert [code for code, _, _ in chosen.remarks] == ["setting-broken"]


def test_far_reaching_settings_of_a_project_are_said(tmp_path, env):
    (tmp_path / "satchel.toml").write_text('exclude = ["*"]\nbuiltin = false\ntrace = "off"\n')
    chosen = load_settings(str(tmp_path), env)
    assert chosen.trace == "file"
    assert [(code, name) for code, _, name in chosen.remarks] == [
        ("project-setting", "exclude"),
        ("project-setting", "builtin"),
        ("setting-refused", "trace"),
    ]


def test_a_home_that_is_no_absolute_path_is_no_home(tmp_path):
    paths = load_settings(str(tmp_path), {"HOME": "~", "XDG_STATE_HOME": "state"}).paths
    assert paths == ("", "", "")
    with pytest.raises(SettingsError):
        load_settings(str(tmp_path), {"SATCHEL_HOME": "here"})


def test_a_setting_nobody_knows(tmp_path, env):
    with pytest.raises(SettingsError):
        load_settings(str(tmp_path), env, colour="red")


def test_the_table_and_the_record_agree():
    defaults = Settings._field_defaults
    for setting in SETTINGS:
        assert setting.name in Settings._fields
        if setting.name != "read_extensions":
            assert defaults[setting.name] == setting.default


def test_the_platforms_folders(tmp_path):
    chosen = load_settings(str(tmp_path), {"HOME": "/home/ada", "XDG_CACHE_HOME": "/cache"})
    assert chosen.paths.config == "/home/ada/.config/satchel/config.toml"
    assert chosen.paths.cache == "/cache/satchel"
    assert chosen.paths.state == "/home/ada/.local/state/satchel"
