"""Other programs are told of the server: shown first, everything else kept, and undone."""

from __future__ import annotations

import json
import os
import stat
import tomllib

import pytest

from satchel.cli.main import run as main
from satchel.errors import Changed, Refused
from satchel.integrations.mcp import toml_text
from satchel.integrations.mcp.setup import (
    BACKUP,
    is_ours,
    plan_install,
    plan_uninstall,
    programs,
    write,
)

CODEX = """\
# my settings
model = "gpt"   # the good one

[mcp_servers.docs]
command = "docs"

# another thing
[tools]
web = true
"""
COMMENTED = """\
{
\t// what I use
\t"theme": "dark", /* at night */
\t"mcpServers": {
\t\t"docs": { "command": "docs", "args": ["a", "b",], },
\t},
\t"last": [1, 2.5e3, null, "a // b"],
}
"""


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


@pytest.mark.parametrize("name", list(programs()))
@pytest.mark.parametrize("scope", ["user", "project"])
def test_each_program_gets_its_entry_and_loses_it(home, project, name, scope):
    program = programs()[name]
    if scope == "project" and not program.project:
        assert (
            main(["--project", project, "mcp", "install", "--client", name, "--scope", scope]) == 2
        )
        return
    change = plan_install(name, scope, project)
    assert change.before is None
    assert write(change) == ""
    with open(change.path, encoding="utf-8") as file:
        text = file.read()
    read = tomllib.loads(text) if change.path.endswith(".toml") else json.loads(text)
    entry = read[program.table]["satchel"]
    assert "mcp" in entry["args"]
    if scope == "project":
        assert entry["command"] == "satchel"  # the file is shared: no path of this machine
        assert project not in text
    else:
        assert os.path.isabs(entry["command"])
    assert not plan_install(name, scope, project).needed
    undo = plan_uninstall(name, scope, project)
    assert undo.after is None
    write(undo)
    assert not os.path.exists(change.path)
    assert not plan_uninstall(name, scope, project).needed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("codex", CODEX),
        ("codex", CODEX.rstrip()),
        ("cursor", COMMENTED),
        ("cursor", '{"mcpServers":{}}'),
        ("cursor", "{}"),
        ("cursor", '{\n  "a": 1\n}\n'),
        ("gemini", '{\n    "mcpServers": {\n        "x": {}\n    },\n    "y": "ä"\n}\n'),
        ("claude-desktop", "{ // nothing yet\n}\n"),
    ],
)
def test_what_was_there_is_kept_and_comes_back(home, project, name, text):
    path = os.path.join(str(home), programs()[name].user)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o600)
    change = plan_install(name, "user", project)
    removed = [line for line in change.difference() if line.startswith("-") and line[:3] != "---"]
    assert len(removed) <= 2, removed  # at most the line that gets a comma, or an empty object
    assert write(change) == path + BACKUP
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(path + BACKUP).st_mode) == 0o600
    assert change.after is not None
    for words in ("// what I use", "# my settings", "# another thing", '"a // b"'):
        assert (words in change.after) == (words in text)
    write(plan_uninstall(name, "user", project))
    with open(path, encoding="utf-8") as file:
        assert file.read() == text
    assert not os.path.exists(path + BACKUP)


@pytest.mark.parametrize("text", [None, '{"mcpServers":{}}', COMMENTED])
def test_a_second_install_leaves_no_copy_behind(home, project, tmp_path, text):
    path = home / ".cursor/mcp.json"
    path.parent.mkdir()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    for folder in (project, str(tmp_path / "other")):
        write(plan_install("cursor", "user", folder))
    assert str(tmp_path / "other") in path.read_text(encoding="utf-8")
    write(plan_uninstall("cursor", "user", project))
    left = {one.name: one.read_text(encoding="utf-8") for one in path.parent.iterdir()}
    assert left == ({} if text is None else {"mcp.json": text})


def test_the_help_says_which_scope_is_usual():
    from satchel.cli.connecting import install

    told = next(one for one in install.params if one.name == "where").help
    usual = told.partition("Unless given: ")[2].replace("`user` for the others", "")
    for name, program in programs().items():
        assert (f"`{name}`" in usual) == (program.usual == "project")


@pytest.mark.parametrize("scope", ["project", "user"])
def test_a_program_that_cannot_find_satchel_is_warned_of(
    home, project, monkeypatch, capsys, scope, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["--project", project, "mcp", "install", "cursor", "--scope", scope, "--yes"]
    assert main(words) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert ("`satchel` is not on the PATH" in told) == (scope == "project")


@pytest.mark.parametrize(("name", "text"), [("codex", CODEX), ("cursor", COMMENTED)])
def test_edits_since_then_survive(home, project, name, text):
    path = os.path.join(str(home), programs()[name].user)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    write(plan_install(name, "user", project))
    with open(path, encoding="utf-8") as file:
        now = file.read()
    edited = now.replace('"docs"', '"documents"')
    with open(path, "w", encoding="utf-8") as file:
        file.write(edited)
    write(plan_uninstall(name, "user", project))
    with open(path, encoding="utf-8") as file:
        after = file.read()
    assert '"documents"' in after
    assert "satchel" not in after
    if name == "codex":
        assert tomllib.loads(after)["tools"] == {"web": True}


def test_an_older_entry_is_replaced_in_place(home, project):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"satchel": {"command": "old"}, "z": {}}}')
    write(plan_install("cursor", "user", project))
    servers = json.loads(path.read_text())["mcpServers"]
    assert list(servers) == ["satchel", "z"]
    assert servers["satchel"]["command"] != "old"
    text = toml_text.put(
        '[mcp_servers.satchel]\ncommand = "old"\n\n'
        '[mcp_servers.satchel.env]\nA = "1"\n\n# b\n[b]\n',
        "mcp_servers",
        "satchel",
        {"command": "new"},
    )
    assert text == '[mcp_servers.satchel]\ncommand = "new"\n\n# b\n[b]\n'


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"mcpServers": []}',
        '{"a": 1} x',
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        "{",
        '{"mcpServers": {"a": }}',
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(home, project, text):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Refused, match="cannot be changed safely"):
        plan_install("cursor", "user", project)
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["a = ", 'mcp_servers = { satchel = { command = "x" } }'])
def test_so_is_toml(home, project, text):
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Refused, match="cannot be changed safely"):
        plan_install("codex", "user", project)


def test_a_link_to_the_file_stays_a_link(home, project):
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").symlink_to(real)
    write(plan_install("cursor", "user", project))
    assert (home / ".cursor" / "mcp.json").is_symlink()
    assert "satchel" in real.read_text()


def test_everything_is_done_where_the_link_leads(home, project):
    real = home / "dotfiles" / "cursor.json"
    real.parent.mkdir()
    real.write_text('{"a": 1}\n')
    (home / ".cursor").mkdir()
    link = home / ".cursor" / "mcp.json"
    link.symlink_to(real)
    assert write(plan_install("cursor", "user", project)) == str(real) + BACKUP
    assert os.listdir(link.parent) == ["mcp.json"]
    write(plan_uninstall("cursor", "user", project))
    assert link.is_symlink()
    assert real.read_text() == '{"a": 1}\n'
    assert os.listdir(real.parent) == ["cursor.json"]
    real.unlink()  # the link leads nowhere now: what is made and removed is what it names
    write(plan_install("cursor", "user", project))
    write(plan_uninstall("cursor", "user", project))
    assert link.is_symlink()
    assert not real.exists()


def test_a_link_in_a_project_does_not_lead_out_of_it(home, project, tmp_path):
    outside = tmp_path / "outside.json"
    os.symlink(outside, os.path.join(project, ".mcp.json"))
    with pytest.raises(Refused, match="outside the project"):
        plan_install("claude-code", "project", project)
    assert not outside.exists()


def test_what_the_program_wrote_meanwhile_is_not_lost(home, project):
    path = home / ".claude.json"
    path.write_text('{"starts": 1}\n')
    change = plan_install("claude-code", "user", project)
    path.write_text('{"starts": 2, "account": "fresh"}\n')  # while the person read the difference
    with pytest.raises(Changed, match="was written since"):
        write(change)
    assert path.read_text() == '{"starts": 2, "account": "fresh"}\n'
    new = plan_install("cursor", "user", project)
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text("{}")
    with pytest.raises(Changed):
        write(new)
    write(plan_install("claude-code", "user", project))
    undo = plan_uninstall("claude-code", "user", project)
    path.write_text("{}")
    with pytest.raises(Changed):
        write(undo)
    assert path.read_text() == "{}"
    made = plan_install("gemini", "user", project)
    write(made)
    gone = plan_uninstall("gemini", "user", project)
    assert gone.after is None
    (home / ".gemini" / "settings.json").write_text('{"theme": "dark"}')
    with pytest.raises(Changed):
        write(gone)
    left = {name for name in os.listdir(home) if name.startswith(("..", ".claude"))}
    assert left == {".claude.json", ".claude.json" + BACKUP}


def test_not_even_at_the_last_moment(home, project, monkeypatch):
    path = home / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"theme": "dark"}')
    change = plan_install("gemini", "user", project)
    sync = os.fsync

    def meanwhile(descriptor):  # our text is on the disk, under a name of its own
        sync(descriptor)
        path.write_text('{"theme": "light"}')

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(Changed):
        write(change)
    assert path.read_text() == '{"theme": "light"}'
    assert sorted(os.listdir(path.parent)) == ["settings.json", "settings.json" + BACKUP]


def test_the_copy_is_of_what_was_replaced(home, project):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"first": 1}')
    write(plan_install("cursor", "user", project))
    edited = '{"second": 2, "mcpServers": {"satchel": {"command": "/old/satchel"}}}'
    path.write_text(edited)
    copy = write(plan_install("cursor", "user", project))
    with open(copy, encoding="utf-8") as file:
        assert file.read() == edited
    now = path.read_text()
    copy = write(plan_uninstall("cursor", "user", project))  # not back to the old entry
    assert json.loads(path.read_text()) == {"second": 2, "mcpServers": {}}
    with open(copy, encoding="utf-8") as file:
        assert file.read() == now


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_no_file_is_open_to_others_for_a_moment(home, project, mode, monkeypatch):
    path = home / ".claude.json"
    path.write_text('{"token": "secret"}')
    path.chmod(mode)
    seen = []
    sync = os.fsync

    def look(descriptor):  # each file, while its first bytes are in it and before it has its name
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    write(plan_install("claude-code", "user", project))
    assert seen == [mode, mode]  # the copy and the file
    write(plan_install("cursor", "user", project))
    assert seen[2:] == [0o600]
    assert stat.S_IMODE(os.stat(home / ".cursor" / "mcp.json").st_mode) == 0o600


def test_a_folder_that_cannot_be_written_is_a_refusal(home, project):
    (home / ".cursor").write_text("a file where a folder should be")
    with pytest.raises(Refused, match="cannot be"):
        write(plan_install("cursor", "user", project))
    (home / ".claude.json").mkdir()
    with pytest.raises(Refused, match="cannot be read"):
        plan_install("claude-code", "user", project)


@pytest.mark.parametrize("name", ["cursor", "vscode", "claude-desktop"])
def test_a_program_that_starts_it_anywhere_is_told_the_project(home, project, name):
    change = plan_install(name, "user", project)
    entry = json.loads(change.after or "")[change.program.table]["satchel"]
    assert entry["args"][-3:] == ["serve", "--project", project]
    assert "$" not in (change.after or "")  # in a user's file that has no meaning


def test_undone_from_another_project_it_is_undone_all_the_same(home, project, tmp_path):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{ "a": 1 }')
    write(plan_install("cursor", "user", project))
    write(plan_uninstall("cursor", "user", str(tmp_path)))
    assert path.read_text() == '{ "a": 1 }'


@pytest.mark.parametrize(
    "entry",
    ['{"command": "npx", "args": ["satchel"]}', '{"url": "https://example.com"}', '"satchel"'],
)
def test_the_entry_of_another_program_is_not_removed(home, project, entry, capsys):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    text = f'{{"mcpServers": {{"satchel": {entry}}}}}'
    path.write_text(text)
    words = ["--project", project, "mcp", "uninstall", "--client", "cursor", "--yes"]
    assert main(words) == 4
    told = capsys.readouterr().err
    assert "does not start Satchel" in told
    assert "mcp.json" in told
    assert path.read_text() == text


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "satchel"},
        {"command": r"C:\tools\Satchel.exe", "args": ["mcp"]},
        {"command": "/usr/bin/python3", "args": ["-m", "satchel", "mcp"]},
    ],
)
def test_ours_is_what_starts_satchel(entry):
    assert is_ours(entry)


def test_a_refusal_says_what_to_paste(home, project):
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('[mcp_servers]\nsatchel = { command = "satchel" }\n')
    with pytest.raises(Refused) as refused:
        plan_install("codex", "user", project)
    assert "not written as a table of its own" in refused.value.message
    assert "\n[mcp_servers.satchel]\ncommand = " in refused.value.hint
    with pytest.raises(Refused) as refused:
        plan_uninstall("codex", "user", project)
    assert "Remove `satchel` from `mcp_servers`" in refused.value.hint
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text("[]")
    with pytest.raises(Refused) as refused:
        plan_install("cursor", "user", project)
    assert '\n"satchel": {"command": ' in refused.value.hint


def test_the_command_shows_first_and_asks(home, project, capsys):
    words = ["--project", project, "mcp", "install", "--client", "claude-code"]
    assert main([*words, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert '+    "satchel": {' in shown.out
    assert not os.path.exists(os.path.join(project, ".mcp.json"))
    assert main(words) == 4  # nobody is there to be asked
    assert "--yes" in capsys.readouterr().err
    assert main([*words, "--yes"]) == 0
    assert os.path.exists(os.path.join(project, ".mcp.json"))
    assert main([*words, "--yes"]) == 0
    assert "already" in capsys.readouterr().err
    assert main(["--project", project, "mcp", "uninstall", "--client", "claude-code", "--yes"]) == 0
    assert not os.path.exists(os.path.join(project, ".mcp.json"))
    assert main(["--project", project, "mcp", "install"]) == 2
    assert "satchel mcp install claude-code" in capsys.readouterr().err


def test_the_program_may_be_a_word_or_an_option(home, project, capsys):
    start = ["--project", project, "mcp", "install"]
    assert main([*start, "claude-code", "--dry-run"]) == 0
    word = capsys.readouterr().out
    assert main([*start, "--client", "claude-code", "--dry-run"]) == 0
    assert capsys.readouterr().out == word
    assert main([*start, "codex", "--client", "claude-code"]) == 2
    assert "`codex` and `claude-code` are two programs" in capsys.readouterr().err
    assert main([*start, "claude"]) == 2
    assert "`CLIENT` is one of" in capsys.readouterr().err


def test_check_says_what_can_be_served(project, capsys, monkeypatch):
    from mcp_talk import write_skill

    monkeypatch.setenv("SATCHEL_TRUST", "all")
    write_skill(project, "good")
    assert main(["--project", project, "mcp", "check"]) == 0
    write_skill(project, "bad", "metadata:\n  version: 2\n")
    assert main(["--project", project, "mcp", "check", "--json"]) == 1
    out = capsys.readouterr().out
    found = json.loads(out[out.index("{") :])
    assert "good" in {one["path"] for one in found["served"]}
    [bad] = found["unserved"]
    assert "metadata" in bad["reason"]
