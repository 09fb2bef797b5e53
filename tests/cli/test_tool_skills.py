"""Tool skills in `list`, `show`, `why`, `trust`, `import` and `verify`."""

from __future__ import annotations

import json
import os

import pytest

from satchel.testing import make_skill, make_tool_skill

WANTS = (
    "network: true\nsecrets: [API_KEY]\nfiles: write\n"
    "parameters:\n  - {name: path, type: string, required: true, description: 'A path: a.txt'}\n"
)


@pytest.fixture
def bench(empty):
    make_tool_skill(empty.project / "skills", "sheets", tool="sheets_read", more=WANTS)
    make_tool_skill(empty.project / "skills", "calm")
    make_skill(empty.project / "skills", "words")
    return empty


def test_before_trust_everything_it_wants_is_shown(bench):
    shown = bench.run("show", "sheets")
    assert shown.status == 0
    for words in ("sheets_read", "path (string)", "main.py", "the network", "`API_KEY`", "change"):
        assert words in shown.out


def test_trust_makes_it_listed(bench):
    assert "sheets" not in bench.run("list").out
    every = bench.run("list", "--all").out
    assert "sheets_read" in every
    assert "untrusted" in every
    done = bench.run("trust", "--yes", "--json")
    account = json.loads(done.out)
    assert sorted(account["skills"]) == ["skills/calm", "skills/sheets", "skills/words"]
    assert sorted(account["programs"]) == ["skills/calm", "skills/sheets"]
    listed = bench.run("list")
    assert "sheets_read" in listed.out
    assert listed.err == "3 skills\n"
    rows = {row["name"]: row for row in json.loads(bench.run("list", "--json").out)}
    assert rows["sheets"]["tools"] == ["sheets_read"]
    assert "tools" not in rows["words"]
    with open(bench.project / "skills" / "sheets" / "main.py", "a", encoding="utf-8") as file:
        file.write("# more\n")
    assert bench.run("why", "sheets").out.startswith("sheets: offered\n")
    assert bench.run("trust", "--revoke").status == 0
    assert "not offered (untrusted)" in bench.run("why", "sheets").out


def test_an_import_says_what_the_program_may_use(bench, tmp_path):
    make_tool_skill(tmp_path / "elsewhere", "image", more=WANTS)
    done = bench.run("install", str(tmp_path / "elsewhere" / "image"), "--dry-run")
    assert done.status == 0
    told = "its program may: use the network, read and change the project's files, get the secret"
    assert f"{told} `API_KEY`" in " ".join(done.err.split())
    assert bench.run("install", str(tmp_path / "elsewhere" / "image"), "--yes").status == 0
    assert "image_run" in bench.run("list").out
    assert bench.run("verify").status == 0
    os.unlink(bench.project / ".agents" / "skills" / "image" / "main.py")
    assert bench.run("verify").status != 0
    assert bench.run("install", "--frozen", "--yes").status == 0
    assert bench.run("remove", "image", "--yes").status == 0
    assert "image_run" not in bench.run("list", "--all").out
