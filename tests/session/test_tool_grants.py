"""`allowed-tools` is a request: what the user granted, for whom, and for how long."""

from __future__ import annotations

import os

import pytest

from satchel import Satchel
from satchel.errors import SettingsError
from satchel.testing import make_skill, make_tool_skill

NETWORK = "network: true\n"


@pytest.fixture
def clone(tmp_path):
    """A cloned project: a tool with network, and a plain skill that asks to call it."""
    project = tmp_path / "clone"
    make_tool_skill(project / "skills", "probe", tool="probe", more=NETWORK)
    make_skill(project / "skills", "plain", "Plain. Use when asked.", allowed_tools="pro*")
    return project


def refusal(satchel: Satchel, name: str = "plain", tool: str = "probe"):
    """The refusal of the tool after the skill was loaded; None when no question is left."""
    session = satchel.session()
    assert session.refusal_for(tool, {}) is not None
    assert session.call("Skill", {"name": name}).error is None
    return session.refusal_for(tool, {})


def asking(project, **settings) -> Satchel:
    """The project as the commands open it, trusted by the user."""
    satchel = Satchel.for_project(project, trust="ask", **settings)
    satchel.trust()
    return satchel


def test_a_skill_of_a_trusted_clone_does_not_remove_the_question(clone):
    satchel = asking(clone)
    assert refusal(satchel).error.code == "PERMISSION_DENIED"
    events = [row for row in satchel.trace.events if row.kind == "refused"]
    assert any(row.values.get("tool") == "pro*" for row in events)


def test_the_review_shows_the_request_and_a_grant_covers_this_content_only(clone):
    satchel = asking(clone)
    (request,) = satchel.review().requests
    assert (request.skill.name, request.tools) == ("plain", ("pro*",))
    satchel.grant_tools([request])
    assert satchel.review().requests == ()
    assert refusal(satchel) is None
    assert refusal(asking(clone)) is None
    (clone / "skills/plain/notes.md").write_text("More.\n")
    assert refusal(asking(clone)) is not None


def test_a_grant_is_bound_to_the_content_that_was_shown(clone):
    satchel = asking(clone)
    requests = satchel.review().requests
    make_skill(clone / "skills", "plain", "Plain. Use when asked.", allowed_tools="pro* excel_*")
    satchel.grant_tools(requests)
    assert refusal(satchel) is not None


def test_a_grant_ends_with_the_trust_in_the_folder(clone):
    satchel = asking(clone)
    satchel.grant_tools(satchel.review().requests)
    assert satchel.untrust()
    assert refusal(asking(clone)) is not None


def test_the_folder_that_python_is_given_counts_as_its_own(clone):
    assert refusal(Satchel.for_project(clone)) is None


def test_a_skill_installed_into_the_given_folder_asks(tmp_path, clone):
    source = make_skill(tmp_path / "else", "guest", "Guest. Use when asked.", allowed_tools="probe")
    satchel = Satchel.for_project(clone)
    store = satchel.store()
    with store.plan_import(source.rpartition("/")[0]) as plan:
        assert plan.steps[0].difference.requests == ("probe",)
        store.apply(plan)
    assert refusal(satchel, "guest") is not None
    satchel.grant_tools(satchel.tool_requests("guest"))
    assert refusal(satchel, "guest") is None


def test_an_installation_grants_the_shown_tools_on_request(tmp_path, clone):
    source = make_skill(tmp_path / "else", "guest", "Guest. Use when asked.", allowed_tools="probe")
    satchel = Satchel.for_project(clone)
    store = satchel.store()
    with store.plan_import(source.rpartition("/")[0]) as plan:
        store.apply(plan, grant_tools=True)
    assert refusal(satchel, "guest") is None


def test_a_skill_that_the_user_created_here_needs_no_grant(clone):
    satchel = asking(clone)
    satchel.init("mine")
    path = clone / ".agents/skills/mine/SKILL.md"
    path.write_text(path.read_text().replace("---\n", "---\nallowed-tools: probe\n", 1))
    assert refusal(asking(clone), "mine") is None


def test_a_lockfile_of_the_clone_cannot_make_a_skill_the_users_own(tmp_path, clone):
    satchel = asking(clone)
    source = make_skill(tmp_path / "else", "guest", "Guest. Use when asked.", allowed_tools="probe")
    store = satchel.store()
    with store.plan_import(source.rpartition("/")[0]) as plan:
        store.apply(plan)
    (clone / ".agents/satchel.lock").unlink()
    assert refusal(asking(clone), "guest") is not None
    (clone / ".agents/satchel.lock").write_text("not a lockfile")
    assert refusal(Satchel.for_project(clone), "plain") is None


def test_settings_grant_tools_by_name(clone):
    granted = asking(clone, grants={"plain": {"tools": ["probe"]}})
    assert refusal(granted) is None
    assert refusal(asking(clone, grants={"other": {"tools": ["probe"]}})) is not None
    assert refusal(asking(clone, grants={"plain": {"tools": ["*"]}})) is not None


def test_a_project_cannot_grant_itself_anything(clone):
    (clone / "satchel.toml").write_text('[grants.plain]\ntools = ["probe"]\n')
    satchel = asking(clone)
    assert refusal(satchel) is not None
    assert "setting-refused" in [problem.code for problem in satchel.problems()]


@pytest.mark.parametrize(
    "wrong", [{"plain": {"tool": ["probe"]}}, {"plain": {"tools": 3}}, {"plain": []}]
)
def test_a_wrong_grant_is_refused(clone, wrong):
    with pytest.raises(SettingsError):
        Satchel.for_project(clone, grants=wrong)


def test_disallowed_tools_need_no_grant(clone):
    make_skill(clone / "skills", "plain", "Plain. Use when asked.", disallowed_tools="probe")
    satchel = asking(clone, grants={"plain": {"tools": ["probe"]}})
    assert "forbids" in refusal(satchel).text


def test_why_says_what_is_requested_and_what_is_granted(clone):
    satchel = asking(clone)
    report = satchel.why("plain")
    assert "requested: `pro*`" in str(report)
    assert "granted: none" in str(report)
    assert "satchel trust plain --grant-tools" in str(report)
    assert (report.facts["requested_tools"], report.facts["granted_tools"]) == (["pro*"], [])
    satchel.grant_tools(satchel.tool_requests("plain"))
    assert satchel.why("plain").facts["granted_tools"] == ["pro*"]


@pytest.mark.parametrize("pattern", ["RunScript", "RunScript(plain/*)", "Run*", "runscript"])
def test_a_skill_cannot_ask_to_run_scripts_without_approval(tmp_path, pattern):
    path = make_skill(tmp_path / "skills", "plain", "Plain. Use it.", allowed_tools=pattern)
    script = os.path.join(os.path.dirname(path), "write.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("open('new.txt', 'w').close()\n")
    satchel = Satchel.for_project(tmp_path)
    call = {"skill": "plain", "script": "write.py"}

    def changes(satchel: Satchel):
        session = satchel.session()
        assert session.call("Skill", {"name": "plain"}).error is None
        return session.call("RunScript", call).data["changes"]

    assert changes(satchel) == []
    assert satchel.tool_requests("plain") == ()
    assert "requested_tools" not in satchel.why("plain").facts
    events = [row for row in satchel.trace.events if row.kind == "refused"]
    assert any(row.values.get("tool") == pattern for row in events)
    granted = Satchel.for_project(tmp_path, grants={"plain": {"tools": ["RunScript"]}})
    assert [row["path"] for row in changes(granted)] == ["new.txt"]


def test_no_grant_covers_the_packages_of_a_script(tmp_path):
    path = make_skill(tmp_path / "skills", "plain", "Plain. Use it.")
    script = os.path.join(os.path.dirname(path), "pack.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("import yaml\n")
    satchel = Satchel.for_project(tmp_path, grants={"plain": {"tools": ["RunScript"]}})
    session = satchel.session()
    assert session.call("Skill", {"name": "plain"}).error is None
    reply = session.call("RunScript", {"skill": "plain", "script": "pack.py"})
    assert reply.error.code == "PERMISSION_DENIED"
