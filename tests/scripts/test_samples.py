"""Forty scripts as people write them run in every interface; what is written is what was shown."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

from model_server import ModelServer, Reply, loopback
from satchel import Satchel
from script_samples import SAMPLES, SKILLS, make_project
from sizes import sample

pytestmark = pytest.mark.timeout(300)  # the first one installs the packages
TOKEN = "s3cret-77"


class Bench:
    """A project with one skill, in which a sample is run."""

    def __init__(self, row, tmp_path, monkeypatch, address):
        self.row, self.address = row, address
        self.skill, self.script, *args = row.command.replace("URL", address).split()
        self.args = args
        self.project = tmp_path / "project"
        shutil.copytree(SKILLS / self.skill, self.project / ".agents/skills" / self.skill)
        make_project(self.project, address)
        monkeypatch.setenv("REPORT_TOKEN", TOKEN)
        grant = {"network": row.network, "secrets": list(row.secrets)}
        self.grants = {self.skill: grant} if row.network else {}
        self.shown = []
        self.before = self.files()

    @property
    def call(self):
        """The call of the script."""
        given = {"skill": self.skill, "script": self.script, "args": self.args}
        return ("RunScript", {**given, "stdin": self.row.stdin} if self.row.stdin else given)

    def satchel(self):
        """The project, opened."""
        return Satchel.for_project(
            self.project, trust="all", packaged=False, sandbox="required", grants=self.grants
        )

    def steps(self):
        """What the scripted model does."""
        return [Reply(calls=[("Skill", {"name": self.skill})]), Reply(calls=[self.call]), "Done."]

    def approve(self, request):
        """Note what is shown, and accept what needs no consent of its own."""
        self.shown += [change for change in request.changes if not change.needs_consent]
        return not any(change.needs_consent for change in request.changes)

    def files(self):
        """The files of the project, without its skills and repository."""
        return {
            str(path.relative_to(self.project)): path.read_bytes()
            for path in self.project.rglob("*")
            if path.is_file() and path.relative_to(self.project).parts[0][0] != "."
        }

    def written(self):
        """What the script has changed."""
        after = self.files()
        return tuple(
            "-+~"[(path in after) + (path in after and path in self.before)] + path
            for path in sorted({*self.before, *after})
            if self.before.get(path) != after.get(path)
        )

    def check(self, text, shown=None):
        """Compare the reply and the files with the sample."""
        row = self.row
        assert row.prints.replace("URL", self.address) in text, text
        assert TOKEN not in text
        assert self.written() == row.changes
        if shown is not None:
            marks = {"created": "+", "changed": "~", "deleted": "-"}
            assert tuple(sorted(marks[c.kind] + c.path for c in shown)) == tuple(
                sorted(row.changes)
            )
        for path in row.refused:
            assert f"`{path}` was not changed" in text
            assert not (self.project / path).exists()


@pytest.fixture
def bench(request, tmp_path, monkeypatch, address):
    """The sample of this test in a project of its own."""
    return Bench(request.param, tmp_path, monkeypatch, address)


def rows(one_of=1):
    """Samples as parameters."""
    chosen = sample(SAMPLES, one_of) if one_of > 1 else SAMPLES
    return pytest.mark.parametrize(
        "bench", [pytest.param(row, id=row.command) for row in chosen], indirect=True
    )


@rows()
def test_a_script_runs_in_a_session(bench):
    session = bench.satchel().session(approve=bench.approve)
    assert session.call("Skill", {"name": bench.skill}).status == "success"
    reply = session.call(*bench.call)
    assert (reply.error is not None) == bench.row.fails, reply.text
    bench.check(reply.text, bench.shown)


def pydantic_ai(satchel, approve):
    from pydantic_ai import Agent

    from satchel.integrations.pydantic_ai import SkillsCapability

    skills = SkillsCapability(satchel, approve=approve)
    asyncio.run(Agent("anthropic:claude-sonnet-5", capabilities=[skills]).run("Do it"))


def langchain(satchel, approve):
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    from satchel.integrations.langchain import SkillsMiddleware

    skills = SkillsMiddleware(satchel, approve=approve)
    agent = create_agent(ChatOpenAI(model="gpt-5.4-mini"), middleware=[skills])
    asyncio.run(agent.ainvoke({"messages": [HumanMessage("Do it")]}))


@pytest.mark.parametrize("framework", [pydantic_ai, langchain])
@rows(15)
def test_a_script_runs_in_a_framework(bench, framework):
    with loopback(bench.steps()) as server:
        framework(bench.satchel(), bench.approve)
    bench.check(server.requests[2].results[-1].text, bench.shown)


def command(bench, *words, stdin="", **env):
    """Run a command of Satchel in the project, and return what it printed."""
    line = [sys.executable, "-m", "satchel", *words, "--project", str(bench.project)]
    known = {**os.environ, "SATCHEL_GRANTS": json.dumps(bench.grants), **env}
    done = subprocess.run(line, input=stdin, text=True, capture_output=True, env=known, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@rows(15)
def test_a_script_runs_in_chat(bench):
    command(bench, "trust", "--yes")
    with ModelServer(bench.steps()) as server:
        known = {**server.environment(), "SATCHEL_MODEL": "anthropic:claude-sonnet-5"}
        printed = command(bench, "chat", "--allow-tools", stdin="Do it\n", **known)
    bench.check(server.requests[2].results[-1].text)
    words = {"+": "created", "~": "changed", "-": "deleted"}
    for change in bench.row.changes[:20]:
        assert f"files: `{change[1:]}` was {words[change[0]]}" in printed
    for path in bench.row.refused:
        assert f"files: `{path}` was not changed" in printed


@rows(15)
def test_a_script_runs_over_mcp(bench):
    import anyio
    from mcp.client.stdio import stdio_client

    from mcp import ClientSession, StdioServerParameters, types

    command(bench, "trust", "--yes")
    questions = []

    async def answer(context, params):
        questions.append(params.message)
        return types.ElicitResult(
            action="decline" if "+++ AGENTS.md" in params.message else "accept"
        )

    async def talk():
        words = ["-m", "satchel", "mcp", "serve", "--scripts", "--project", str(bench.project)]
        known = {**os.environ, "SATCHEL_GRANTS": json.dumps(bench.grants)}
        server = StdioServerParameters(command=sys.executable, args=words, env=known)
        async with (
            stdio_client(server) as streams,
            ClientSession(*streams, elicitation_callback=answer) as session,
        ):
            await session.initialize()
            await session.call_tool("Skill", {"name": bench.skill})
            return await session.call_tool(*bench.call)

    reply = anyio.run(talk)
    bench.check(
        "\n".join(block.text for block in reply.content if isinstance(block, types.TextContent))
    )
    for change in bench.row.changes[:20]:
        assert any(change[1:] in question for question in questions)
