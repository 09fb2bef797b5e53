"""The example skill of `satchel new`, and `satchel list --locations`."""

from __future__ import annotations

import json
import os

import pytest


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


def repository(empty):
    """A monorepo: skills at its root and in two packages, one of them with a marker."""
    (empty.project / ".git").mkdir()
    text = "---\nname: {name}\ndescription: Does it. Use when asked.\n---\nx\n"
    for folder in (".agents/skills/root", ".claude/skills/root-claude"):
        empty.skill(folder, text.format(name=os.path.basename(folder)))
    empty.skill("packages/front/.agents/skills/front", text.format(name="front"))
    empty.skill("packages/back/.claude/skills/back", text.format(name="back"))
    empty.skill("packages/back/.claude/skills/both", text.format(name="root"))
    return empty.at(empty.project / "packages/front"), empty.at(empty.project / "packages/back")


def names(run):
    return [(row["name"], row["state"]) for row in json.loads(run.out)]


@pytest.mark.parametrize("part", [0, 1])
def test_the_levels_of_a_repository_are_searched_nearest_first(empty, part):
    package = repository(empty)[part]
    own = [("front", "active")] if part == 0 else [("back", "active"), ("root", "active")]
    asked = names(package.run("list", "--all", "--json"))
    assert len(asked) == 3 + part
    assert {state for _, state in asked} == {"untrusted"}
    assert package.run("trust", "--yes").status == 0
    shown = names(package.run("list", "--json"))
    assert shown[: len(own)] == own
    assert {name for name, _ in shown} == {*(name for name, _ in own), "root", "root-claude"}
    where = json.loads(package.run("show", "root", "--json").out)["ref"]
    assert where == ("../../.agents/skills/root", "packages/back/.claude/skills/both")[part]
    for command in ("why", "show", "check"):
        assert package.run(command, "root-claude").status == 0
    assert package.run("trust", "--revoke").status == 0
    assert {state for _, state in names(package.run("list", "--all", "--json"))} == {"untrusted"}


def test_a_level_is_trusted_by_itself(empty):
    front, back = repository(empty)
    assert empty.run("trust", "--yes").status == 0
    untrusted = {name for name, state in names(front.run("list", "--all", "--json"))
                 if state == "untrusted"}  # fmt: skip
    assert untrusted == {"front"}
    untrusted = {name for name, state in names(back.run("list", "--all", "--json"))
                 if state == "untrusted"}  # fmt: skip
    assert untrusted == {"back", "root"}
    assert "packages/back/.claude/skills" in back.run("trust", "--json", "--yes").out
    assert back.run("install", "--frozen").status == 0
    assert not (back.project / ".agents").exists()


def test_a_new_skill_that_is_shadowed_is_reported(empty, tmp_path):
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
