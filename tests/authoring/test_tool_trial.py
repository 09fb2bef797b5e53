"""Boxes that only a run can tick: four runtimes, in the sandbox; and nothing runs unasked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authoring.wrong import TOOL, write_good
from needs import go_cache, needs
from satchel import Satchel
from satchel.authoring.check_skill import RUN_RULES, check_folder
from satchel.authoring.scaffold import KINDS
from satchel.authoring.tool_tests import open_program, run_cases
from satchel.authoring.tool_trial import is_listed, make_program_check
from satchel.errors import Refused

if TYPE_CHECKING:
    from authoring.wrong import Skill

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """One cache for all of them, with what Go compiled of its library for other tests."""
    home = tmp_path_factory.mktemp("satchel")
    (home / "cache" / "runtimes" / "downloads").mkdir(parents=True)
    compiled = Path(go_cache()).parent
    compiled.mkdir(parents=True, exist_ok=True)
    (home / "cache" / "runtimes" / "downloads" / "go").symlink_to(compiled)
    return str(home)


@pytest.fixture
def satchel(tmp_path, monkeypatch, kept):
    monkeypatch.setenv("SATCHEL_HOME", kept)
    (tmp_path / "bin").mkdir()
    (tmp_path / "project").mkdir()
    if node := needs("node24"):
        (tmp_path / "bin/node").symlink_to(node)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    found = Satchel.for_project(tmp_path / "project", trust="all", builtin=False, packaged=False)
    yield found
    found.close()


def _new(satchel: Satchel, kind: str, language: str = "en") -> Skill:
    return write_good(Path(satchel.settings.project) / "skills", kind, language)


def _report(satchel: Satchel, skill: Skill):
    folder = str(skill.folder)
    (report,) = check_folder(
        folder, check_program=make_program_check(satchel), listed=is_listed(satchel, folder)
    )
    return report


@pytest.mark.req("E9", "E11")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS[2:])
def test_a_scaffold_passes_every_rule_when_it_is_run(satchel, kind):
    needs({"go": "go", "binary": "cc", "typescript": "node24", "python": "bwrap"}[kind])
    report = _report(satchel, _new(satchel, kind))
    assert not report.failed_codes
    ticked = {one.rule for one in report.verdicts if one.state == "pass"}
    assert {*RUN_RULES, "listed"} - ticked == (set() if kind == "go" else {"go-builds"})


JSON_LINE = """    line = json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace")
    sys.stdout.buffer.write(line + b"\\n")"""


@pytest.mark.req("E9")
@pytest.mark.parametrize(
    ("old", "new", "fires"),
    [
        # Only a run can tell that the program is wrong about its own example.
        ("    lines = len(text.splitlines())", "    lines = len(texts.splitlines())", {"answers"}),
        ("= wanted(arguments)", "= str(arguments.get('text', '')), ''", {"refuses"}),
        ("    text, path =", "    return 'well'\n    text, path =", {"refuses"}),
        ("    text, path =", "    os._exit(3)\n    text, path =", {"answers", "no-uncaught"}),
        ("def main():", "def main(:", {"answers", "no-uncaught"}),
        ("except Refused as exc", "except ValueError as exc", {"no-uncaught"}),
        (JSON_LINE, "    print(reply)", {"answers", "protocol"}),
        ("def run(arguments):", "def run(arguments):\n    print('-')", {"answers", "protocol"}),
        (" — list the files and check the path", "", {"error-wording"}),
        ("list the files and check the path", "try again", {"error-wording"}),
        ("list the files and check the path", "看看文件夹里有什么文件再说吧", {"error-language"}),
        ("File not found:", "FileNotFoundError:", {"error-inside"}),
    ],
)  # fmt: skip
def test_a_wrong_program_fails_its_rules(satchel, old, new, fires):
    skill = _new(satchel, "python")
    skill.edit(old, new, "main.py")
    if "no-uncaught" in fires:
        skill.edit("except Exception as exc", "except OSError as exc", "main.py")
    report = _report(satchel, skill)
    assert report.failed_codes.keys() == fires
    assert all(one.message and one.fix for one in report.verdicts if one.state == "fail")


@pytest.mark.req("E9")
def test_a_go_program_that_does_not_build(satchel):
    needs("go")
    skill = _new(satchel, "go")
    skill.edit("func main() {", "func main() {\n\tvar unused int", "main.go")
    assert _report(satchel, skill).failed_codes.keys() == {"go-builds", "listed"}


def test_nothing_is_run_unless_it_is_asked_for(satchel, tmp_path):
    mark = tmp_path / "ran"
    skill = _new(satchel, "python")
    skill.edit('"""Counts', f'import os\nos.mkdir({str(mark)!r})\n"""Counts', "main.py")
    skill.write("conftest.py", f"import os\nos.mkdir({str(mark)!r})\n")
    check_folder(str(skill.folder))
    assert not mark.exists()
    # And when it is, the sandbox holds it.
    _report(satchel, skill)
    assert not mark.exists()


@pytest.mark.req("E9")
def test_an_untrusted_program_is_neither_built_nor_run(satchel, tmp_path):
    mark = Path(satchel.settings.project) / "ran"
    skill = _new(satchel, "python")
    skill.edit('"""Counts', f'import os\nos.mkdir({str(mark)!r})\n"""Counts', "main.py")
    distrusting = Satchel.for_project(satchel.settings.project, trust="ask", builtin=False)
    unrun: list = []
    (report,) = check_folder(
        str(skill.folder), check_program=make_program_check(distrusting, unrun)
    )
    reasons = {one.rule: one.reason for one in report.verdicts if one.is_open}
    assert {"answers", "refuses", "protocol"} <= set(reasons)
    assert reasons["answers"] == ("`word-count` is not run: untrusted (Run `satchel trust`)")
    assert unrun == ["refused"]
    with pytest.raises(Refused):
        open_program(distrusting, str(skill.folder))
    outside = write_good(tmp_path / "elsewhere", "python")
    with pytest.raises(Refused, match="not one of this project's skills"):
        open_program(distrusting, str(outside.folder))
    assert not mark.exists()


# --- cases --------------------------------------------------------------------------------


def test_every_wrong_call_is_tried_in_the_program(satchel):
    skill = _new(satchel, "python")
    bench = open_program(satchel, str(skill.folder))
    outcomes = list(run_cases(bench))
    assert {one.state for one in outcomes} == {"pass"}
    kinds = [one.case.kind for one in outcomes]
    assert kinds.count("example") == 2
    assert kinds.count("program") == 5
    titles = {one.case.title for one in outcomes if one.case.kind == "program"}
    assert {"`path` leads outside", "`path` is not there", "an unknown parameter"} <= titles


WRITER = """
import json, os, sys
def run(a):
    path = a["path"]
    if not isinstance(path, str) or path.startswith("..") or "no_such_parameter" in a:
        return {"output": "", "error": "Path cannot be used: path — give another one"}
    if os.path.exists(path):
        return {"output": "", "error": f"File exists: {path} — choose another name"}
    with open(path, "w") as file:
        file.write("hello")
    return {"output": f"wrote {path}", "error": ""}
try:
    reply = run(json.loads(sys.stdin.readline())["arguments"])
except Exception:
    reply = {"output": "", "error": "Arguments are wrong — give a path"}
print(json.dumps(reply))
"""


def test_a_tool_that_writes_is_tested_on_a_copy(satchel):
    skill = _new(satchel, "python")
    skill.write("main.py", WRITER)
    skill.write(
        "skill.yaml",
        f"name: {TOOL}\ndescription: Writes a greeting into one new file of the workspace.\n"
        "runtime: python\nentry: main.py\nfiles:\n  write: [path]\nparameters:\n  - name: path\n"
        "    type: string\n    required: true\n"
        "    description: 'Path of the new file, relative to the workspace. Example: a.txt'\n"
        "docs:\n  examples:\n    - scenario: one\n      arguments: {path: hello.txt}\n",
    )
    outcomes = list(run_cases(open_program(satchel, str(skill.folder))))
    assert {(one.case.title, one.text) for one in outcomes if one.state == "fail"} == set()
    assert outcomes[0].text == "wrote hello.txt"
    assert not os.path.exists(os.path.join(satchel.settings.project, "hello.txt"))
    assert {one.case.title for one in outcomes} >= {"without `path`", "`path` leads outside"}
