"""Session: prompt, calls, permissions, forks, dump and restore."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from satchel import Satchel, Session
from satchel.errors import InvalidInput
from satchel.testing import make_skill, make_tool_skill


def kinds(session, kind):
    return [event for event in session.trace.events if event.kind == kind]


# --- what the model gets ------------------------------------------------------------------


@pytest.mark.req("B9")
def test_the_next_turn_names_added_removed_and_changed_skills(talks):
    session = talks.begin()
    assert "skills-changed" not in session.tail("hello")
    talks.add("brand-new", "Makes <b>coffee</b>.")
    talks.add("write-docs", "Writes better documentation.")
    os.remove(talks.place / "code-review/SKILL.md")
    tail = session.tail("hello")
    assert '<skill name="brand-new">Makes &lt;b&gt;coffee&lt;/b&gt;.</skill>' in tail
    assert "Writes better documentation." in tail
    assert "do not call them: code-review" in tail
    assert "skills-changed" not in session.tail("hello")  # once
    told = kinds(session, "told")[-1].values
    assert (told["added"], told["removed"]) == (["brand-new"], ["code-review"])


# --- loaded once -----------------------------------------------------------------------------


def test_a_second_load_only_points_at_the_first(talks):
    session = talks.begin()
    first = session.call("Skill", {"name": "code-review"})
    assert "Look at each line." in first.text
    held = session.loaded["code-review"]
    assert held.digest
    assert held.revision == first.data["revision"]
    again = session.call("Skill", {"name": "code-review"})
    assert again.status == "success"
    assert again.data["already_loaded"]
    assert "Look at each line." not in again.text
    assert held.revision in again.text
    assert len(kinds(session, "repeated")) == 1


@pytest.mark.req("B9")
def test_a_skill_that_changed_is_given_again_and_says_so(talks):
    session = talks.begin()
    session.tail("hello")
    session.call("Skill", {"name": "code-review"})
    talks.add("code-review", "Reviews code for faults.", body="Look twice.\n")
    assert "call Skill again" in session.tail("go on")
    again = session.call("Skill", {"name": "code-review"})
    assert "Look twice." in again.text
    assert again.text.startswith("The skill changed since it was loaded before")
    assert session.call("Skill", {"name": "code-review"}).data["already_loaded"]


def test_a_later_grant_counts_once_the_skill_is_loaded_again(talks):
    session = talks.begin(ask=("Bash",))
    session.call("Skill", {"name": "code-review"})
    talks.add("code-review", "Reviews code for faults.", body="Look at each line.\n",
              allowed_tools="Bash")  # fmt: skip
    assert "call Skill again" in session.change_notice()
    assert session.refusal_for("Bash", {"command": "rm x"}) is not None
    again = session.call("Skill", {"name": "code-review"})
    assert "already_loaded" not in again.data
    assert again.data["changed_since_loaded"]
    assert session.refusal_for("Bash", {"command": "rm x"}) is None


def test_each_text_with_its_arguments_is_sent_once(talks):
    talks.add("write-docs", "Writes documentation.", body="Write $ARGUMENTS plainly.\n")
    session = talks.begin()

    def pointed_at(args):
        reply = session.call("Skill", {"name": "write-docs", "args": args})
        return "already_loaded" in reply.data

    assert [pointed_at(args) for args in ("a", "b", "a")] == [False, False, True]
    session.forget("write-docs")
    os.utime(talks.place / "write-docs" / "SKILL.md")
    assert [pointed_at(args) for args in ("a", "a")] == [False, True]


def test_a_session_without_skill_tools_has_no_catalogue(talks):
    child = talks.begin().child(tools=["SkillSearch"])
    assert child.prompt == ""
    talks.add("brand-new", "Brand new.")
    assert child.change_notice() == ""
    assert child.tail("please use the brand-new skill") == ""
    assert child.shortlist("review my code").reason == "`Skill` cannot be called here"


# --- allowed and forbidden -------------------------------------------------------------------


def test_a_tool_that_a_loaded_skill_forbids_is_refused_until_the_skill_is_dropped(talks):
    talks.add("careful", disallowed_tools="ReadFile")
    session = talks.begin()
    (talks.project / "a.md").write_text("text")
    assert session.call("ReadFile", {"path": "a.md"}).status == "success"
    session.call("Skill", {"name": "careful"})
    reply = session.call("ReadFile", {"path": "a.md"})
    assert reply.error.code == "PERMISSION_DENIED"
    assert "`careful` forbids `ReadFile`" in reply.text
    session.forget("careful")
    assert session.call("ReadFile", {"path": "a.md"}).error is not None
    session.drop("careful")
    assert session.call("ReadFile", {"path": "a.md"}).status == "success"


NETWORK = "network: true\n"


def test_a_person_is_asked_with_reasons(talks):
    make_tool_skill(talks.place, "weather", more=NETWORK)
    asked = []
    session = talks.begin(approve=lambda ask: asked.append(ask) or False)
    reply = session.call("weather_run", {})
    assert "did not agree" in reply.text
    assert (asked[0].tool, asked[0].skill) == ("weather_run", "weather")
    assert asked[0].reasons == ("use the network",)
    assert asked[0].question == (
        "Call the tool `weather_run` of the skill `weather`? It may use the network."
    )


def test_an_old_name_of_a_method_warns(talks):
    session = talks.begin()
    with pytest.warns(DeprecationWarning, match="`Session.permit` is called `refusal_for` now"):
        assert session.permit("deploy", {}) is None
    assert not hasattr(session, "allow")


def test_a_loaded_skill_approves_in_advance_while_its_text_is_there(talks):
    make_tool_skill(talks.place, "weather", more=NETWORK)
    talks.add("forecast", allowed_tools="weather_*")
    session = talks.begin()
    assert session.refusal_for("weather_run", {}) is not None
    session.call("Skill", {"name": "forecast"})
    assert session.refusal_for("weather_run", {}) is None
    assert kinds(session, "approved")[-1].values["pattern"] == "weather_*"
    session.forget("forecast")
    assert session.refusal_for("weather_run", {}) is not None


def test_a_skill_that_may_not_be_loaded_is_not_read_as_a_file(talks):
    lock = {"disallowed-tools": "Skill(deploy)"}
    make_skill(talks.place, "lock", "Locks.", **lock)
    path = make_skill(talks.place, "deploy", "Deploys.", body="Deploy it.\n")
    os.symlink(path, talks.project / "notes.md")
    session = talks.begin()
    assert session.call("ReadFile", {"path": ".agents/skills/deploy/SKILL.md"}).error is None
    assert session.call("Skill", {"name": "lock"}).error is None
    for key, wanted in (
        ("path", ".agents/skills/deploy/SKILL.md"),
        ("relativePath", ".agents/skills/../skills/deploy/SKILL.md"),
        ("path", path),
        ("path", "notes.md"),
    ):
        for talk in (session, session.child(), session.child(tools=["ReadFile"])):
            reply = talk.call("ReadFile", {key: wanted})
            assert reply.error.code == "PERMISSION_DENIED", wanted
            assert "`disallowed-tools: Skill(deploy)`" in reply.text
    assert session.call("ReadFile", {"path": ".agents/skills/lock/SKILL.md"}).error is None


def test_an_approve_that_is_no_answer_is_refused(talks):
    with pytest.raises(InvalidInput, match="`approve` cannot be 'no'"):
        talks.begin(approve="no")


def test_an_approval_that_fails_is_no_approval_and_is_logged(talks, caplog):
    def broken(ask):
        raise ValueError("no terminal")

    session = talks.begin(approve=broken, ask=("ReadFile",))
    reply = session.call("ReadFile", {"path": "x"})
    assert reply.error.code == "PERMISSION_DENIED"
    assert "the approval failed" in reply.text
    assert "no terminal" in caplog.text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (("Skill", {"name": "code-revue"}), "最接近的"),
        (("ReadFile", {"path": "x"}), "用户没有同意"),
    ],
)
def test_refusals_for_the_model_are_wholly_chinese(talks, monkeypatch, call, text):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    reply = talks.begin(approve=lambda ask: False, ask=("ReadFile",)).call(*call)
    assert text in reply.text
    for english in ("Nearest", "Available", "The user", " go on"):
        assert english not in reply.text


def test_an_asynchronous_person_answers_sync_and_async_hosts(talks):
    (talks.project / "a.md").write_text("text")

    async def approve(ask):
        await asyncio.sleep(0)
        return True

    session = talks.begin(approve=approve, ask=("ReadFile",))
    assert session.call("ReadFile", {"path": "a.md"}).status == "success"

    async def main():
        inside = session.call("ReadFile", {"path": "a.md"})
        return inside, await session.acall("ReadFile", {"path": "a.md"})

    inside, awaited = asyncio.run(main())
    assert "use `acall`" in inside.text
    assert awaited.status == "success"


# --- sub-agents ------------------------------------------------------------------------------


@pytest.mark.req("D3")
def test_a_child_has_its_own_part_and_never_more(talks):
    session = talks.begin()
    child = session.child(include=("code-*",))
    assert "code-review" in child.prompt
    assert "Writes documentation" not in child.prompt
    assert child.call("Skill", {"name": "write-docs"}).error is not None
    assert child.child(include=("*",)).call("Skill", {"name": "write-docs"}).error is not None
    assert child.call("Skill", {"name": "code-review"}).status == "success"
    assert "code-review" not in session.loaded
    talks.add("code-style", "Style of code.")
    talks.add("other", "Something else.")
    news = child.change_notice()
    assert "code-style" in news
    assert "other" not in news


@pytest.mark.parametrize(
    "name", ["deploy", "/deploy", "$deploy", " deploy ", ".agents/skills/deploy"]
)
def test_a_skill_is_judged_by_its_own_name_however_it_is_called(talks, name):
    talks.add("deploy", "Deploys.")
    talks.add("careful", disallowed_tools="Skill(deploy)")
    session = talks.begin()
    for given in ({"name": name}, {"skill": name}, f'{{"name": "{name}"}}'):
        assert session.refusal_for("Skill", given) is None
    assert session.call("Skill", {"name": name}).data["name"] == "deploy"
    session.drop("deploy")
    session.call("Skill", {"name": "careful"})
    assert session.call("Skill", {"name": name}).error.code == "PERMISSION_DENIED"
    assert session.call("Skill", {"skill": name}).error.code == "PERMISSION_DENIED"
    assert session.refusal_for("Skill", {"name": name}) is not None


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "x/../a.txt", "{project}/a.txt"])
@pytest.mark.parametrize("parameter", ["path", "relativePath"])
def test_a_forbidden_file_stays_forbidden_however_it_is_called(talks, path, parameter):
    (talks.project / "a.txt").write_text("secret")
    talks.add("careful", disallowed_tools="ReadFile(a.txt)")
    session = talks.begin()
    session.call("Skill", {"name": "careful"})
    reply = session.call("ReadFile", {parameter: path.format(project=talks.project)})
    assert reply.error.code == "PERMISSION_DENIED"


@pytest.mark.parametrize("greedy", ["*", "[!~]*", "*_*", ["[A-Za-z]*"], "we*"])
def test_a_skill_cannot_approve_nearly_everything(talks, greedy):
    make_tool_skill(talks.place, "weather", more=NETWORK)
    talks.add("greedy", allowed_tools=greedy)
    session = talks.begin(ask=("Bash",))
    session.call("Skill", {"name": "greedy"})
    assert session.loaded["greedy"].allowed == ()
    assert session.refusal_for("weather_run", {}) is not None
    assert session.refusal_for("Bash", {"command": "rm -rf /"}) is not None


# --- what may be planned with ---------------------------------------------------------------


def test_only_usable_skills_and_tools_are_available(talks):
    place = talks.place
    make_tool_skill(place, "weather")
    make_tool_skill(place, "network", more=NETWORK)
    make_skill(place, "deploy", "Deploys.", disable_model_invocation=True)
    reach = talks.begin(ask=("ReadFile",)).available_tools()
    assert reach.skills == {"code-review", "write-docs"}
    assert list(reach.tools) == ["weather_run"]
    assert reach.tools["weather_run"]["inputSchema"]["type"] == "object"
    asked = talks.begin(approve=lambda ask: False, ask=("ReadFile",)).available_tools()
    assert list(asked.tools) == ["ReadFile", "network_run", "weather_run"]


# --- one way to call tools ---------------------------------------------------------------------


def test_the_tools_of_a_satchel_are_those_of_a_new_session(talks):
    make_tool_skill(talks.place, "report", more="network: true\n")
    talks.add("strict", disallowed_tools="SkillSearch")
    talks.add("private", disable_model_invocation=True)
    satchel = talks.satchel()
    tools = satchel.tools()
    assert isinstance(tools, Session)
    assert "nobody can be asked" in tools.call("report_run", {}).text
    tools.call("Skill", {"name": "strict"})
    assert "forbids `SkillSearch`" in tools.call("SkillSearch", {"query": "x"}).text
    assert satchel.tools().call("SkillSearch", {"query": "x"}).error is None
    tools.call("Skill", {"name": "private"}, as_person=True)
    file = {"path": ".agents/skills/private/SKILL.md"}
    assert tools.call("ReadFile", file).error is None
    assert satchel.tools().call("ReadFile", file).error.code == "PERMISSION_DENIED"


def test_the_first_call_of_a_session_finds_a_tool_that_was_added_before_it(talks):
    satchel = talks.satchel()
    assert satchel.session().call("Skill", {"name": "code-review"}).error is None
    make_tool_skill(talks.place, "report", more="network: true\n")
    assert satchel.session().call("report_run", {}).error.code == "PERMISSION_DENIED"


def test_only_files_of_skills_are_read_where_the_setting_says_so(talks):
    (talks.project / "own.md").write_text("text")
    session = talks.begin(reading={"scope": "skills"})
    assert session.call("ReadFile", {"path": "own.md"}).error.code == "ACCESS_DENIED"
    assert session.call("ReadFile", {"path": "."}).error.code == "ACCESS_DENIED"
    mine = {"path": ".agents/skills/code-review/SKILL.md"}
    assert session.call("ReadFile", mine).error is None
    child = session.child(include=["write-*"])
    assert child.call("ReadFile", mine).error.code == "ACCESS_DENIED"


def test_limits_that_look_like_a_mistake_are_logged(talks, tmp_path, caplog):
    satchel = talks.satchel()
    session = satchel.session(include="code-review", tools=["Skil", "Bash(git:*)"])
    assert "write-docs" not in session.prompt
    assert caplog.messages == [
        "No tool matches these patterns of `tools`: `Skil` (did you mean `Skill`?)"
    ]
    empty = Satchel.for_project(tmp_path, builtin=False, packaged=False)
    assert empty.session().prompt == ""
    assert "There are no skills in" in caplog.messages[-1]
    assert len(satchel.session(budget=400).prompt) < len(satchel.session().prompt)
    with pytest.raises(InvalidInput, match="no option `includes`"):
        satchel.session(includes=["a"])


# --- as data -----------------------------------------------------------------------------------


def test_a_restored_conversation_goes_on_like_the_original(talks):
    talks.add("careful", allowed_tools="Bash(git:*)", disallowed_tools="SkillSearch")
    satchel = talks.satchel()
    session = satchel.session(ask=["Bash"], exclude=["write-*"])
    session.with_tail("hello")
    session.call("Skill", {"name": "careful"})
    session.call("Skill", {"name": "code-review"})
    state = json.loads(json.dumps(session.dump()))
    for one in (session, talks.satchel().restore(state)):
        assert one.prompt == session.prompt
        assert one.change_notice() == ""
        assert one.call("Skill", {"name": "careful"}).data["already_loaded"]
        assert one.refusal_for("Bash", {"command": "git log"}) is None
        assert one.refusal_for("Bash", {"command": "rm x"}) is not None
        assert one.call("SkillSearch", {"query": "x"}).error.code == "PERMISSION_DENIED"
        assert one.call("Skill", {"name": "write-docs"}).error is not None
        assert one.dump() == state
    talks.add("brand-new", "Brand new.")
    restored = talks.satchel().restore(state)
    assert restored.prompt == session.prompt  # what changed is a note, and the cache holds
    assert "Brand new." in restored.tail("go on")
    assert "Brand new." not in talks.satchel().restore(restored.dump()).tail("go on")


def test_a_skill_that_changed_since_the_dump_is_loaded_again(talks):
    talks.add("careful", allowed_tools="Bash", disallowed_tools="SkillSearch")
    session = talks.begin(ask=["Bash"])
    session.with_tail("hello")
    session.call("Skill", {"name": "careful"})
    state = session.dump()
    talks.add("careful", body="Other text.\n", allowed_tools="Bash")
    talks.add("brand-new", "Brand new.")
    satchel = talks.satchel()
    restored = satchel.restore(state, tools=["Skill", "ReadFile", "Bash"])
    assert restored.names == ("Skill", "ReadFile")
    assert restored.refusal_for("Bash", {}) is not None
    tail = restored.tail("go on")
    assert "call Skill again" in tail
    assert "Brand new." in tail
    reply = restored.call("Skill", {"name": "careful"})
    assert reply.data["changed_since_loaded"]
    assert restored.loaded["careful"].disallowed == ("SkillSearch",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 1), ("filters", [[["a"]]]), ("tools", "Skill"), ("ask", [1]), ("prompt", [1]),
        ("prompt", {"a": 1}), ("dropped", [1]), ("loaded", [{}]), ("loaded", {}), ("stack", None),
        ("more", 1),
    ],
)  # fmt: skip
def test_an_invalid_state_is_refused(talks, key, value):
    session = talks.begin()
    session.call("Skill", {"name": "code-review"})
    satchel = talks.satchel()
    with pytest.raises(InvalidInput, match="not the state of a conversation"):
        satchel.restore({**session.dump(), key: value})
    with pytest.raises(InvalidInput):
        satchel.restore([])
    with pytest.raises(InvalidInput):
        session.child().dump()
