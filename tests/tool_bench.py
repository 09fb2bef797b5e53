"""A toolset over tool skills that starts programs, without a sandbox unless asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel import Library
from satchel.library import TrustStore, default_locations
from satchel.runners.base import Program
from satchel.runners.sandbox import find_interpreter
from satchel.settings import load_settings
from satchel.testing import make_tool_skill
from satchel.tools.program_runner import ProgramRunner
from satchel.trace import Trace
from talking import session_over

if TYPE_CHECKING:
    from pathlib import Path

    from satchel.runners.base import RunRequest, RunResult, Tier
    from satchel.settings import Settings


class PlainRunner(ProgramRunner):
    """Runs Python programs without a build, and notes what was asked for."""

    def __init__(self, settings: Settings, tier: Tier = "none") -> None:
        super().__init__(settings, tier=tier)
        self.requests: list[RunRequest] = []
        self.prepared: list[tuple[str, str]] = []

    def prepare(self, folder: str, manifest: Any, digest: str = "", **_more: Any) -> Program:
        self.prepared.append((folder, digest))
        entry = os.path.join(folder, manifest.entry)
        python = find_interpreter()
        return Program((python.executable, entry), folder, manifest.runtime, read=python.read)

    def run(self, request: RunRequest) -> RunResult:
        self.requests.append(request)
        return super().run(request)


class Workbench:
    """A project with tool skills."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        env: dict[str, str] | None = None,
        tier: Tier = "none",
        **given: Any,
    ) -> None:
        self.project = str(tmp_path / "project")
        os.makedirs(os.path.join(self.project, "skills"), exist_ok=True)
        home = {"HOME": str(tmp_path / "home"), "SATCHEL_HOME": str(tmp_path / "satchel")}
        given = {"trust": "all", "builtin": False, "packaged": False, **given}
        self.settings = load_settings(self.project, env={**home, **(env or {})}, **given)
        self.trace = Trace()
        self.library = Library(
            default_locations(self.settings), trust=TrustStore(None), trace=self.trace
        )
        self.runner = PlainRunner(self.settings, tier)
        self.tools = session_over(self.library, self.settings, runner=self.runner)

    def skill(self, name: str = "demo", program: str = "", **given: Any) -> str:
        """Write a tool skill of the project."""
        return make_tool_skill(os.path.join(self.project, "skills"), name, program, **given)

    def write(self, path: str, text: str | bytes = "text\n") -> str:
        """Write a file of the project; returns its full path."""
        full = os.path.join(self.project, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return full


def answering(code: str) -> str:
    """A program whose `run(a)` has this body; it returns a reply."""
    lines = "\n".join(f"    {line}" for line in code.strip().splitlines())
    return (
        "import json, os, sys\n\n"
        "def run(a):\n"
        f"{lines}\n\n"
        "request = json.loads(sys.stdin.readline())\n"
        "print(json.dumps(run(request['arguments'])))\n"
    )
