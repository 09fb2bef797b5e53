"""A project with one of everything, and the terminal run in it as people run it.

`SNAPSHOTS=write pytest tests/cli` writes the snapshots anew; read the diff before you keep it.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from satchel import Satchel
from satchel.cli.context import CliContext
from satchel.cli.project import open_project
from satchel.library import TrustStore
from typing_at import Typing
from warm_start import warm_start

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SNAPSHOTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "snapshots")


class Run(NamedTuple):
    """What a command did."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str


class Terminal:
    """A project, a home, and a shell between them."""

    def __init__(self, base) -> None:
        self.project = base / "project"
        self.home = base / "home"
        self.project.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)

    def at(self, folder) -> Terminal:
        """The same shell in another folder."""
        made = copy.copy(self)
        made.project = folder
        return made

    def skill(self, path: str, text: str) -> None:
        """Write `SKILL.md` into a folder of the project."""
        folder = self.project / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_text(text, encoding="utf-8")

    def skills(self, texts: dict[str, str]) -> None:
        """Write the user's own skills, each with a description, and trust them."""
        for name, text in texts.items():
            head = f"---\nname: {name}\ndescription: {text}\n---\n"
            self.skill(f".agents/skills/{name}", f"{head}Steps.\n")
            self.trust(f".agents/skills/{name}")

    def trust(self, path: str) -> None:
        """Trust a folder of the project, as `satchel trust` and `satchel new` do."""
        book = TrustStore(str(self.home / ".local/state/satchel/trust.json"))
        book.trust(str(self.project / path))

    def env(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.home),
            "COLUMNS": "88",
            "PYTHONPATH": os.path.join(ROOT, "src"),
            "SATCHEL_BUILTIN": "false",
            **more,
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "satchel", *words]

    def run(self, *words: str, stdin: str | None = None, **env: str) -> Run:
        started = warm_start()
        known = self.env(**env)
        if started.takes(words, known):
            return Run(words, *started.run(words, str(self.project), known, stdin or ""))
        done = subprocess.run(
            self.command(*words),
            cwd=self.project,
            env=known,
            input=stdin or "",
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return Run(words, done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        """A command that runs while the test goes on."""
        return subprocess.Popen(
            self.command(*words),
            cwd=self.project,
            env=self.env(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def on_a_terminal(self, *words: str, answer: str = "", **env: str) -> str:
        """What a person's terminal receives, and what they type there."""
        with Typing(self.command(*words), self.project, self.env(TERM="xterm", **env)) as typing:
            typing.type(answer)
            typing.ends()
        return typing.raw

    def filtered(self, text: str) -> str:
        """`text` without what differs from run to run."""
        for path, name in ((self.project, "<project>"), (self.home, "<home>"), (ROOT, "<root>")):
            text = text.replace(str(path), name)
        text = re.sub(r' nonce="\w{12}"', "", text)
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", text)

    def check(self, name: str, run: Run) -> None:
        """Compare a whole run with its snapshot."""
        shown = " ".join(f'"{word}"' if " " in word else word for word in run.words)
        text = f"$ satchel {shown}\n[exit {run.status}]\n"
        for title, part in (("stdout", run.out), ("stderr", run.err)):
            if part:
                text += f"--- {title}\n{self.filtered(part)}"
        path = os.path.join(SNAPSHOTS, f"{name}.txt")
        if os.environ.get("SNAPSHOTS") == "write":
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
        with open(path, encoding="utf-8") as file:
            assert text == file.read()


@pytest.fixture
def empty(tmp_path) -> Terminal:
    """A project without any skill."""
    return Terminal(tmp_path)


@pytest.fixture
def terminal(empty) -> Terminal:
    """A project with one of everything; the user's own skills are trusted."""
    return furnish(empty)


def furnish(empty: Terminal) -> Terminal:
    """Put one of everything there."""
    empty.skill(
        ".agents/skills/code-review",
        "---\nname: code-review\n"
        "description: Reviews code for bugs, security and style. Use when the user asks for a"
        " review of a diff or a pull request.\n"
        "license: MIT\neffort: high\ncolour: blue\n---\n"
        "# Code review\n\nLook at $ARGUMENTS.\n",
    )
    references = empty.project / ".agents/skills/code-review/references"
    references.mkdir()
    (references / "checklist.md").write_text("- bugs\n", encoding="utf-8")
    empty.skill(
        ".agents/skills/chinese-writing",
        "---\nname: chinese-writing\n"
        "description: 把中文写得自然、准确、有条理。用户要求润色、改写或校对中文文本时使用。\n"
        "tags: [writing]\n---\n写得自然。\n",
    )
    empty.skill(
        ".agents/skills/fix-yaml",
        "---\nname: fix-yaml\n"
        "description: Repairs YAML: quotes, indents and colons. Use when a file does not parse.\n"
        "---\nBody\n",
    )
    empty.skill(
        ".agents/skills/team/style-guide",
        "---\nname: style-guide\ndescription: The style of the house. Use when writing docs.\n"
        "---\nBody\n",
    )
    empty.skill(
        "skills/code-review",
        "---\nname: code-review\ndescription: Another review that came along.\n---\nBody\n",
    )
    empty.skill(
        "skills/release-notes",
        "---\nname: release-notes\n"
        "description: Writes release notes from commits. Use when a version is released.\n"
        "---\nRun scripts/collect.py\n",
    )
    scripts = empty.project / "skills/release-notes/scripts"
    scripts.mkdir()
    (scripts / "collect.py").write_text("print(1)\n", encoding="utf-8")
    empty.skill("skills/plain-text", "# Just a heading\n")
    for name in ("code-review", "chinese-writing", "fix-yaml", "team/style-guide"):
        empty.trust(f".agents/skills/{name}")
    empty.trust("skills/code-review")
    return empty


class _Inside(CliContext):
    """A context whose project has the test's own detector."""

    def __init__(self, detector) -> None:
        super().__init__()
        made = open_project(".", {}, {})
        self._made = Satchel(made.library, made.settings, detector=detector)

    @property
    def satchel(self) -> Satchel:
        return self._made


@pytest.fixture
def inside(terminal, monkeypatch, capsys):
    """Runs a command in this process, with a detector that answers what the test wants to see."""
    for name, value in terminal.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(terminal.project)

    def run(command, detector, *words) -> Run:
        status = command.main(list(words), obj=_Inside(detector), standalone_mode=False)
        return Run(words, status, *capsys.readouterr())

    return run


class Weekly:
    """The example `weekly_report` in a project, with its model: call it to run a command."""

    def __init__(self, terminal: Terminal, server) -> None:
        self.terminal, self.server = terminal, server
        self.env = {**server.environment(), "SATCHEL_MODEL": "anthropic:claude-sonnet-5"}

    def __call__(self, *words, **env) -> Run:
        return self.terminal.run(*words, **{**self.env, **env})

    def write(self, **plans: str) -> None:
        for name, text in plans.items():
            (self.terminal.project / f"{name}.yaml").write_text(text, encoding="utf-8")

    def worker(self, *words, **env) -> subprocess.Popen[bytes]:
        """A worker that is ready."""
        begun = self.terminal.start("goal", "worker", *words, **{**self.env, **env})
        stream = begun.stdout if "--json" in words else begun.stderr
        assert stream is not None
        while b"ready" not in (line := stream.readline()):
            assert line or begun.poll() is None
        return begun

    def until(self, goal: str, *states: str, **env) -> None:
        """Wait till a goal has one of these states."""
        found, end = "", time.monotonic() + 60
        while found not in states:
            assert time.monotonic() < end, (goal, found)
            found = json.loads(self("goal", "show", goal, "--json", **env).out)["state"]
            time.sleep(0.3)


@pytest.fixture
def weekly(empty):
    """The example in a project, trusted."""
    import weekly_model
    from model_server import ModelServer

    example = os.path.join(ROOT, "examples", "weekly_report")
    shutil.copytree(example, empty.project, dirs_exist_ok=True)
    assert empty.run("trust", "--yes").status == 0
    with ModelServer(weekly_model.answer) as server:
        yield Weekly(empty, server)
