"""Does an example of a framework do what its adapter promises? One conversation, over the wire.

The example runs as a program of its own: it takes the project's folder, a line in is a turn of the
user, a line out is the reply. The model is scripted and speaks the provider's protocol.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from model_server import ModelServer, Reply
from satchel.testing import make_skill, make_tool_skill

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_server import Request
    from satchel import Satchel

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "Please review my change": ("Skill", {"name": "code-review"}),
    "Write a haiku": ("Skill", {"name": "haiku"}),
    "Say it back": ("echo_run", {"word": "hello"}),
    "Load what is not there": ("Skill", {"name": "nowhere"}),
}
"""What the model does about a message; about any other it only says something."""
LOAD = Reply(calls=[("Skill", {"name": "code-review"})])
"""The model loads a skill."""
SHIP = (
    Reply(calls=[("deploy", {})]),
    Reply(calls=[("Skill", {"name": "careful"})]),
    Reply(calls=[("deploy", {})]),
)
"""The model calls a tool of the host before and after it loads a skill that forbids it."""


def place_of(satchel: Satchel) -> str:
    """The folder of a project's skills."""
    return os.path.join(satchel.settings.project, ".agents", "skills")


def forbid_deploy(satchel: Satchel) -> None:
    """Have a skill that forbids a tool of the host while it is loaded."""
    make_skill(place_of(satchel), "careful", disallowed_tools=["deploy"])


def result_of(request: Request) -> str:
    """What the first of the last calls gave."""
    return request.results[0].text


def was_held_to_its_part(asked: list[Request], seen: Callable[[Request], str] = result_of) -> None:
    """A sub-agent that was given its task twice had `code-review` alone, and no `deploy`."""
    assert len(asked) == 6
    assert "code-review" in asked[0].system
    assert "write-docs" not in asked[0].system
    for at in (0, 3):  # the second task has a history of its own, so it gets the whole text again
        assert "<skill-loaded" in seen(asked[at + 1])
        assert "careful" in seen(asked[at + 2])
        assert "deployed" not in seen(asked[at + 2])


def script(request: Request) -> Reply:
    words = request.last_user.partition("\n")[0]
    if words in ASKED and not request.results:
        return Reply(calls=[ASKED[words]])
    return Reply(f"Reply {request.turn}")


class Chat:
    """An example that runs."""

    def __init__(self, example: str, project: str, server: ModelServer, **environment: str) -> None:
        self.server = server
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.path.join(ROOT, "examples", example), project],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **server.environment(),
                "PYTHONPATH": os.path.join(ROOT, "src"),
                "SATCHEL_TRUST": "all",
                **environment,
            },
        )

    def say(self, line: str) -> list[Request]:
        """Say something, wait for the reply, and see what the model was asked meanwhile."""
        before = len(self.server.requests)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline().strip()
        found = self.server.requests[before:]
        assert reply.endswith(f"Reply {found[-1].turn}"), reply or "the example ended"
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            self._process.kill()
        self._process.communicate()
        assert kind or self._process.returncode == 0


def project_of(folder: str) -> str:
    """A project with two skills."""
    skills = os.path.join(folder, ".agents", "skills")
    make_skill(skills, "code-review", "Reviews a change.", body="List what could break.\n")
    make_skill(skills, "write-docs", "Writes documentation.")
    return folder


def history_of(request: Request) -> list[Any]:
    """What comes after the prefix, as it was sent."""
    data = request.json
    return data.get("messages") or data.get("input") or data.get("contents") or []


def prefix_of(request: Request) -> str:
    """What a provider keeps first: tools and system prompt, as they were sent."""
    data = request.json
    kept = ("tools", "instructions", "system", "systemInstruction")
    system = [one for one in history_of(request) if one.get("role") in {"system", "developer"}]
    return json.dumps([{key: data.get(key) for key in kept}, system])


def told_of(request: Request) -> str:
    """What follows the words of the user's message."""
    return request.last_user.partition("Write a haiku")[2]


def converse(
    example: str,
    folder: Any,
    answer: Callable[[Request], Reply] = script,
    seen: Callable[[Request], str] = result_of,
    *,
    marks_errors: bool | None = False,
    mark: str = "",
    told: Callable[[Request], str] = told_of,
    prefix: Callable[[Request], str] = prefix_of,
    history: Callable[[Request], list[Any]] = history_of,
    **environment: str,
) -> ModelServer:
    """The conversation that every adapter has to get through; afterwards its server.

    Args:
        example: Its path below `examples`.
        folder: An empty folder.
        answer: What the model says.
        seen: How a request tells the result of the call before it.
        marks_errors: Whether the protocol marks a result as an error; None: it has no results.
        mark: What stands before the names of our tools.
        told: How a request tells what follows the user's message.
        prefix: What of a request a provider keeps first.
        history: What comes after that.
        environment: Further variables of the example.
    """
    project = project_of(os.fspath(folder))
    skills = os.path.join(project, ".agents", "skills")
    with ModelServer(answer) as server, Chat(example, project, server, **environment) as chat:
        first = chat.say("Please review my change")
        # The catalogue is in the system prompt, the tools are declared, and nothing is preloaded.
        assert "Reviews a change." in first[0].system
        ours = {f"{mark}{name}" for name in ("Skill", "SkillSearch", "ReadFile")}
        assert ours <= set(first[0].tools)
        assert "List what could break." not in first[0].body.decode()
        # The skill's text comes as the result of the call, and once.
        assert '<skill-loaded name="code-review"' in seen(first[1])
        assert "List what could break." in seen(first[1])
        again = chat.say("Please review my change")
        assert "already loaded" in seen(again[1])
        # A changed list is told behind the next message, and the prefix stays.
        make_skill(skills, "haiku", "Writes a haiku.", body="Five, seven, five.\n")
        new = chat.say("Write a haiku")
        assert "haiku" in told(new[0])
        assert "Five, seven, five." in seen(new[1])
        wrong = chat.say("Load what is not there")
        assert "There is no skill `nowhere`" in seen(wrong[1])
        if marks_errors is not None:
            assert wrong[1].results[0].error is marks_errors
        asked = [*first, *again, *new, *wrong]
        assert {prefix(request) for request in asked} == {prefix(first[0])}
        for earlier, later in pairwise(asked):
            assert history(later)[: len(history(earlier))] == history(earlier)
        # A tool that was not declared cannot be called: a new one changes the next request.
        word = "parameters:\n  - {name: word, type: string, description: A word}\n"
        make_tool_skill(skills, "echo", more=word)
        tool = chat.say("Say it back")
        assert f"{mark}echo_run" in tool[0].tools
        assert '"word": "hello"' in seen(tool[1]).replace("\\", "")
    return server
