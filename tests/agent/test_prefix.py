"""Thirty turns while the library changes: what was sent stays the beginning of what is sent."""

from __future__ import annotations

import json
import os
import time

import pytest

from model_server import Reply
from satchel.testing import make_skill

TURNS = 30


def head_of(request):
    """What a provider caches first, as bytes."""
    body = request.json
    first = body["system"] if request.provider == "anthropic" else body["messages"][0]
    return json.dumps([body["tools"], first], ensure_ascii=False).encode()


def messages_of(request):
    """The conversation as bytes, a message each; marks for the cache are no part of it."""
    found = []
    for message in request.json["messages"]:
        text = json.dumps(message, ensure_ascii=False)
        found.append(text.replace(', "cache_control": {"type": "ephemeral", "ttl": "5m"}', ""))
    return found


def script(request):
    """Loads a skill in every third turn, and reads a file in every fifth."""
    if request.results:
        return "Done, as the skill says. " * 20
    number = request.turn - 1
    if number % 3 == 0:
        name = ("code-review", "write-docs", f"extra-{number - 2}")[number // 3 % 3]
        return Reply("", calls=[("Skill", {"name": name})])
    if number % 5 == 0:
        return Reply("", calls=[("ReadFile", {"path": "notes.md"})])
    return "An answer of some length. " * 20


def change_something(project, number):
    """Adds a skill, edits a loaded one, removes one: each in its turn."""
    place = project / ".agents" / "skills"
    path = ""
    if number % 4 == 1:
        path = make_skill(place, f"extra-{number}", f"Helps with thing {number}.")
    elif number % 7 == 3:
        path = make_skill(place, "code-review", "Reviews code.", body=f"Edition {number}.\n")
    elif number == 20:
        os.remove(place / "extra-1" / "SKILL.md")
    if path:
        later = time.time_ns() + number * 1_000_000_000
        os.utime(path, ns=(later, later))


@pytest.mark.timeout(60)
@pytest.mark.req("D6")
def test_the_beginning_is_the_same_bytes_in_every_request(start, project, provider):
    (project / "notes.md").write_text("Some notes.\n" * 50)
    for number in range(40):
        make_skill(project / ".agents/skills", f"helper-{number}", f"Helps with job {number}. " * 4)
    agent, server = start(script)
    for number in range(TURNS):
        change_something(project, number)
        agent.run_sync(f"Do job {number} for me.")
    assert len(server.requests) > TURNS
    assert len({head_of(request) for request in server.requests}) == 1
    for before, after in zip(server.requests, server.requests[1:], strict=False):
        told = messages_of(before)
        assert messages_of(after)[: len(told)] == told
    read = sum(one.read for one in server.accounts)
    total = sum(one.total for one in server.accounts)
    assert read / total > 0.85, f"{provider}: {read / total:.3f} of the input from the cache"
    told = [event.values for event in agent.session.trace.events if event.kind == "told"]
    assert sum(len(one["added"]) for one in told) == sum(n % 4 == 1 for n in range(TURNS))
    assert any(one["edited"] == ["code-review"] for one in told)
    assert not [event for event in agent.session.trace.events if event.kind == "rebuilt"]


@pytest.mark.timeout(60)
@pytest.mark.req("B9")
def test_with_rebuild_only_a_change_makes_new_bytes(start, project):
    agent, server = start(script, changes="rebuild")
    for number in range(9):
        if number == 4:
            change_something(project, 1)
        agent.run_sync(f"Do job {number} for me.")
    heads = [head_of(request) for request in server.requests]
    assert len(set(heads)) == 2
    assert heads == sorted(heads, key=lambda head: head != heads[0])  # one change, in one place
    rebuilt = [event for event in agent.session.trace.events if event.kind == "rebuilt"]
    assert [event.values["reason"] for event in rebuilt] == ["the skills changed"]
