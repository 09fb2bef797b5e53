"""Packaged skills: discovery, switches, start-up lines, calls."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib

import pytest

from satchel.settings import load_settings
from satchel.tools.packaged import (
    GROUP,
    clear_entry_points,
    find_packaged,
    packaged_problems,
    packaged_tools,
    startup_lines,
)
from satchel.trace import Trace

MODULE = """
from satchel.tools.packaged import *
from satchel.tools.packaged import PackagedParameter

def run(job):
    what = job.arguments["what"]
    if what == "crash":
        raise ValueError("a secret detail")
    if what == "exit":
        raise SystemExit(3)
    if what == "long":
        return ToolAnswer("x" * 20_000, {{}})
    if what == "known":
        raise ToolFailed(BAD, what=what)
    return ToolAnswer(f"did {{what}} {{job.arguments['times']}}", {{"what": what}})

BAD = Failure("bad", "INVALID_PARAM", Text("Cannot do that", "无法执行"), Text("{{what}}"),
              Text("Do something else", "请换一个"))
TOOL = PackagedTool(
    "{tool}", Text("Do a thing at most {{n}} times.", "执行某事。"),
    (
        PackagedParameter("what", "string", True, None, Text("What", "什么"), {{"maxLength": 9}}),
        PackagedParameter("times", "integer", False, 1, Text("How often"), {{"maximum": 5}}),
        PackagedParameter("loud", "boolean", False, False, Text("Loud")),
        PackagedParameter("share", "number", False, 0.5, Text("Share"), {{"minimum": 0}}),
        PackagedParameter("words", "array", False, (), Text("Words"), {{"maxItems": 2}}),
    ),
    (*ALWAYS, BAD), run, {{"what": "x"}}, writes=True)
skill = PackagedSkill(
    "{name}", "Thing", "🔧", "nothing", {needs}, "pip install it", Text("Does."), (TOOL,),
    (), (), (), (), (), ())
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, before all others; ours is there without Excel."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    loaded = set(sys.modules)

    def install(package, *lines, name="", tool="", needs=(), module=None, version="1.0"):
        if not lines:
            lines = (f"{name} = {package}_pkg:skill",)
        info = folder / f"{package}-{version}.dist-info"
        info.mkdir(parents=True)
        text = "\n".join(("[console_scripts]", "x = y:z", "", f"[{GROUP}]", *lines, ""))
        (info / "entry_points.txt").write_text(text)
        (info / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        if module is None:
            module = MODULE.format(name=name, tool=tool or f"{name}_do", needs=repr(tuple(needs)))
        (folder / f"{package}_pkg.py").write_text(module, encoding="utf-8")
        importlib.invalidate_caches()
        clear_entry_points()

    install("satchel", "# none", module="")
    yield install
    for name in set(sys.modules) - loaded:
        if name.endswith("_pkg"):
            del sys.modules[name]
    clear_entry_points()


def states() -> dict[str, str]:
    return {one.package: one.state for one in find_packaged()}


def chosen(tmp_path, **given):
    return load_settings(str(tmp_path), env={"HOME": str(tmp_path)}, **given)


@pytest.mark.req("E1")
def test_a_package_registers_its_tools(site, make_desk):
    site("thing", name="thing")
    desk = make_desk(packaged=True)
    assert desk.tools.names[1:] == ("thing_do",)
    reply = desk.tools.call("thing_do", {"what": "it", "times": 2.0})
    assert (reply.status, reply.text, reply.data) == ("success", "did it 2", {"what": "it"})
    told = {one["name"]: one for one in desk.tools.definitions("mcp")}["thing_do"]
    assert told["inputSchema"]["required"] == ["what"]
    assert told["inputSchema"]["properties"]["times"]["default"] == 1
    assert told["annotations"]["readOnlyHint"] is False
    assert told["annotations"]["destructiveHint"] is True


@pytest.mark.req("E1")
@pytest.mark.parametrize("word", ["false", "FALSE", "0", "no", "off", " Off "])
def test_a_variable_turns_one_off_before_it_is_imported(site, make_desk, monkeypatch, word):
    site("thing", name="thing", module="raise RuntimeError('imported')")
    monkeypatch.setenv("SKILL_THING_ENABLED", word)
    desk = make_desk(packaged=True)
    assert "thing_do" not in desk.tools.names
    assert states() == {"thing 1.0": "disabled"}
    assert startup_lines() == ["Thing skill off: `SKILL_THING_ENABLED` says so"]
    assert packaged_problems() == []


def test_a_setting_turns_all_of_them_off(site, tmp_path):
    site("thing", name="thing")
    off = chosen(tmp_path, packaged=False)
    assert packaged_tools(off) == []
    assert startup_lines(off) == []
    assert packaged_problems(off) == []


@pytest.mark.req("E1")
def test_start_up_lines_go_to_the_trace_once(site, tmp_path):
    site("thing", name="thing")
    site("wants", name="wants", needs=("no_such_module_at_all",))
    trace = Trace()
    for _ in range(3):
        packaged_tools(chosen(tmp_path), trace)
    lines = [event.values["line"] for event in trace.events if event.kind == "packaged"]
    assert lines == [
        "🔧 Thing skill enabled",
        "🔧 Thing skill off: it needs `no_such_module_at_all`; run `pip install it`",
    ]
    assert lines == startup_lines()
    assert [event.skills for event in trace.events] == [("thing",), ("wants",)]


@pytest.mark.req("E1")
@pytest.mark.parametrize(
    ("line", "module", "reason"),
    [
        ("bad = bad_pkg:skill", "raise RuntimeError('oh\\nno')", "RuntimeError: oh no"),
        ("bad = bad_pkg:skill", "raise SystemExit(1)", "SystemExit: 1"),
        ("bad = bad_pkg:skill", "import no_such_module_here", "ModuleNotFoundError"),
        ("bad = bad_pkg:skill", "", "AttributeError"),
        ("bad = bad_pkg:skill", "skill = 3", "not PackagedSkill"),
        ("bad = no_such_module_here:skill", "", "ModuleNotFoundError"),
        ("bad = ", "", "ValueError"),
        ("Bad-One = bad_pkg:skill", "", "is not a valid name"),
    ],
)
def test_a_broken_package_is_reported_and_others_work(site, make_desk, line, module, reason):
    site("bad", line, module=module)
    site("thing", name="thing")
    desk = make_desk(packaged=True)
    assert desk.tools.names[1:] == ("thing_do",)
    event = next(event for event in desk.trace.events if event.values["state"] == "broken")
    assert reason in event.values["line"]
    problem = packaged_problems()[0]
    assert problem.code == "package-broken"
    assert reason in problem.message
    assert "bad 1.0" in problem.message


def test_a_record_that_breaks_the_rules_of_names_is_broken(site):
    site("one", name="one", tool="other_do")
    site("two", "two = two_pkg:skill", module=MODULE.format(name="zwei", tool="two_do", needs="()"))
    site("six", "six = six_pkg:skill", module=MODULE.format(name="six", tool="six_Do", needs="()"))
    reasons = {one.name: one.reason for one in find_packaged()}
    assert reasons == {
        "one": "`other_do` is not a valid name",
        "two": "`zwei` is not a valid name",
        "six": "`six_Do` is not a valid name",
    }
    assert set(states().values()) == {"broken"}


@pytest.mark.req("E1")
def test_the_first_of_two_packages_with_one_name_is_used_and_reported(site, make_desk):
    site("zeta", name="thing")
    site("alpha", name="thing")
    assert states() == {"alpha 1.0": "enabled", "zeta 1.0": "shadowed"}
    assert find_packaged()[1].reason == "`thing` is the one of `alpha 1.0`"
    assert "`thing` is the one of `alpha 1.0`" in packaged_problems()[0].message
    assert make_desk(packaged=True).tools.names.count("thing_do") == 1


def test_a_tool_does_not_replace_the_tool_of_another_package(site, make_desk):
    site("alpha", name="thing", tool="thing_more_do")
    site("beta", name="thing_more", tool="thing_more_do")
    desk = make_desk(packaged=True)
    assert desk.tools.owners["thing_more_do"] == "thing"


ARGUMENTS = [
    ({}, "The arguments are wrong: `what` is missing — The parameters are `what`, `times`"),
    ({"what": " "}, "`what` is empty"),
    ({"what": "x" * 10}, "`what` has 10 characters; at most 9 are taken"),
    ({"what": "x", "times": 6}, "`times` must be at most 5"),
    ({"what": "x", "times": 1.5}, "`times` must be a whole number, not a number"),
    ({"what": "x", "loud": "yes"}, "`loud` must be true or false"),
    ({"what": "x", "share": float("nan")}, "`share` must be a number"),
    ({"what": "x", "share": -1}, "`share` must be at least 0"),
    ({"what": "x", "words": "a"}, "`words` must be a list"),
    ({"what": "x", "words": [1, 2, 3]}, "`words` has 3 entries; at most 2 are taken"),
    ({"what": "x", "extra": 1}, "there is no parameter `extra`"),
    ({"times": "x", "loud": 2}, "`times` must be a whole number, not a text; `loud` must"),
]  # fmt: skip


@pytest.mark.req("E7")
@pytest.mark.parametrize(("arguments", "said"), ARGUMENTS)
def test_every_wrong_argument_is_named_before_the_tool_runs(site, make_desk, arguments, said):
    site("thing", name="thing")
    reply = make_desk(packaged=True).tools.call("thing_do", arguments)
    assert reply.error.code == "INVALID_PARAM"
    assert said in reply.text
    assert reply.text == reply.error.message
    assert " — The parameters are `what`" in reply.text


@pytest.mark.parametrize(("what", "name"), [("crash", "ValueError"), ("exit", "SystemExit")])
def test_a_fault_of_a_package_is_an_answer_without_its_details(site, make_desk, what, name):
    site("thing", name="thing")
    reply = make_desk(packaged=True).tools.call("thing_do", {"what": what})
    assert reply.error.code == "INTERNAL_ERROR"
    assert reply.text == (
        f"The tool has a fault: `thing_do` ({name}) — Do not repeat the call; tell the user that "
        "it failed"
    )


@pytest.mark.req("E6")
def test_an_answer_is_never_longer_than_allowed(site, make_desk):
    site("thing", name="thing")
    reply = make_desk(packaged=True).tools.call("thing_do", {"what": "long"})
    assert reply.status == "partial"
    assert len(reply.text) == 8_000
    assert reply.text.endswith("[Cut to 8000 of 20000 characters: ask for less at once]")
    assert reply.data["truncated"] is True


def test_tools_speak_the_language_of_the_setting_and_not_of_the_terminal(
    site, make_desk, monkeypatch
):
    site("thing", name="thing")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    english = make_desk(packaged=True).tools
    english.definitions("anthropic")
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    chinese = make_desk(packaged=True).tools
    chinese.definitions("anthropic")
    assert english.call("thing_do", {"what": "known"}).text == (
        "Cannot do that: known — Do something else"
    )
    assert chinese.call("thing_do", {"what": "known"}).text == "无法执行: known — 请换一个"
    assert chinese.call("thing_do", {}).text.startswith("参数错误: 缺少 `what` — 可用参数：")
    assert chinese.definitions("anthropic")[-1]["description"] == "执行某事。"
    assert english.definitions("anthropic")[-1]["description"].startswith("Do a thing")


@pytest.mark.req("E1")
def test_excel_is_an_entry_point_of_satchel_itself(root):
    with open(f"{root}/pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["entry-points"][GROUP]
    assert declared == {"excel": "satchel.tools.excel:skill"}


@pytest.mark.req("E1")
def test_satchel_tools_lists_what_an_agent_gets(site, tmp_path, root):
    site("thing", name="thing")
    site("bad", "bad = bad_pkg:skill", module="raise RuntimeError('no')")

    def satchel(*words, **more):
        return subprocess.run(
            [sys.executable, "-m", "satchel", "list", "--tools", *words],
            cwd=tmp_path,
            env={
                "PYTHONPATH": f"{sys.path[0]}:{root}/src",
                "HOME": str(tmp_path),
                "LANG": "C.UTF-8",
                **more,
            },
            check=False,
            capture_output=True,
            encoding="utf-8",
        )

    done = satchel()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:4] == ["tool", "owner", "access", "description"]
    assert "thing_do" in done.stdout
    assert "ReadFile" in done.stdout
    assert "🔧 Thing skill enabled" in done.stderr
    assert "Bad skill off: RuntimeError: no" in done.stderr
    rows = json.loads(satchel("--json").stdout)
    tools = {row["name"]: row for row in rows["tools"]}
    assert tools["thing_do"]["owner"] == "thing"
    assert tools["thing_do"]["kind"] == "packaged"
    assert tools["thing_do"]["writes"] is True
    assert tools["ReadFile"]["kind"] == "builtin"
    states = {row["name"]: row["state"] for row in rows["packaged"]}
    assert states == {"thing": "enabled", "bad": "broken"}
    off = json.loads(satchel("--json", SKILL_THING_ENABLED="false").stdout)
    assert "thing_do" not in {row["name"] for row in off["tools"]}
    assert off["packaged"][1]["state"] == "disabled"
