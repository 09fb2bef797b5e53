"""A project with skills and an agent that talks to the scripted server through a real SDK."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from model_server import ModelServer, model_of
from satchel.agent import Agent  # here, since the packages below it take seconds to import
from satchel.testing import make_skill


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project" / ".agents" / "skills"
    make_skill(place, "code-review", "Reviews code for faults.", body="Look at each line.\n")
    make_skill(place, "write-docs", "Writes documentation.", body="Write plainly.\n")
    return tmp_path / "project"


@pytest.fixture(params=["anthropic", "openai"])
def provider(request):
    return request.param


@pytest.fixture
def start(project, provider):
    """Starts an agent against a script; both end with the test."""
    with ExitStack() as stack:

        def start(script, *, folder=project, **options):
            server = stack.enter_context(ModelServer(script))
            options = {"trust": "all", "builtin": False, "packaged": False, **options}
            agent = Agent.for_project(folder, model=model_of(server, provider), **options)
            stack.callback(agent.close)
            return agent, server

        yield start
