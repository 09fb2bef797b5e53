"""The server for one client: the extension, resources, tools, prompts, notifications."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import time
from contextlib import contextmanager

import httpx
import pytest

from mcp_talk import Refusal, Talk, events, request, serving, write_skill
from satchel.testing import make_tool_skill

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def talk(url):
    return Talk(url)


def test_an_entry_is_a_complete_manifest(talk, project):
    skill = talk.ask("skills/get", uri="skill://pdf-forms/SKILL.md")["skill"]
    assert skill["frontmatter"] == {
        "name": "pdf-forms",
        "description": "What pdf-forms is for",
        "license": "MIT",
        "metadata": {"version": "2.1"},
        "allowed-tools": "Read Grep",
    }
    root = os.path.join(project, "skills", "pdf-forms")
    paths = {
        os.path.relpath(os.path.join(at, name), root)
        for at, _, names in os.walk(root)
        for name in names
    }
    assert len(skill["resources"]) == len(paths) == 5
    for row in skill["resources"]:
        [content] = talk.ask("resources/read", uri=row["uri"])["contents"]
        data = content["text"].encode() if "text" in content else base64.b64decode(content["blob"])
        assert len(data) == row["size"]
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == row["digest"]


def test_plain_tools_answer_with_the_envelope(talk):
    tools = {tool["name"]: tool for tool in talk.ask("tools/list")["tools"]}
    assert set(tools) == {"Skill", "SkillSearch", "ReadFile"}
    assert tools["Skill"]["annotations"]["readOnlyHint"] is True
    assert "pdf-forms" in tools["Skill"]["description"]
    reply = talk.ask("tools/call", name="Skill", arguments={"name": "changelog", "args": "1.2"})
    assert reply["isError"] is False
    assert reply["structuredContent"]["status"] == "success"
    assert reply["content"][0]["text"] == reply["structuredContent"]["text"]
    assert '<skill-loaded name="changelog"' in reply["content"][0]["text"]
    reply = talk.ask("tools/call", name="Skill", arguments={"name": "nobody"})
    assert reply["isError"] is True
    assert reply["structuredContent"]["error"]["code"] == "NOT_FOUND"
    reply = talk.ask("tools/call", name="Skill", arguments={"name": "deploy"})
    assert reply["structuredContent"]["error"]["code"] == "PERMISSION_DENIED"
    with pytest.raises(Refusal) as caught:
        talk.ask("tools/call", name="excel_read", arguments={})
    assert caught.value.code == -32602


def test_over_http_only_files_of_skills_are_read(talk, project):
    reply = talk.ask(
        "tools/call", name="ReadFile", arguments={"path": "skill://pdf-forms/references/forms.md"}
    )
    assert "# Forms" in reply["content"][0]["text"]
    said = set()
    for path in (
        "notes/secret.md",
        "notes/nothing.md",
        "skills/pdf-forms/../../notes/secret.md",
        "skills/pdf-forms/references/forms.md",
        os.path.join(project, "skills/pdf-forms/references/forms.md"),
        os.path.join(project, "nowhere.md"),
        "/etc/passwd",
    ):
        reply = talk.ask("tools/call", name="ReadFile", arguments={"path": path})
        assert reply["structuredContent"]["error"]["code"] == "ACCESS_DENIED", path
        said.add(reply["content"][0]["text"])
    assert len(said) == 1  # the error does not reveal which paths exist
    assert "project" not in said.pop()


def test_people_get_a_prompt_for_each_skill(talk):
    prompts = {prompt["name"]: prompt for prompt in talk.ask("prompts/list")["prompts"]}
    assert {"pdf-forms", "changelog", "release", "deploy"} <= set(prompts)
    assert [one["name"] for one in prompts["release"]["arguments"]] == ["version", "channel"]
    assert prompts["changelog"]["arguments"][0]["description"] == "[version]"
    got = talk.ask("prompts/get", name="deploy")  # a person may
    assert '<skill-loaded name="deploy"' in got["messages"][0]["content"]["text"]
    got = talk.ask("prompts/get", name="changelog", arguments={"args": "2.0"})
    assert "2.0" in got["messages"][0]["content"]["text"]
    with pytest.raises(Refusal) as caught:
        talk.ask("prompts/get", name="nobody")
    assert caught.value.code == -32602


def test_pages_hold_while_the_library_changes(tmp_path):
    folder = str(tmp_path)
    for number in range(0, 500, 2):
        write_skill(folder, f"skill-{number:03}")
    with serving(folder) as url:
        talk = Talk(url)
        first = talk.ask("skills/list")
        assert len(first["skills"]) == 100
        write_skill(folder, "skill-001")  # before the place we are at
        write_skill(folder, "skill-201")  # behind it
        shutil.rmtree(os.path.join(folder, "skills", "skill-100"))
        shutil.rmtree(os.path.join(folder, "skills", "skill-198"))  # the last of the first page
        time.sleep(1.2)
        rest, cursor = [], first["nextCursor"]
        while cursor:
            page = talk.ask("skills/list", cursor=cursor)
            rest += [one["frontmatter"]["name"] for one in page["skills"]]
            cursor = page.get("nextCursor")
        names = [one["frontmatter"]["name"] for one in first["skills"]] + rest
        assert len(names) == len(set(names))
        assert "skill-201" in names
        assert "skill-498" in names


@pytest.mark.req("B9")
def test_all_clients_hear_of_changes_within_a_second(tmp_path):
    folder = str(tmp_path)
    root = write_skill(folder, "one", **{"references/a.md": "first\n"})
    uri = "skill://one/references/a.md"
    with serving(folder) as url:
        talk = Talk(url)
        before = talk.ask("skills/get", uri="skill://one/SKILL.md")["skill"]
        heard = events(
            url,
            toolsListChanged=True,
            promptsListChanged=True,
            resourcesListChanged=True,
            resourceSubscriptions=["skill://one/SKILL.md"],
        )
        assert heard.quiet(1)
        began = time.monotonic()
        write_skill(folder, "two")
        got = {}
        while len(got) < 3:
            at, message = heard.timed()
            got[message["method"]] = at - began
        assert set(got) == {
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
        }
        assert max(got.values()) < 1, got
        assert talk.ask("skills/get", uri="skill://two/SKILL.md")
        assert "What two is for" in talk.ask("tools/list")["tools"][1]["description"]
        # A file beside SKILL.md: no list of names changes, the manifest does.
        time.sleep(0.2)
        began = time.monotonic()
        with open(os.path.join(root, "references", "a.md"), "w", encoding="utf-8") as file:
            file.write("second, and longer\n")
        kinds = set()
        while len(kinds) < 2:
            at, message = heard.timed()
            kinds.add(message["method"])
            assert at - began < 1
        assert kinds == {"notifications/resources/list_changed", "notifications/resources/updated"}
        after = talk.ask("skills/get", uri="skill://one/SKILL.md")["skill"]
        assert after != before
        [row] = [row for row in after["resources"] if row["uri"] == uri]
        text = talk.ask("resources/read", uri=uri)["contents"][0]["text"]
        assert row["digest"] == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        heard.close()


def test_an_invalid_request_has_a_reason(tmp_path):
    folder = str(tmp_path)
    write_skill(folder, "good")
    write_skill(folder, "many", **{f"references/{at}.md": "x" for at in range(512)})
    write_skill(folder, "large", "", **{"assets/x.bin": b"\0" * (16 * 1024 * 1024)})
    write_skill(folder, "typed", "metadata:\n  version: 2\n")
    write_skill(folder, "Not A Name")
    root = write_skill(folder, "linked")
    os.symlink("/etc/hostname", os.path.join(root, "hostname"))
    from satchel import Satchel
    from satchel.integrations.mcp.skill_resources import ManifestCache, SkillResources

    satchel = Satchel.for_project(folder, trust="all")
    manifests = ManifestCache(satchel.library)
    served = SkillResources(satchel.library, manifests)
    names = {path for path, _ in served.manifests(served.names)}
    assert "good" in names
    told = [event for event in satchel.trace.events if event.values.get("what") == "mcp"]
    why = {event.skills[0]: event.values["reason"] for event in told}
    assert names.isdisjoint(why)
    assert "512 files" in why["many"]
    assert "16 MiB" in why["large"]
    assert "`metadata`" in why["typed"]
    assert "lowercase" in why["Not A Name"]
    assert "leads out" in why["linked"]


# --- programs of tool skills ----------------------------------------------------------------

SLOW = """\
import sys, time
sys.stdin.readline()
for _ in range(600):
    with open({path!r}, "a") as file:
        file.write(".")
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workshop")
    place = folder / ".agents" / "skills"
    more = "parameters: [{name: word, type: string, required: true}]\n"
    make_tool_skill(place, "echo-back", tool="echo_back", more=more)
    make_tool_skill(place, "fails", "raise SystemExit(3)\n", tool="fails_run")
    return str(folder)


@pytest.fixture(scope="module")
def door(workshop):
    with serving(workshop, SATCHEL_SANDBOX="off") as url:
        yield url


def test_a_tool_skill_is_a_tool(door):
    talk = Talk(door)
    tools = {tool["name"]: tool for tool in talk.ask("tools/list")["tools"]}
    assert {"echo_back", "fails_run"} <= set(tools)
    assert tools["echo_back"]["inputSchema"]["required"] == ["word"]
    assert tools["echo_back"]["annotations"]["readOnlyHint"] is False
    reply = talk.ask("tools/call", name="echo_back", arguments={"word": "hello"})
    assert reply["isError"] is False
    assert "hello" in reply["content"][0]["text"]
    reply = talk.ask("tools/call", name="echo_back", arguments={})
    assert reply["structuredContent"]["error"]["code"] == "INVALID_PARAM"
    reply = talk.ask("tools/call", name="fails_run", arguments={})
    assert reply["isError"] is True
    assert reply["structuredContent"]["error"]["code"] == "EXECUTION_ERROR"


@contextmanager
def leaving(url, method, params):
    """A client that asks, and goes without an answer."""
    asked = httpx.Request("POST", url, **request(method, params))
    head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
    with socket.create_connection((asked.url.host, asked.url.port)) as line:
        line.sendall(f"POST {asked.url.path} HTTP/1.1\r\n{head}\r\n".encode() + asked.read())
        yield


def test_a_client_that_goes_takes_its_call_back(tmp_path):
    marks = tmp_path / "marks"
    program = SLOW.format(path=str(marks))
    make_tool_skill(tmp_path / ".agents" / "skills", "slow", program, tool="slow_run")
    with serving(str(tmp_path), SATCHEL_SANDBOX="off") as url:
        with leaving(url, "tools/call", {"name": "slow_run", "arguments": {}}):
            end = time.monotonic() + 30
            while not marks.exists():
                assert time.monotonic() < end, "the program was not started"
                time.sleep(0.05)
        time.sleep(0.5)  # it writes ten times a second unless it is stopped
        before = marks.read_text()
        time.sleep(0.5)
        assert before
        assert marks.read_text() == before
        assert Talk(url).ask("tools/list")
