"""The example skill of `satchel new`, and `satchel list --locations`."""

from __future__ import annotations

import os


def test_a_first_skill_is_written_listed_and_loaded(empty):
    path = empty.run("new").out.strip()
    assert os.path.isfile(path)
    assert "hello-skill" in empty.run("list").out
    loaded = empty.run("show", "--as-model", "hello-skill", "--args", "Ada")
    assert "greets: Ada" in loaded.out
    assert empty.run("check", "--spec", "--strict").status == 0
    assert empty.run("new", "release-notes", "--kind", "minimal").status == 0
    made = str(empty.project / ".agents/skills/release-notes")
    for strict, words in (((), "1 warning"), (("--strict",), "no problems")):
        checked = empty.run("check", "--spec", made, *strict)
        assert (checked.status, checked.err) == (0, f"1 file: {words}\n")
        assert ("description-unwritten" in checked.out) is (not strict)
    assert empty.run("new").status == 2


def test_other_agents_folders_are_read_and_named(terminal):
    for number in range(30):
        text = f"---\nname: other-{number}\ndescription: b\n---\nx\n"
        terminal.skill(f".claude/skills/other-{number}", text)
    terminal.trust(".claude/skills")
    shown = terminal.run("list", COLUMNS="80").out
    assert shown.count(".claude/skills") == 30
    assert ".claude/skills" in terminal.run("list", "--locations").out
    assert ".codex/skills" not in terminal.run("list", "--locations").out
    off = terminal.run("list", SATCHEL_ECOSYSTEM="false").out
    assert "other-1" not in off


def test_from_a_folder_below_the_root_is_found(terminal):
    below = terminal.project / "src" / "app"
    below.mkdir(parents=True)
    there = terminal.at(below)
    assert there.run("list").out == terminal.run("list").out
    assert f"Project: {terminal.project}\n" in there.run("doctor", COLUMNS="200").err
    assert "code-review" not in there.run("--project", ".", "list").out
    assert there.run("--project", "nowhere", "list").status == 3


def test_what_is_hidden_is_named_when_it_is_made(empty, tmp_path):
    text = "---\nname: {name}\ndescription: Does it. Use when asked.\n---\nx\n"
    empty.skill(".agents/sys.skills/deploy", text.format(name="deploy"))
    empty.skill(".agents/sys.skills/other", text.format(name="other"))
    empty.skill(".agents/sys.skills/third", text.format(name="third"))
    empty.trust(".")
    words = "`.agents/skills/{0}` is hidden by `.agents/sys.skills/{0}`"
    assert words.format("deploy") in empty.run("new", "deploy").err
    assert words.format("other") in empty.run("new", "other").err
    source = tmp_path / "source" / "theirs"
    source.mkdir(parents=True)
    (source / "SKILL.md").write_text(text.format(name="third"))
    done = empty.run("install", str(source), "--yes")
    assert "`.agents/skills/theirs` is hidden by `.agents/sys.skills/third`" in done.err
    assert "hidden by .agents/sys.skills/third" in empty.run("list", "--all").out
