"""A fault of a skill's files has one code and one sentence, in whichever view it is shown.

The nine views are `list`, `show`, `why`, `check`, `doctor`, `scan`, the browser, its editor, and
the errors of a tool call, which an MCP client sees. The others are compared with `doctor`.
"""

from __future__ import annotations

import json
import os
import re
from html import unescape
from typing import TYPE_CHECKING, NamedTuple

import pytest
from starlette.testclient import TestClient

from faulty_skills import FILE_FAULTS, write
from satchel import Satchel
from satchel.skill.problems import PROBLEMS
from satchel.ui.auth import UiAccess
from satchel.ui.server import make_app
from warm_start import warm_start

if TYPE_CHECKING:
    from pathlib import Path

    from satchel.skill.problems import Problem

pytestmark = pytest.mark.timeout(300)
ORIGIN = "http://127.0.0.1"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OTHER_FAULTS = {
    # Of settings, the machine, the cache and the lockfile.
    "change-interrupted", "embeddings-unusable", "include-unmatched", "index-damaged",
    "index-unsaved", "lock-broken", "package-broken", "project-setting", "sandbox-missing",
    "sandbox-off", "search-plain", "setting-near", "setting-refused", "setting-unknown",
    "setting-wrong", "variable-unknown",
    # Of servers and what they list.
    "served-refused", "served-renamed", "served-shadowed", "server-address", "server-limit",
    "server-nested", "server-stale", "server-unreachable",
    # Of a folder of skills, and of several skills together.
    "duplicate-name", "folder-without-skill", "link-loop", "loose-file", "outside-root", "shadowed",
    "too-deep", "too-many", "tool-name-packaged", "tool-name-taken", "tool-nested",
    # States of a skill, which `test_doors` compares, and of its tools.
    "blocked", "grant-ended", "modified", "needs-setup", "not-scannable", "revoked",
    "tool-not-offered", "tool-not-ready", "unpinned", "unreadable", "untrusted",
    # Of the end of a large file, of which the library reads the beginning.
    "frontmatter-too-large",
    # With an option only: `check --spec`, `check --run`, the parser's `strict`.
    "name-unusable", "not-in-spec", "not-strict", "tool-packages",
}  # fmt: skip
NOT_IN_TEXT = (
    "bom", "evals", "file-case", "invalid-utf8", "not-a-file", "not-text",
    "script-", "tool-file-name", "triggers", "two-files", "wide-encoding",
)  # fmt: skip
"""The editor shows the problems of a text: not of other files, nor what no text box can hold."""


class World(NamedTuple):
    """A project with a skill for each fault, and what its views show."""

    project: Path
    satchel: Satchel
    client: TestClient
    listed: str
    checked: dict[str, list[dict]]
    scanned: dict[str, str]

    def command(self, *words: str) -> str:
        env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "src"), "COLUMNS": "5000"}
        return warm_start().run(words, str(self.project), env, "")[1]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base = tmp_path_factory.mktemp("faults")
    project = base / "project"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SATCHEL_HOME", "home"), ("HOME", "home")):
            patch.setenv(name, str(base / value))
        patch.setenv("SATCHEL_TRUST", "all")
        patch.setenv("SATCHEL_BUILTIN", "false")
        for code in FILE_FAULTS:
            write(project / ".agents/skills" / f"f-{code}", code)
        satchel = Satchel.for_project(project, packaged=False)
        access = UiAccess()
        with TestClient(make_app(satchel, access), base_url=ORIGIN) as client:
            client.get(f"/enter?token={access.new_link()}")
            opened = World(project, satchel, client, "", {}, {})
            rows = json.loads(opened.command("check", "--json"))
            scans = json.loads(opened.command("scan", "--all", "--json"))
            yield opened._replace(
                listed=opened.command("list", "--all"),
                checked={row["name"]: row["boxes"] for row in rows},
                scanned={os.path.basename(row["path"]): row["verdict"] for row in scans},
            )
        satchel.close()


@pytest.fixture(scope="module")
def diagnosed(world) -> dict[str, Problem]:
    """The problem that `doctor` shows for each fault."""
    problems: dict[str, Problem] = {}
    for problem in world.satchel.problems(deep=True):
        if f"/f-{problem.code}/" in problem.path:
            problems.setdefault(problem.code, problem)
    return problems


def words(text: str) -> str:
    """A text of a page or a terminal without marks, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).replace("`", "").split())


def test_every_problem_of_the_table_is_classified():
    assert {*FILE_FAULTS} | OTHER_FAULTS == {*PROBLEMS}
    assert not OTHER_FAULTS.intersection(FILE_FAULTS)


def test_doctor_shows_every_fault(diagnosed):
    assert {*diagnosed} == {*FILE_FAULTS}


@pytest.mark.parametrize("code", FILE_FAULTS)
def test_the_views_show_the_same(world, diagnosed, code):
    problem, name = diagnosed[code], f"f-{code}"
    sentence, is_error = words(problem.message), problem.severity == "error"
    expected = (code, problem.severity, problem.line or None, problem.message, problem.fix)
    fields = ("code", "severity", "line", "message", "fix")

    rows = json.loads(world.command("why", name, "--json"))["problems"]
    assert expected in [tuple(row[field] for field in fields) for row in rows], "why"
    shown = json.loads(world.command("show", name, "--json"))
    if is_error:
        assert sentence in words(shown["error"]["message"]), "show"
        (row,) = (line for line in world.listed.splitlines() if f" {name} " in line)
        assert sentence in words(row), "list"
    else:
        rows = shown["problems"]
        assert expected in [tuple(row[field] for field in fields) for row in rows], "show"
    boxes = world.checked[name]
    assert expected in [tuple(box[field] for field in fields) for box in boxes], "check"
    assert world.scanned.get(name, "no findings") == "no findings", "scan"

    ref = problem.path if is_error else f".agents/skills/{name}"
    page = words(world.client.get("/skill", params={"ref": ref}).text)
    assert f"{code}" in page, "browser"
    assert sentence in page, "browser"
    if not code.startswith(NOT_IN_TEXT):
        editor = world.client.get("/skill/edit", params={"ref": ref}).text
        assert sentence in words(editor), "editor"
    tool = "/skill.y" in problem.path and f"f_{code.replace('-', '_')}_run"
    call = (tool, {}) if tool else ("Skill", {"name": name})
    reply = world.satchel.tools().call(*call)
    if is_error:
        assert sentence in words(str(reply.error and reply.error.message)), "mcp"
