"""Without a key an example prints one error line and a hint, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from satchel.testing import make_skill

pytestmark = pytest.mark.timeout(60)  # each imports a framework
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}
EXAMPLES = {
    "anthropic_loop.py": "`ANTHROPIC_API_KEY` is not set",
    "openai_loop.py": "`OPENAI_API_KEY` is not set",
    "pydantic_ai/agent.py": "`ANTHROPIC_API_KEY` is not set",
    "google_adk/agent.py": "`GOOGLE_API_KEY` is not set",
    "smolagents/agent.py": "`OPENAI_API_KEY` is not set",
    "claude_agent_sdk/agent.py": "Not logged in",
}
"""One of each kind; the others with a model of OpenAI begin with the very same lines."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_missing_key_is_one_line_and_a_hint(example, root, tmp_path):
    make_skill(tmp_path / "skills", "hello")
    known = {name: value for name, value in os.environ.items() if name not in KEYS}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", f"{root}/examples/{example}", str(tmp_path)],
        input="Hello\n",
        capture_output=True,
        text=True,
        check=False,
        env={**known, **QUIET, "HOME": str(tmp_path), "PYTHONPATH": f"{root}/src"},
    )
    assert done.returncode == 1
    error, blank, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert EXAMPLES[example] in error
    assert not blank
    assert hint.startswith("hint: Run `export ")
    assert done.stdout == ""


def test_the_examples_for_openai_begin_alike(root):
    with open(f"{root}/examples/smolagents/agent.py", encoding="utf-8") as file:
        asks = file.read().partition("if not ")[2].partition("\n\n")[0].splitlines()[:2]
    for path in ("agent_framework/agent.py", "langchain/agent.py", "langchain/deep_agent.py",
                 "openai_agents/agent.py"):  # fmt: skip
        with open(f"{root}/examples/{path}", encoding="utf-8") as file:
            assert "if not " + "\n".join(asks) in file.read()
