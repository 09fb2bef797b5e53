"""The benchmark of tool skills runs, and its tables stand; how fast it is, is not for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from needs import needs

pytestmark = pytest.mark.soak


@pytest.mark.timeout(120)
def test_the_benchmark_runs_and_has_its_tables(root, tmp_path):
    needs("bwrap")
    out = tmp_path / "tools.json"
    script = os.path.join(root, "benchmarks", "tools.py")
    done = subprocess.run(
        [sys.executable, script, "--rounds", "2", "--part", "warm", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": os.path.join(root, "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Python worker / its pipe" in done.stdout
    kept = json.loads(out.read_text("utf-8"))
    assert kept["warm"]["against"]["python warm / pipe"]["rounds"] == 2
