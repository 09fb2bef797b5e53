"""An adapter without its package names the extra to install."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SRC = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "src"
)
pytestmark = pytest.mark.timeout(30)  # each is a program of its own
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


def test_what_they_share_imports_no_framework():
    code = (
        f"import sys\nsys.path.insert(0, {SRC!r})\nimport satchel.integrations.base\n"
        "known = {'pydantic', 'pydantic_ai', 'langchain', 'langchain_core', 'agents', 'httpx'}\n"
        "print(sorted(known & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
