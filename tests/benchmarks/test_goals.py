"""The benchmark prints every goal; how fast anything is, is not for a test to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.soak

ROWS = [
    "cold discovery, 60, / Python limit",
    "cold discovery, 60, / limit that looks for nested skills",
    "cold discovery, real frontmatters, / C loader",
    "cold discovery, fastest correct Python peer / satchel",
    "cold discovery, openskills list / satchel",
    "warm start, 60, nothing changed, / own cold",
    "warm start, 60, nothing changed, / scandir + stat",
    "warm start, 60, one changed, / own cold",
    "warm start, 60, one changed, / scandir + stat",
    "refresh, 60, nothing changed, / scandir + stat",
    "refresh, 60, with the watcher",
    "memory per skill, 60, resident",
    "memory per skill, 60, as Python counts",
    "bare install, packages",
    "bare install, size",
    "`import satchel`, net of python",
    "`from satchel import Satchel`, net of python",
    "terminal packages that it imports",
    "`satchel list` of 100 skills, / python -c pass",
    "`satchel --version`, / python -c pass",
    "catalogue, time at 60 / at 20",
    "catalogue, size of the block",
    "catalogue, tokens per listed skill, 60 skills",
    "load by name, 60, body in cache",
    "load by name, 60, body not in cache",
    "load by name, 60 / 100",
    "broken files: 21 kinds one by one, and together",
]


@pytest.mark.timeout(240)
def test_a_quick_run_prints_every_goal(root, tmp_path):
    out = tmp_path / "goals.json"
    script = os.path.join(root, "benchmarks", "goals.py")
    work = str(tmp_path / "work")
    done = subprocess.run(
        [sys.executable, script, "--quick", "--workdir", work, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for row in ROWS:
        assert row in done.stdout
    sections = json.loads(out.read_text("utf-8"))["sections"]
    found = {row["what"]: row for section in sections.values() for row in section["rows"]}
    assert set(ROWS) <= set(found)
    broken = found["broken files: 21 kinds one by one, and together"]
    assert broken["figure"]["value"] == 22, broken["note"]
    assert found["terminal packages that it imports"]["figure"]["value"] == 0
