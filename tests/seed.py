"""The specification's own examples, word for word: what they say must hold unchanged."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "runners" / "seed_templates"

MANIFEST = (_FOLDER / "skill.yaml").read_text(encoding="utf-8")
"""The complete skill.yaml."""
PYTHON = (_FOLDER / "python" / "main.py").read_text(encoding="utf-8")
"""The template of a program in Python."""
