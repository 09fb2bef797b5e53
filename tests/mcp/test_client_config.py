"""`satchel mcp install`, also with `--remove`: shown first, other entries kept, a copy made."""

from __future__ import annotations

import json
import os
import stat
import tomllib

import pytest

from satchel.cli.main import run as main
from satchel.errors import Changed, Refused
from satchel.integrations.mcp.client_config import BACKUP_SUFFIX, CLIENTS, apply, plan

JSON = [name for name, program in CLIENTS.items() if program.user_file.endswith(".json")]


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return str(folder)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_each_program_gets_its_entry_and_loses_it(home, project, name, scope):
    program = CLIENTS[name]
    if scope == "project" and not program.project_file:
        assert main(["--project", project, "mcp", "install", name, "--scope", scope]) == 2
        return
    change = plan(name, scope, project)
    assert change.old_text is None
    assert apply(change, project) == ""
    with open(change.path, encoding="utf-8") as file:
        text = file.read()
    entry = json.loads(text)[program.servers_key]["satchel"]
    assert "mcp" in entry["args"]
    if scope == "project":
        assert entry["command"] == "satchel"  # the file is shared: no path of this machine
        assert project not in text
    else:
        assert os.path.isabs(entry["command"])
        assert stat.S_IMODE(os.stat(change.path).st_mode) == 0o600
        if name in ("cursor", "vscode", "claude-desktop"):  # it starts programs anywhere
            assert entry["args"][-3:] == ["serve", "--project", project]
    assert not plan(name, scope, project).is_needed
    apply(plan(name, scope, project, remove=True), project)
    with open(change.path, encoding="utf-8") as file:
        assert json.load(file) == {program.servers_key: {}}
    assert not plan(name, scope, project, remove=True).is_needed


def test_other_entries_and_the_mode_are_kept_and_a_copy_is_made(home, project):
    path = home / ".claude.json"
    text = '{"token": "secret", "mcpServers": {"satchel": {"command": "old"}, "x": {}}}'
    path.write_text(text)
    path.chmod(0o640)
    copy = apply(plan("claude-code", "user", project), project)
    assert copy == f"{path}{BACKUP_SUFFIX}"
    with open(copy, encoding="utf-8") as file:
        assert file.read() == text
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    apply(plan("claude-code", "user", project, remove=True), project)
    assert json.loads(path.read_text()) == {"token": "secret", "mcpServers": {"x": {}}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", '{"mcpServers": {}} // mine'),
        ("cursor", "{"),
        ("codex", "a = "),
        ("codex", "mcp_servers = {}\n"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_alone(home, project, name, text):
    path = home / CLIENTS[name].user_file
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Refused, match="edits plain JSON only") as refused:
        plan(name, "user", project)
    pasted = "\n[mcp_servers.satchel]\ncommand = " if name == "codex" else '{"satchel": {'
    assert pasted in refused.value.hint
    assert path.read_text() == text


@pytest.mark.parametrize("text", [None, "", 'model = "gpt" # mine\n'])
def test_a_toml_file_gets_the_table_at_its_end(home, project, text):
    path = home / CLIENTS["codex"].user_file
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    apply(plan("codex", "user", project), project)
    after = path.read_text()
    assert after.startswith(text or "")
    assert tomllib.loads(after)["mcp_servers"]["satchel"]["args"][:2] == ["mcp", "serve"]
    assert not plan("codex", "user", project).is_needed
    path.write_text(
        f"{after}\n[mcp_servers.satchel.env]\nA = 'b'\n\n# mine\n[mcp_servers.x]\nurl = 'y'\n"
    )
    apply(plan("codex", "user", project, remove=True), project)
    after = path.read_text()
    assert after.startswith((text or "").rstrip("\n"))
    assert after.endswith("\n# mine\n[mcp_servers.x]\nurl = 'y'\n")
    assert "satchel" not in after
    path.write_text('[mcp_servers]\nsatchel = {command = "x"}\n')
    with pytest.raises(Refused, match="edits plain JSON only"):
        plan("codex", "user", project, remove=True)


def test_the_command_of_a_program_is_used_where_it_has_one(home, project, tmp_path, monkeypatch):
    log = tmp_path / "log"
    for name in ("claude", "codex", "gemini"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ["--project", project, "mcp", "install", "claude-code"]
    assert main([*words, "--dry-run"]) == 0
    assert not log.exists()
    assert main([*words, "--yes"]) == 0
    for name in ("codex", "gemini"):
        apply(plan(name, "user", project), project)
    with open(os.path.join(project, ".mcp.json"), "w", encoding="utf-8") as file:
        json.dump({"mcpServers": {"satchel": {"command": "satchel", "env": {}}}}, file)
    apply(plan("claude-code", "project", project, remove=True), project)
    claude, codex, gemini, removed = log.read_text().splitlines()
    assert claude == "claude mcp add --scope project satchel -- satchel mcp serve"
    assert codex.startswith("codex mcp add satchel -- /")
    assert gemini.startswith("gemini mcp add --scope user satchel /")
    assert gemini.endswith(" -- mcp serve")
    assert removed == "claude mcp remove --scope project satchel"
    (tmp_path / "claude").write_text("#!/bin/sh\necho no licence >&2\nexit 1\n")
    change = plan("claude-code", "user", project)
    with pytest.raises(Refused, match="no licence"):
        apply(change, project)


def test_a_link_stays_a_link_and_does_not_lead_out_of_a_project(home, project, tmp_path):
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".cursor").mkdir()
    link = home / ".cursor" / "mcp.json"
    link.symlink_to(real)
    apply(plan("cursor", "user", project), project)
    assert link.is_symlink()
    assert "satchel" in real.read_text()
    os.symlink(tmp_path / "outside.json", os.path.join(project, ".mcp.json"))
    with pytest.raises(Refused, match="outside the project"):
        plan("claude-code", "project", project)


def test_concurrent_edits_of_the_program_are_not_lost(home, project):
    path = home / ".claude.json"
    path.write_text('{"starts": 1}\n')
    change = plan("claude-code", "user", project)
    path.write_text('{"starts": 2}\n')  # while the person read the difference
    with pytest.raises(Changed, match="changed meanwhile"):
        apply(change, project)
    assert path.read_text() == '{"starts": 2}\n'


def test_the_command_shows_first_and_asks(home, project, capsys):
    words = ["--project", project, "mcp", "install", "claude-code"]
    assert main([*words, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert '+    "satchel": {' in shown.out
    assert not os.path.exists(os.path.join(project, ".mcp.json"))
    assert main(words) == 4  # not a terminal
    assert "--yes" in capsys.readouterr().err
    assert main([*words, "--yes"]) == 0
    assert os.path.exists(os.path.join(project, ".mcp.json"))
    assert main([*words, "--yes"]) == 0
    assert "othing to do" in capsys.readouterr().err
    assert main(["--project", project, "mcp", "install", "claude-code", "--remove", "--yes"]) == 0
    with open(os.path.join(project, ".mcp.json"), encoding="utf-8") as file:
        assert json.load(file) == {"mcpServers": {}}
    assert main(["--project", project, "mcp", "install"]) == 2
    assert "`CLIENT` is missing" in capsys.readouterr().err
