"""The built-in skills teach what this release does: their programs and commands are tried."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import click
import pytest

import satchel
from needs import go_cache, needs
from satchel import Satchel
from satchel.authoring.check_skill import check_folder
from satchel.authoring.tool_trial import make_program_check
from satchel.cli.app import cli

SKILLS = Path(satchel.__file__).parent / "system_skills"
TEXTS = {
    path.relative_to(SKILLS).as_posix(): path.read_text("utf-8") for path in SKILLS.rglob("*.md")
}
TOOL = "write-a-tool-skill"
PROGRAMS = {
    "python": ("main.py", "python"),
    "node": ("main.ts", "typescript"),
    "go": ("main.go", "go"),
}


def blocks(name, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", TEXTS[f"{TOOL}/{name}"], re.MULTILINE | re.DOTALL
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with the file that the text's example reads."""
    folder = tmp_path / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs/readme.md").write_text("two words\n\nand more\n")
    home = tmp_path / "home"
    (home / ".cache/satchel/runtimes/downloads").mkdir(parents=True)
    (home / ".cache/satchel/runtimes/downloads/go").symlink_to(os.path.dirname(go_cache()))
    monkeypatch.setenv("HOME", str(home))
    return folder


def checked(project, manifest, files):
    skill = project / "skills/text"
    skill.mkdir(parents=True)
    for name, text in {"skill.yaml": manifest, **files}.items():
        (skill / name).write_text(text, encoding="utf-8")
    opened = Satchel.for_project(project, trust="all", packaged=False)
    (report,) = check_folder(str(skill), check_program=make_program_check(opened))
    return opened, report


@pytest.mark.req("E9")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("runtime", PROGRAMS)
def test_the_manifest_and_the_program_of_the_text_pass_their_check(project, monkeypatch, runtime):
    monkeypatch.setenv("PATH", f"{os.path.dirname(needs('node24'))}:{os.environ['PATH']}")
    monkeypatch.setenv("PATH", f"{os.path.dirname(needs('go'))}:{os.environ['PATH']}")
    file, language = PROGRAMS[runtime]
    (manifest,) = blocks("SKILL.md", "yaml")
    manifest = manifest.replace("runtime: python", f"runtime: {runtime}")
    manifest = manifest.replace("entry: main.py", f"entry: {file}")
    files = {file: blocks(f"references/{runtime}.md", language)[0]}
    if runtime == "go":
        files["go.mod"] = blocks("references/go.md", "")[0]
    opened, report = checked(project, manifest, files)
    assert not report.failed_codes
    output = opened.session().call("text_count", {"path": "docs/readme.md"}).data["output"]
    assert json.loads(output) == {"lines": 3, "words": 4, "characters": 20}
    refused = opened.session().call("text_count", {"path": "../outside.txt"})
    assert refused.error is not None
    assert " — " in refused.error.message


def test_the_manifest_with_several_tools_can_be_used(project):
    (manifest,) = blocks("references/manifest.md", "yaml")
    program = 'import json\n\nprint(json.dumps({"output": json.loads(input())["tool"]}))\n'
    opened, _ = checked(project, manifest, {"main.py": program})
    assert opened.session().call("text_head").data["output"] == "text_head"


COMMANDS = sorted({
    found for text in TEXTS.values() for found in re.findall(r"`(satchel [^`]+)`", text)
})  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_in_the_text_exists_with_its_options(line):
    command: click.Command = cli
    words = shlex.split(line)[1:]
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= options


def test_the_order_of_locations_is_as_the_text_says(project):
    theirs = project / "skills" / TOOL
    theirs.mkdir(parents=True)
    (theirs / "SKILL.md").write_text(f"---\nname: {TOOL}\ndescription: Ours. Use it.\n---\nx\n")
    opened = Satchel.for_project(project, trust="all", builtin=True)
    assert opened.get_skill(TOOL).base_dir == str(theirs)
    assert "They come last in the order of locations" in TEXTS["README.md"]
