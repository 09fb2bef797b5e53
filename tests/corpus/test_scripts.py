"""Scripts of real skills: nearly all have a launch plan, and the others have an exact reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from sizes import sized

pytestmark = pytest.mark.timeout(300)


def test_nearly_all_scripts_have_a_launch_plan(root, whole_skills, tmp_path):
    out = tmp_path / "figures.json"
    script = os.path.join(root, "benchmarks", "scripts.py")
    subprocess.run([sys.executable, script, "--skills", whole_skills, "--out", out], check=True)
    figures = json.loads(out.read_text("utf-8"))
    languages = figures["languages"]
    assert {"Python", "shell", "JavaScript"} <= set(languages)
    counts = [sum(sources.values()) for sources in languages.values()]
    assert sum(counts) >= sized(200, 1_131)
    refused = sum(sources.get("refused", 0) for sources in languages.values())
    assert refused <= 0.05 * sum(counts), figures["reasons"]
    assert sum(figures["reasons"].values()) == refused
