"""A workbench: `skills/<name>/skill.yaml`, programs over stdio JSON, `SKILL_EXCEL_ENABLED`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from model_server import ModelServer
from needs import go_cache, needs
from satchel.authoring.check_skill import check_folder
from satchel.tools.packaged import startup_lines
from seed import MANIFEST, PYTHON
from typing_at import Typing

TEMPLATES = Path(__file__).parent.parent / "runners" / "seed_templates"
READER = """\
import json, sys

def run(arguments):
    try:
        with open(arguments["path"], encoding="utf-8") as file:
            return {"output": file.read(), "error": ""}
    except OSError:
        return {"output": "", "error": f"文件不存在: {arguments['path']} — 请先确认路径"}

print(json.dumps(run(json.loads(sys.stdin.readline())["arguments"]), ensure_ascii=False))
"""
HELLO = "name: hello_say\ndescription: Say hello.\nruntime: binary\nentry: skill\n"
SHELL = '#!/bin/sh\nread line\necho \'{"output": "结果", "error": ""}\'\n'


@pytest.fixture
def bench(project, monkeypatch):
    """The document's `excel` skill; the packaged one of the same name is turned off."""
    monkeypatch.setenv("SKILL_EXCEL_ENABLED", "false")
    project.write({
        "skills/excel/skill.yaml": MANIFEST,
        "skills/excel/main.py": READER,
        "data/sales.csv": "姓名,分数\n张三,95\n",
    })  # fmt: skip
    return project


def names_of(session) -> set[str]:
    return {one["name"] for one in session.definitions()} - {"ReadFile", "Skill", "SkillSearch"}


@pytest.mark.req("E2", "E3", "E4")
@pytest.mark.timeout(300)  # Go compiles its standard library where its cache is empty
@pytest.mark.parametrize("kind", ["python", "typescript", "go", "binary"])
def test_a_program_in_each_runtime_is_dropped_in_and_called(bench, kind, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.path.dirname(needs('node24'))}:{os.environ['PATH']}")
    downloads = bench.home / ".cache/satchel/runtimes/downloads"
    downloads.mkdir(parents=True)
    (downloads / "go").symlink_to(os.path.dirname(go_cache()))  # with its compiled library
    folder = bench.project / "skills" / kind
    if kind == "binary":
        bench.write({"skills/hello/skill.yaml": HELLO, "skills/hello/skill": SHELL})
        (bench.project / "skills/hello/skill").chmod(0o755)
    else:
        shutil.copytree(TEMPLATES / kind, folder)
    if kind == "typescript":  # a module may not name a parameter `arguments`
        text = (folder / "main.ts").read_text(encoding="utf-8")
        (folder / "main.ts").write_text(text.replace("arguments: Rec", "args: Rec"), "utf-8")
    reply = bench.open().session().call("hello_say" if kind == "binary" else f"{kind}_run")
    assert (reply.status, reply.data.get("output")) == ("success", "结果"), reply.text
    assert reply.data["tier"] in ("bwrap", "landlock")
    assert kind != "go" or not (folder / "skill").exists(), "builds are kept elsewhere"


@pytest.mark.req("E3", "E10")
def test_a_tool_comes_and_changes_without_a_restart_and_a_broken_one_is_not_offered(bench):
    session = bench.open().session()
    assert names_of(session) == {"excel_read"}
    shutil.copytree(TEMPLATES / "python", bench.project / "skills/python")
    shutil.copytree(TEMPLATES / "go", bench.project / "skills/go")
    (bench.project / "skills/go/go.mod").unlink()
    bench.write({
        "skills/nothing/main.py": PYTHON,
        "skills/other/skill.yaml": MANIFEST,
        "skills/empty/skill.yaml": HELLO.replace("hello", "empty"),
    })  # fmt: skip
    assert names_of(session) == {"excel_read", "python_run"}
    found = {one.code for one in bench.open().problems() if one.severity == "error"}
    assert found == {"tool-go-module", "tool-entry-missing", "tool-name-prefix"}
    assert session.call("python_run").data["output"] == "结果"
    bench.write({"skills/python/main.py": PYTHON.replace("结果", "新结果")})
    assert session.call("python_run").data["output"] == "新结果"


@pytest.mark.req("E6")
def test_a_program_reads_the_file_that_its_argument_names(bench):
    session = bench.open().session()
    reply = session.call("excel_read", {"path": "data/sales.csv"})
    assert reply.data["output"] == "姓名,分数\n张三,95\n"
    missing = session.call("excel_read", {"path": "data/none.csv"}).text
    assert "文件不存在: data/none.csv" in missing
    assert "files: read" not in missing
    bench.write({"skills/excel/skill.yaml": f"{MANIFEST}files: none\n"})
    hidden = session.call("excel_read", {"path": "data/sales.csv"}).text
    assert "add `files: read` to its `skill.yaml`" in hidden
    bench.write({"skills/excel/skill.yaml": f"{MANIFEST}files: {{read: [path]}}\n"})
    assert session.call("excel_read", {"path": "../x.csv"}).error.code == "ACCESS_DENIED"


@pytest.mark.req("E5", "E9")
def test_the_check_list_passes_for_the_smallest_program(bench):
    bench.write({"skills/excel/main.py": PYTHON})
    (report,) = check_folder(str(bench.project / "skills/excel"))
    assert report.failing == set()


@pytest.mark.req("E1")
def test_the_packaged_skill_has_a_switch_a_line_and_one_variable_for_chinese(project, monkeypatch):
    assert "📊 Excel skill enabled" in startup_lines()
    assert {"excel_info", "excel_read", "excel_write"} <= names_of(project.open().session())
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    (tool,) = [one for one in project.open().session().definitions() if one["name"] == "excel_read"]
    assert tool["description"].startswith("读取")
    monkeypatch.setenv("SKILL_EXCEL_ENABLED", "false")
    assert names_of(project.open().session()) == set()


@pytest.mark.req("E1", "E4")
def test_after_one_yes_the_commands_work(bench):
    off = {"SKILL_EXCEL_ENABLED": "false"}
    assert "excel_read  excel" in bench.say_yes("tools", **off)
    done = bench.run("try", "excel_read", "--arg", "path=data/sales.csv", **off)
    assert (done.status, done.out) == (0, "姓名,分数\n张三,95\n")
    shutil.copytree(TEMPLATES / "python", bench.project / "skills/python")
    assert bench.run("try", "python_run").out == "结果\n"
    with ModelServer(lambda request: "好的") as server:
        known = {**server.environment(), "SATCHEL_MODEL": "anthropic:claude-sonnet-5"}
        for words, switch, line in (
            (("run", "你好"), "true", "Excel skill enabled"),
            (("run", "你好"), "false", "Excel skill off: `SKILL_EXCEL_ENABLED` says so"),
            (("chat",), "true", "Excel skill enabled"),
        ):
            env = bench.env(**known, SKILL_EXCEL_ENABLED=switch)
            with Typing(bench.command(*words), bench.project, env) as at:
                at.sees(line)
                if words == ("chat",):
                    at.sees("Ctrl-D ends it")
                    at.quiet()
                    at.type("\x04")
                assert at.ends() == 0, at.text
