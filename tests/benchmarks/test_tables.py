"""The pages show the figures that are kept, and the kept figures name no place of a machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys


def test_the_pages_show_the_kept_figures(root):
    script = os.path.join(root, "benchmarks", "tables.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_kept_figures_name_no_place(root):
    folder = os.path.join(root, "benchmarks", "results")
    names = sorted(os.listdir(folder))
    assert "goals.json" in names
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        assert not re.search(r"\"/\w|/(?:home|root|tmp|work)/", text), name
