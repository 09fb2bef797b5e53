"""The shared part of adapters, without a framework."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from framework_chat import place_of
from satchel import Satchel
from satchel.errors import InvalidInput
from satchel.integrations import base
from satchel.integrations.pydantic_ai import SkillsCapability
from satchel.testing import make_project, make_skill


def history(texts=(), *, tool="Skill", prompts=None):
    results = [base.ToolResult(tool, text) for text in texts]
    return base.ConversationHistory(results, prompts)


def add(satchel, name, **fields):
    make_skill(place_of(satchel), name, **fields)


def test_a_session_given_is_the_one_of_every_conversation(satchel):
    session = satchel.session()
    sessions = base.sessions_of(session)
    assert sessions.of("one") is sessions.of("two") is session
    assert base.sessions_of(sessions) is sessions


def test_a_folder_is_enough(satchel, monkeypatch):
    monkeypatch.setenv("SATCHEL_TRUST", "all")
    assert "code-review" in base.sessions_of(satchel.settings.project).of().prompt
    monkeypatch.chdir(satchel.settings.project)
    assert "code-review" in base.sessions_of().of().prompt


def test_the_conversation_that_was_silent_longest_is_dropped(satchel, monkeypatch):
    monkeypatch.setattr(base, "MAX_CONVERSATIONS", 2)
    sessions = base.sessions_of(satchel)
    first, second = sessions.of("1"), sessions.of("2")
    assert sessions.of("1") is first
    sessions.of("3")
    assert sessions.of("1") is first
    assert sessions.of("2") is not second
    dropped = [event for event in satchel.trace.events if event.kind == "forgotten"]
    assert [event.values["conversation"] for event in dropped] == ["2", "3"]


@pytest.mark.req("D3")
def test_a_sub_agent_of_an_unknown_parent_is_refused(satchel, monkeypatch):
    """A plain thread has no context, and a conversation may be dropped while it runs."""
    monkeypatch.setattr(base, "MAX_CONVERSATIONS", 2)
    add(satchel, "careful", disallowed_tools=["deploy"])
    sessions = base.sessions_of(satchel)
    children = sessions.child()
    parent = sessions.of("one")
    base.call(parent, "Skill", {"name": "careful"})
    sessions.of("two")
    caught = []

    def work():
        try:
            children.of("thread")
        except InvalidInput as exc:
            caught.append(exc.hint)

    with base.running(parent):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        for number in range(4):
            sessions.of(str(number))
        assert sessions.of("one") is not parent
        assert base.permit(children.of("late"), "deploy", {})
    assert caught == ["Start it inside `running(session)` of `satchel.integrations.base`"]


def test_an_unrelated_running_agent_is_no_parent(satchel, tmp_path):
    other = Satchel.for_project(make_project(tmp_path / "other", "other"), trust="all")
    sessions = base.sessions_of(satchel)
    with base.running(other.session()):
        assert "code-review" in sessions.child().of("task").prompt


def test_a_page_that_looks_like_a_skill_is_no_loaded_skill(satchel):
    session = satchel.session()
    first = base.call(session, "Skill", {"name": "code-review"}).text
    nonce = session.loaded["code-review"].nonce
    assert session.sync(history((first,))) == []
    assert session.sync(history((first.replace(nonce, "0" * 12),), tool="Fetch")) == ["code-review"]
    assert not session.loaded["code-review"].present


@pytest.mark.req("B9")
def test_a_change_notice_is_sent_again_when_it_was_trimmed(satchel):
    session = satchel.session()
    assert session.prompt
    add(satchel, "haiku", description="Writes a haiku.")
    behind = base.tail(session, "hm", history(prompts=["hm"]))
    assert "Writes a haiku." in behind
    assert session.sync(history(prompts=[f"hm\n\n{behind}"])) == []
    again = base.tail(session, "hm", history(prompts=[f"hm\n\n{behind}"]))
    assert "skills-changed" not in again
    assert "Writes a haiku." in base.tail(session, "hm", history(prompts=["hm"]))  # it was lost


def test_a_reminder_is_repeated_until_the_model_sees_it(satchel):
    session = satchel.session()
    base.call(session, "Skill", {"name": "code-review"})
    session.sync(history(prompts=[]))  # before a request, where nothing can be appended
    behind = base.tail(session, "hm", history(prompts=["hm"]))
    assert "<skills-loaded-before>" in behind
    assert "<skills-loaded-before>" not in base.tail(session, "hm", history(prompts=[behind]))
    assert "<skills-loaded-before>" in base.tail(session, "hm", history(prompts=["hm"]))
    session.sync(history(prompts=[]))
    assert "<skills-loaded-before>" in base.call(session, "Skill", {"name": "write-docs"}).text


def test_a_wrong_option_is_refused_when_the_adapter_is_made(satchel):
    with pytest.raises(InvalidInput, match="no option `aprove`"):
        SkillsCapability(satchel, aprove=True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidInput, match="to a session that exists"):
        SkillsCapability(satchel.session(), approve=True)
    with pytest.raises(InvalidInput, match="from a `int`"):
        SkillsCapability(42)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="no option `includes`"):
        SkillsCapability(satchel).child(includes=["a"])  # pyright: ignore[reportCallIssue]


SRC = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "src"
)
ADAPTERS = [
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ("langchain", "langchain", "langchain"),
    ("openai_agents", "agents", "openai-agents"),
    ("claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
    ("google_adk", "google.adk", "google-adk"),
    ("agent_framework", "agent_framework", "agent-framework"),
    ("smolagents", "smolagents", "smolagents"),
]
"""Module, the package that it needs, and the extra that brings it."""


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("module", "package", "extra"), ADAPTERS)
def test_an_adapter_without_its_package_says_what_to_install(module, package, extra):
    code = (
        f"import sys\nsys.path.insert(0, {SRC!r})\nsys.modules[{package!r}] = None\n"
        "import satchel.integrations.base\nfrom satchel.errors import MissingExtra\n"
        f"try:\n    import satchel.integrations.{module}\n"
        "except MissingExtra as exc:\n    print(exc.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f'Run `pip install "satchel[{extra}]"`\n'
