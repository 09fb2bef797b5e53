"""A complete `skill.yaml` and the smallest program, in the format of the specification."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "runners" / "seed_templates"

MANIFEST = (_FOLDER / "skill.yaml").read_text(encoding="utf-8")
"""The complete skill.yaml."""
PYTHON = (_FOLDER / "python" / "main.py").read_text(encoding="utf-8")
"""The smallest program in Python."""
