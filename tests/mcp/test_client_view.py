"""Views of clients: redaction, denied tools, readable files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mcp_talk import write_skill
from satchel.integrations.mcp.client_view import ClientView
from satchel.satchel import Satchel
from satchel.testing import make_tool_skill
from satchel.tools.base import CancelToken
from talking import plain

pytestmark = pytest.mark.timeout(60)

_ECHO = """\
import json, os, sys
request = json.loads(sys.stdin.readline())
print("for people:", os.getcwd(), __file__, file=sys.stderr)
print(json.dumps({"output": f"I lie in {__file__}", "error": ""}))
"""
_SAYS = """\
import json, sys
sys.stdin.readline()
print(json.dumps({"output": "", "error": f"nothing at {__file__}"}))
"""


class Shop:
    """A project, and one client's view of it."""

    def __init__(self, path, monkeypatch) -> None:
        self.project = str(path / "project")
        self.home = str(path / "home")
        os.makedirs(self.project)
        os.makedirs(self.home)
        monkeypatch.setenv("HOME", self.home)
        monkeypatch.setenv("SATCHEL_SANDBOX", "off")
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        self._satchel: Satchel | None = None

    @property
    def satchel(self) -> Satchel:
        if self._satchel is None:
            self._satchel = Satchel.for_project(
                self.project, trust="all", locations=["skills"], builtin=False
            )
        return self._satchel

    def view(self, *, remote=True):
        return ClientView(self.satchel, remote=remote)

    def close(self) -> None:
        if self._satchel is not None:
            self._satchel.close()


@pytest.fixture
def shop(tmp_path, monkeypatch):
    made = Shop(tmp_path, monkeypatch)
    yield made
    made.close()


def call(view, tool, talk=None, **given):
    return view.call(tool, given, CancelToken(), talk)


def read(view, path, talk=None):
    return call(view, "ReadFile", talk, path=path)


# --- what leaves this machine ---------------------------------------------------------------


def test_no_reply_over_http_has_a_path_of_the_servers_machine(shop):
    place = os.path.join(shop.project, "skills")
    words = "parameters: [{name: word, type: string, required: true}]\n"
    files = "files: {access: read, read: [file]}\n"
    named = "parameters: [{name: file, type: string, required: true}]\n"
    make_tool_skill(place, "echo-back", _ECHO, tool="echo_back", more=words)
    make_tool_skill(place, "says", _SAYS, tool="says_no")
    make_tool_skill(place, "crashes", "raise ValueError(__file__)\n", tool="crashes_run")
    make_tool_skill(place, "mumbles", "print(__file__)\n", tool="mumbles_run")
    make_tool_skill(place, "wants", _ECHO, tool="wants_file", more=named + files)
    write_skill(shop.project, "pdf", **{"a.md": "text\n"})
    write_skill(shop.project, "broken")
    with open(os.path.join(place, "broken", "SKILL.md"), "w") as file:
        file.write("---\nname: [\n---\n")
    view = shop.view()
    replies = [
        call(view, "Skill", name="pdf"),
        call(view, "Skill", name="broken"),
        call(view, "Skill", name="nobody"),
        call(view, "Skill"),
        read(view, "skill://pdf/a.md"),
        read(view, "skill://pdf"),
        read(view, "skill://pdf/no.md"),
        read(view, "skill://nobody/a.md"),
        read(view, "a.md"),
        call(view, "SkillSearch", query="pdf"),
        call(view, "echo_back", word="x"),
        call(view, "echo_back"),
        call(view, "says_no"),
        call(view, "crashes_run"),
        call(view, "mumbles_run"),
        call(view, "wants_file", file="nowhere.txt"),
        view.prompt("pdf", {}),
        view.prompt("nobody", {}),
    ]
    assert {reply.status for reply in replies[10:15]} == {"success", "error"}
    assert replies[10].error is None
    assert not any("There is no tool" in reply.text for reply in replies)
    for reply in replies:
        told = json.dumps(reply.to_dict(), ensure_ascii=False)
        for secret in (shop.project, shop.home, shop.satchel.settings.paths.cache):
            assert secret not in told, told
        assert not {"stderr", "raw", "tier", "way", "limits", "denied"} & set(reply.data), told
    inside = call(shop.view(remote=False), "echo_back", word="x")
    assert "for people:" in inside.data["stderr"]  # local clients get all of it


def test_a_folder_beside_a_skill_is_not_rewritten_to_its_address(shop):
    root = write_skill(shop.project, "pdf")
    write_skill(shop.project, "pdf-forms", **{"b.md": "text\n"})
    with open(os.path.join(root, "SKILL.md"), "a") as file:
        file.write("See ${SKILL_DIR}-forms/b.md and ${SKILL_DIR}.\n")
    text = call(shop.view(), "Skill", name="pdf").text
    assert "See skill://pdf/../pdf-forms/b.md and skill://pdf." in text
    assert shop.project not in text


def test_an_address_of_a_skill_at_the_root_leads_to_no_file_of_the_project(shop, tmp_path):
    for path, text in (
        ("SKILL.md", "---\nname: top\ndescription: Tops. Use always.\n---\nBody\n"),
        ("references/a.md", "ok\n"),
        ("config/secrets.json", "{}\n"),
    ):
        file = Path(shop.project) / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    satchel = Satchel.for_project(shop.project, trust="all", builtin=False)
    view = ClientView(satchel, remote=True)
    assert "ok" in call(view, "ReadFile", path="skill://top/references/a.md").text
    for path in ("skill://top/config/secrets.json", "skill://top/config", "config/secrets.json"):
        assert call(view, "ReadFile", path=path).error is not None, path
    satchel.close()


def test_packaged_tools_are_served_like_in_python_except_to_remote_clients(shop):
    satchel = Satchel.for_project(shop.project, trust="all", builtin=False)
    assert "excel_read" in satchel.tools().names
    assert "excel_read" in ClientView(satchel).toolset.names
    assert "excel_read" not in ClientView(satchel, remote=True).toolset.names
    satchel.close()


def test_skills_for_people_are_not_listed_to_remote_clients(shop):
    root = write_skill(shop.project, "outer", **{"a.md": "x\n"})
    write_skill(shop.project, "outer/inner", "disable-model-invocation: true\n", **{"b.md": "y\n"})
    os.symlink("inner", os.path.join(root, "link"))
    view = shop.view()
    assert "inner" not in call(view, "ReadFile", path="skill://outer").text
    for path in ("inner", "link", "link/b.md"):
        reply = call(view, "ReadFile", path=f"skill://outer/{path}")
        assert (reply.error.code, "b.md" in reply.text.replace(path, "")) == ("NOT_FOUND", False)


# --- what is forbidden ----------------------------------------------------------------------


@pytest.mark.parametrize("remote", [True, False])
def test_what_a_loaded_skill_forbids_is_refused_in_its_session(shop, remote):
    write_skill(shop.project, "lock", "disallowed-tools: echo_back ReadFile\n", **{"a.md": "x\n"})
    make_tool_skill(os.path.join(shop.project, "skills"), "echo-back", _ECHO, tool="echo_back")
    view = shop.view(remote=remote)
    talk, other = view.new_session(), view.new_session()
    assert call(view, "echo_back", talk).error is None  # no approval is needed here
    first = call(view, "Skill", talk, name="lock")
    again = call(view, "Skill", talk, name="lock")
    assert "# lock" in first.text
    assert "# lock" in again.text  # the text may have been trimmed
    for reply in (call(view, "echo_back", talk), read(view, "skill://lock/a.md", talk)):
        assert reply.error.code == "PERMISSION_DENIED"
        assert "The loaded skill `lock` forbids" in reply.text
    assert call(view, "echo_back", other).error is None


@pytest.mark.parametrize("remote", [True, False])
def test_without_a_session_a_skill_says_what_it_forbids(shop, remote):
    write_skill(shop.project, "lock", "disallowed-tools: echo_back Bash(rm *)\n")
    write_skill(shop.project, "plain")
    view = shop.view(remote=remote)
    for reply in (call(view, "Skill", name="lock"), view.prompt("lock", {})):
        assert "</skill-loaded>\nWhile you follow this skill, do not call: `echo_back`" in plain(
            reply.text
        )
        assert reply.data["disallowed_tools"] == ["echo_back", "Bash(rm *)"]
    assert "do not call" not in call(view, "Skill", name="plain").text


# --- addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [True, False])
def test_a_linked_skill_is_read_by_its_address(shop, remote, tmp_path):
    store = tmp_path / "store" / "guide"
    shutil.copytree(write_skill(shop.project, "guide", **{"x.md": "hi\n"}), store)
    shutil.rmtree(os.path.join(shop.project, "skills", "guide"))
    os.symlink(store, os.path.join(shop.project, "skills", "guide"))
    view = shop.view(remote=remote)
    assert read(view, "skill://guide/x.md").data["content"] == "hi\n"
    assert read(view, "skill://guide/x.md").data["path"] == "skill://guide/x.md"
    assert view.resources.read("skill://guide/x.md")[1] == b"hi\n"


def test_rules_about_paths_hold_for_addresses(shop):
    write_skill(shop.project, "lock", "disallowed-tools: ReadFile(skills/pdf/*) Skill(deploy)\n")
    write_skill(shop.project, "pdf", **{"a.md": "text\n"})
    write_skill(shop.project, "deploy")
    view = shop.view(remote=False)
    talk = view.new_session()
    call(view, "Skill", talk, name="lock")
    for path in ("skill://pdf/a.md", "skill://deploy/SKILL.md", "skills/deploy/SKILL.md"):
        assert read(view, path, talk).error.code == "PERMISSION_DENIED", path
        assert read(view, path).error is None


def digest_in(text):
    """The digest of the skill in the text of a load."""
    return text.partition('digest="')[2].partition('"')[0]


def test_scripts_run_only_when_asked_for_and_their_changes_are_not_applied(shop, monkeypatch):
    monkeypatch.delenv("SATCHEL_SANDBOX")
    code = "open('new.txt', 'w').write('x')\nprint('ran')\n"
    write_skill(shop.project, "demo", **{"scripts/x.py": code})
    given = {"skill": "demo", "script": "scripts/x.py"}
    assert "RunScript" not in {tool["name"] for tool in shop.view(remote=False).definitions()}
    assert call(shop.view(remote=False), "RunScript", **given).error.code == "NOT_FOUND"
    assert "RunScript" not in plain(call(shop.view(remote=False), "Skill", name="demo").text)
    view = ClientView(shop.satchel, scripts=True)
    assert "RunScript" in {tool["name"] for tool in view.definitions()}
    for talk in (None, view.new_session()):
        assert call(view, "RunScript", talk, **given).error.code == "PERMISSION_DENIED"
        text = call(view, "Skill", talk, name="demo").text
        digest = {} if talk is not None else {"digest": digest_in(text)}
        reply = call(view, "RunScript", talk, **given, **digest)
        assert (reply.data["output"], reply.data["changes"]) == ("ran\n", [])
        assert "`new.txt` was not changed" in reply.text
    assert not Path(shop.project, "new.txt").exists()


def test_without_a_session_a_script_needs_the_digest_that_loading_returned(shop, monkeypatch):
    monkeypatch.delenv("SATCHEL_SANDBOX")
    write_skill(shop.project, "demo", **{"scripts/x.py": "print('ran')\n"})
    view = ClientView(shop.satchel, scripts=True)

    def schema(**options):
        (tool,) = (tool for tool in view.definitions(**options) if tool["name"] == "RunScript")
        return tool["inputSchema"]

    assert "digest" in schema(stateless=True)["required"]
    assert "digest" not in schema()["properties"]
    given = {"skill": "demo", "script": "scripts/x.py"}
    digest = digest_in(call(view, "Skill", name="demo").text)
    for wrong in ({}, {"digest": ""}, {"digest": "0" * 12}, {"digest": None}):
        reply = call(view, "RunScript", **given, **wrong)
        assert (reply.error.code, "output" in reply.data) == ("PERMISSION_DENIED", False)
        assert "give its `digest`" in reply.error.hint
    assert call(view, "RunScript", **given, digest=digest).data["output"] == "ran\n"
    with Path(shop.project, "skills/demo/SKILL.md").open("a") as file:
        file.write("Another rule.\n")
    reply = call(view, "RunScript", **given, digest=digest)
    assert reply.error.code == "PERMISSION_DENIED"
