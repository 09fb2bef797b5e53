"""The pictures in the README show what the commands print."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.timeout(120)  # runs every command that a picture shows
def test_the_pictures_are_fresh():
    script = os.path.join(ROOT, "scripts", "pictures.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
