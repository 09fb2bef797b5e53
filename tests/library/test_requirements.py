"""Skills whose requirements are not met are listed, and not offered."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from satchel import Satchel
from satchel.library import Library, Location

if TYPE_CHECKING:
    from pathlib import Path

HERE = {"linux": "linux", "darwin": "macos", "win32": "windows"}[sys.platform]
ELSEWHERE = {"linux": "darwin", "macos": "win32", "windows": "linux"}[HERE]

PROGRAM, VARIABLE = "the program `absent`", "the variable `GATE_UNSET`"

CASES = {
    # Programs: the forms of real skills.
    "requires: {bins: [have]}": "",
    "requires: {bins: [absent]}": PROGRAM,
    "requires: {bins: [have, absent]}": PROGRAM,
    "requires: {bins: absent}": PROGRAM,
    "requires: {bins: 'have, absent'}": PROGRAM,
    "requires: {binaries: ['absent>=4.0']}": PROGRAM,
    "requires: {commands: [absent]}": PROGRAM,
    "requires:\n  bins:\n    - absent": PROGRAM,
    "requires: {bins: [python, python3]}": "",
    "requires: {bins: [pip]}": "",
    "requires: {anyBins: [absent, have]}": "",
    "requires: {any_bins: [absent, missing]}": "one of the programs `absent`, `missing`",
    "metadata: {requires: {bins: [absent]}}": PROGRAM,
    "metadata: {openclaw: {requires: {bins: [absent]}}}": PROGRAM,
    'metadata:\n  {\n    "clawdbot": { "requires": { "bins": ["absent"] } }\n  }': PROGRAM,
    "metadata:\n  vendor:\n    requires:\n      bins: [absent]": PROGRAM,
    "prerequisites: {commands: [absent]}": PROGRAM,
    "requirements: {binaries: [absent]}": PROGRAM,
    # Variables and secrets.
    "requires: {env: [GATE_SET]}": "",
    "requires: {env: [GATE_STORED]}": "",
    "requires: {env: [GATE_UNSET]}": VARIABLE,
    "requires: {env: [GATE_EMPTY]}": "the variable `GATE_EMPTY`",
    "requires: {env: [{name: GATE_UNSET}]}": VARIABLE,
    "requires: {env: [{name: GATE_UNSET, required: false}]}": "",
    "requires: {env: [{name: GATE_UNSET, default: '8080'}]}": "",
    "prerequisites: {env_vars: [GATE_UNSET]}": VARIABLE,
    "metadata: {openclaw: {requires: {env: [GATE_UNSET]}, primaryEnv: GATE_UNSET}}": VARIABLE,
    # Operating systems.
    f"requires: {{os: [{HERE}]}}": "",
    f"requires: {{os: [{ELSEWHERE}]}}": "one of the operating systems",
    f"metadata: {{openclaw: {{os: [{ELSEWHERE}]}}}}": "one of the operating systems",
    f"metadata: {{os: [{ELSEWHERE}]}}": "one of the operating systems",
    f"platforms: [{ELSEWHERE}]": "one of the operating systems",
    f"platforms: [{ELSEWHERE}, {HERE}]": "",
    "platforms: [claude, cursor]": "",
    f"platforms: [{ELSEWHERE}, android]": "",
    # Other skills.
    "requires: {skills: [plain]}": "",
    "requires: {skills: [acme/plain]}": "",
    "requires: {skills: [gone]}": "the skill `gone`",
    "metadata: {openclaw: {requires: {skills: [gone]}}}": "the skill `gone`",
    "dependencies: {skills: [gone]}": "the skill `gone`",
    "requires: {skills: [waits]}": "the skill `waits`",
    "requires: {skills: [gone], bins: [absent]}": f"{PROGRAM}, the skill `gone`",
    "requires: {skills: [ring-a]}": "",
    # Not requirements, or not known here: never a reason to hide a skill.
    "requires: {mcp: [rube]}": "",
    "requires: {config: [channels.token]}": "",
    "requires: Python 3.8 and absent": "",
    "requires: [absent, click>=8.0]": "",
    "requires: {bins: 'absent and a good connection'}": "",
    "requires: {bins: ['absent (optional)']}": "",
    "requires: {anyBins: [absent, 'the other one']}": "",
    "requires: {skills: 'see the docs'}": "",
    "requires: {bins: {absent: '1.0'}}": "",
    "requires: {bins: none, env: [], os: [none]}": "",
    "requires: {bins: [none], env: [None]}": "",
    "requires: {bins: [Have, Python]}": "",
    "requires:": "",
    "dependencies: [absent, torch>=2.6]": "",
    "dependencies: {tools: [absent], python: [absent]}": "",
    "compatibility: Requires absent and GATE_UNSET": "",
    "metadata: {openclaw: {always: true, requires: {bins: [absent]}}}": "",
    "metadata: {openclaw: {install: [{kind: brew, bins: [absent]}]}}": "",
    "env: [GATE_UNSET]": "",
    "bins: [absent]": "",
}  # fmt: skip
"""Lines of the frontmatter -> what is missing; empty when the skill is offered."""


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a PATH with the programs `have` and `pip3`, one variable and one secret."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("GATE_SET", "1")
    monkeypatch.setenv("GATE_EMPTY", "")
    for name in ("have", "pip3"):
        program(folder, name)
    secrets = tmp_path / ".config/satchel/secrets.env"
    secrets.parent.mkdir(parents=True)
    secrets.write_text("GATE_STORED=sesame\n")
    secrets.chmod(0o600)
    return tmp_path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return prepare(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def every_case(tmp_path_factory):
    """A library with a skill for each case, and those that the cases require."""
    with pytest.MonkeyPatch.context() as patch:
        base = prepare(tmp_path_factory.mktemp("machine"), patch)
        rings = {"ring_a": "requires: {skills: [ring-b]}", "ring_b": "requires: {skills: [ring-a]}"}
        write(base, plain="", waits="requires: {bins: [absent]}", **rings)
        project = write(base, **{f"case_{at}_of_all": lines for at, lines in enumerate(CASES)})
        yield Satchel.for_project(project, trust="all", packaged=False, builtin=False)


def program(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def write(base: Path, **lines: str) -> Path:
    """A project with a skill for each keyword, whose frontmatter has these lines too."""
    for name, more in lines.items():
        folder = base / "project/.agents/skills" / name.replace("_", "-")
        folder.mkdir(parents=True, exist_ok=True)
        head = f"name: {folder.name}\ndescription: Signs letters for {folder.name}.\n{more}"
        (folder / "SKILL.md").write_text(f"---\n{head.rstrip()}\n---\nSign it.\n")
    return base / "project"


def missing(satchel: Satchel, name: str) -> str:
    """What a skill that is not offered needs."""
    snapshot = satchel.refresh()
    (skill,) = snapshot.find(name)
    offered = snapshot.get(name) is not None
    assert offered == (skill.state == "active") == (name in satchel.session().prompt)
    assert skill.state in ("active", "needs setup")
    return "" if skill.setup_problem is None else str(skill.setup_problem.values["what"])


@pytest.mark.parametrize("lines", CASES)
def test_a_requirement_that_is_not_met_hides_a_skill_and_is_named(every_case, lines):
    name = f"case-{list(CASES).index(lines)}-of-all"
    found = missing(every_case, name)
    assert found.startswith(CASES[lines]) if CASES[lines] else found == ""
    reply = every_case.session().call("Skill", {"name": name})
    assert (reply.error is None) == (not found)
    assert found in reply.text


def test_a_skill_is_offered_as_soon_as_the_machine_has_what_it_requires(machine, monkeypatch):
    project = write(
        machine, a="requires: {bins: [late], env: [GATE_LATE]}", b="requires: {skills: [a]}"
    )
    satchel = Satchel.for_project(project, trust="all", packaged=False, builtin=False)
    assert missing(satchel, "a") == "the program `late`, the variable `GATE_LATE`"
    assert missing(satchel, "b") == "the skill `a`"
    program(machine / "bin", "late")
    assert missing(satchel, "a") == "the variable `GATE_LATE`"
    monkeypatch.setenv("GATE_LATE", "1")
    assert missing(satchel, "a") == missing(satchel, "b") == ""
    os.remove(machine / "bin/late")
    assert missing(satchel, "a") == "the program `late`"
    # Another process, which reads the headers from the cache.
    assert Satchel.for_project(project, trust="all").library.get_skill("b") is None


def test_skills_that_require_each_other_wait_when_one_of_them_waits(machine):
    project = write(
        machine,
        a="requires: {skills: [b]}",
        b="requires: {skills: [a], bins: [absent]}",
    )
    satchel = Satchel.for_project(project, trust="all", packaged=False, builtin=False)
    assert missing(satchel, "a") == "the skill `b`"
    assert missing(satchel, "b") == "the program `absent`"


def test_a_skill_that_waits_does_not_take_a_name(machine):
    for folder, more in (("one", "requires: {bins: [absent]}\n"), ("two", "")):
        (machine / folder / "sign").mkdir(parents=True)
        text = f"---\nname: sign\ndescription: Signs in {folder}.\n{more}---\nSign.\n"
        (machine / folder / "sign/SKILL.md").write_text(text)
    library = Library([Location(str(machine / one), trusted=True) for one in ("one", "two")])
    skill = library.get_skill("sign")
    assert skill is not None
    assert skill.description == "Signs in two."
    assert [one.state for one in library.named("sign")] == ["active", "needs setup"]


def test_a_required_skill_must_be_trusted(machine):
    project = write(machine, a="requires: {skills: [far]}")
    (machine / "away/far").mkdir(parents=True)
    (machine / "away/far/SKILL.md").write_text("---\nname: far\ndescription: Far.\n---\nGo.\n")
    mine = Location(str(project / ".agents/skills"), trusted=True)
    for trusted, state in ((False, "needs setup"), (True, "active")):
        library = Library([mine, Location(str(machine / "away"), trusted=trusted)])
        assert [one.state for one in library.find("a")] == [state]


def test_a_program_that_a_script_names_must_be_where_the_sandbox_shows_it(machine):
    project = write(
        machine, sealed="requires: {bins: [have]}", shell="requires: {anyBins: [absent, have]}"
    )
    for name, line in (("sealed", "have --all"), ("shell", "behaved")):
        (project / f".agents/skills/{name}/scripts").mkdir()
        (project / f".agents/skills/{name}/scripts/go.sh").write_text(f"{line}\n")
    satchel = Satchel.for_project(project, trust="all", packaged=False, builtin=False)
    assert missing(satchel, "shell") == ""  # for the shell of the agent
    assert missing(satchel, "sealed") == "the program `have`"
    assert str(machine / "bin/have") in satchel.why("sealed").advice[0]
    off = Satchel.for_project(project, trust="all", packaged=False, builtin=False, sandbox="off")
    assert missing(off, "sealed") == ""


def test_why_names_the_grant_of_a_required_variable_that_a_script_reads(machine):
    project = write(
        machine, reads="requires: {env: [GATE_SET]}", told="requires: {env: [GATE_SET]}"
    )
    (project / ".agents/skills/reads/scripts").mkdir()
    (project / ".agents/skills/reads/scripts/go.sh").write_text('echo "$GATE_SET"\n')
    satchel = Satchel.for_project(project, trust="all", packaged=False, builtin=False)
    step = "`satchel trust reads --variable GATE_SET` passes the variable to its scripts"
    assert step in satchel.why("reads").advice
    assert len(satchel.why("told").advice) == 1  # for the shell of the agent


def test_the_fix_names_a_step_for_each_thing_that_is_missing(machine):
    project = write(machine, sign="requires: {bins: [absent], env: [GATE_UNSET], skills: [gone]}")
    satchel = Satchel.for_project(project, trust="all", packaged=False, builtin=False)
    problem = satchel.refresh().find("sign")[0].setup_problem
    assert str(problem.values["fix"]) == (
        "Install `absent`, so that it is on PATH. Put `GATE_UNSET=…` into "
        f"`{machine}/.config/satchel/secrets.env`, or set `GATE_UNSET` in the environment. "
        "Install the skill `gone`; if it is there, see `satchel why gone`"
    )
