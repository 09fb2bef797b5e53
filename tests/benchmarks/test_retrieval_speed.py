"""The benchmark of retrieval runs and has its figures; how fast it is, is not for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_the_benchmark_runs_and_has_its_figures(root, tmp_path):
    out = tmp_path / "speed.json"
    script = os.path.join(root, "benchmarks", "retrieval_speed.py")
    done = subprocess.run(
        [sys.executable, script, "--sizes", "300", "--goals", "6", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": os.path.join(root, "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "detector, long, p99" in done.stdout
    figures = json.loads(out.read_text("utf-8"))["sizes"]["300"]
    for kind in ("short", "long"):
        asked = figures["query ms"][kind]
        assert {"bare", "bare, apart", "index", "legs", "ranking", "detector"} <= set(asked)
        assert asked["bare"]["p50 / bare"] == 1.0
        assert asked["detector"]["goals"] == 6
    assert figures["build s"]["index"]["cpu"] > 0
    assert figures["update ms"]["detector"]["wall"] > 0
    assert figures["memory MB"]["index"]["mapped"] > 0
