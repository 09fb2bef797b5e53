"""Sources of settings, their precedence, and limits for projects."""

from __future__ import annotations

import os

import pytest

from satchel import Satchel
from satchel.errors import SettingsError
from satchel.settings import SETTINGS, SettingOptions, Settings, find_project, load_settings


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
    user_file(tmp_path, "budget = 1\n[tools]\ntimeout = 2\n")
    assert load_settings(str(project), env).budget == 1
    (project / "satchel.toml").write_text("budget = 3\n")
    assert load_settings(str(project), env).budget == 3
    (project / "pyproject.toml").write_text("[tool.satchel]\nbudget = 4\n")
    chosen = load_settings(str(project), env)
    assert (chosen.budget, chosen.tools.timeout) == (4, 2)
    env["SKILLS_PROMPT_CHAR_BUDGET"] = "5"
    assert load_settings(str(project), env).budget == 5
    assert load_settings(str(project), env, budget=6).budget == 6


def test_a_project_adds_places_and_takes_none_away(tmp_path, env):
    project = tmp_path / "project"
    project.mkdir()
    user_file(tmp_path, 'locations = ["/mine"]\ntrust = "all"\n')
    text = (
        'locations = ["inside", "../out", "/etc"]\ntrust = "all"\n[reading]\nextensions = ["pem"]\n'
    )
    (project / "satchel.toml").write_text(text)
    chosen = load_settings(str(project), env)
    assert chosen.locations == ("/mine",)
    assert chosen.project_locations == ("inside",)
    assert chosen.trust == "all"
    assert "pem" not in chosen.reading.extensions
    refused = [name for code, _, name in chosen.remarks if code == "setting-refused"]
    assert sorted(refused) == ["locations: ../out", "locations: /etc", "reading"]


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("satchel.toml", 'budget = "many"', "setting-wrong"),
        ("satchel.toml", "budget = -1", "setting-wrong"),
        ("satchel.toml", 'form = "pdf"', "setting-wrong"),
        ("satchel.toml", "budgt = 1", "setting-unknown"),
        ("pyproject.toml", "[tool.satchel]\nnope = 1", "setting-unknown"),
        ("satchel/config.toml", "budget = inf", "setting-wrong"),
        ("satchel/config.toml", "tools = 3", "setting-wrong"),
        ("satchel/config.toml", 'tools = {timeout = "long"}', "setting-wrong"),
        ("satchel/config.toml", "tools = {timout = 3}", "setting-wrong"),
        ("satchel/config.toml", 'reading = {scope = "disk"}', "setting-wrong"),
        ("satchel/config.toml", 'engine = "celery:x"', "setting-wrong"),
    ],
)
def test_a_key_that_cannot_be_used_is_ignored_alone(tmp_path, env, file, text, code):
    (tmp_path / "satchel").mkdir()
    (tmp_path / file).write_text(f'{text}\nexclude = ["x"]\n')
    chosen = load_settings(str(tmp_path), env)
    assert (chosen.budget, chosen.exclude) == (12_000, ("x",))
    ignored = [remark for remark in chosen.remarks if remark[0] != "project-setting"]
    assert [(one, path) for one, path, _ in ignored] == [(code, str(tmp_path / file))]


@pytest.mark.parametrize("file", ["satchel.toml", "satchel/config.toml"])
@pytest.mark.parametrize(
    "text",
    ["exclude = 3", "exclude = [3]", "include = true", "tags = {}", 'trust = "al"', "exlude = []",
     "budget = ", "budget = 1\nbudget = 2"],
)  # fmt: skip
def test_an_invalid_restriction_is_an_error(tmp_path, env, file, text):
    (tmp_path / "satchel").mkdir()
    (tmp_path / file).write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(str(tmp_path), env)
    assert caught.value.hint
    assert file in caught.value.message


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large", "deep"])
def test_a_settings_file_that_is_a_pipe_or_link_is_not_read(tmp_path, env, kind):
    file = tmp_path / "satchel.toml"
    if kind == "link":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_text("#" * 300_000 if kind == "large" else "a = " + "[" * 20_000)
    with pytest.raises(SettingsError, match=r"satchel\.toml"):
        load_settings(str(tmp_path), env)


def test_far_reaching_settings_of_a_project_are_reported(tmp_path, env):
    (tmp_path / "satchel.toml").write_text('exclude = ["*"]\nbuiltin = false\ntrace = "off"\n')
    chosen = load_settings(str(tmp_path), env)
    assert chosen.trace == "file"
    assert [(code, name) for code, _, name in chosen.remarks] == [
        ("project-setting", "exclude"),
        ("project-setting", "builtin"),
        ("setting-refused", "trace"),
    ]


@pytest.mark.parametrize("mark", ["satchel.toml", ".agents", "satchel.lock", ".git"])
def test_the_root_is_the_nearest_folder_with_a_mark(tmp_path, monkeypatch, mark):
    home = tmp_path / "home"
    below = home / "code" / "project" / "src" / "app"
    below.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (home / mark).mkdir()
    (tmp_path / "satchel.toml").touch()
    assert find_project(str(below)) == str(home if mark == "satchel.toml" else below)
    (home / "code/project" / mark).mkdir()
    assert find_project(str(below)) == str(home / "code/project")
    (below / mark).mkdir()
    monkeypatch.chdir(below)
    assert find_project() == str(below)
    assert find_project(str(home)) == str(home)


def test_a_home_that_is_no_absolute_path_is_no_home(tmp_path):
    paths = load_settings(str(tmp_path), {"HOME": "~", "XDG_STATE_HOME": "state"}).paths
    assert paths == ("", "", "")
    with pytest.raises(SettingsError):
        load_settings(str(tmp_path), {"SATCHEL_HOME": "here"})


def test_a_table_is_changed_key_by_key(tmp_path, env):
    user_file(tmp_path, "[tools]\ntimeout = 60\nmemory = 100\n")
    env["SATCHEL_TOOLS"] = '{"memory": 200}'
    chosen = load_settings(str(tmp_path), env, tools={"output": 9})
    assert chosen.tools == (60, 0, 9, 200, 120)


def test_an_unknown_setting_is_an_error(tmp_path, env):
    with pytest.raises(SettingsError):
        load_settings(str(tmp_path), env, colour="red")


def test_the_table_and_the_record_agree():
    defaults = Settings._field_defaults
    for setting in SETTINGS:
        assert setting.name in Settings._fields
        assert defaults[setting.name] == setting.default


def test_the_platforms_folders(tmp_path):
    chosen = load_settings(str(tmp_path), {"HOME": "/home/ada", "XDG_CACHE_HOME": "/cache"})
    assert chosen.paths.config == "/home/ada/.config/satchel/config.toml"
    assert chosen.paths.cache == "/cache/satchel"
    assert chosen.paths.state == "/home/ada/.local/state/satchel"


def test_the_type_of_the_settings_names_each_of_them(tmp_path):
    assert set(SettingOptions.__annotations__) == {setting.name for setting in SETTINGS}
    with pytest.raises(SettingsError, match="budgt"):
        Satchel.for_project(tmp_path, budgt=3)  # pyright: ignore[reportCallIssue]
