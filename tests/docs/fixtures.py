"""How can a page's folder look before its first block? One function each.

A page asks with `<!-- fixture: NAME -->`. Prefer a block with a title: the reader sees that file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")


def three_skills(folder: str) -> None:
    """The project that the guides use: three small skills in the folder `skills`."""
    shutil.copytree(os.path.join(EXAMPLES, "guide"), folder, dirs_exist_ok=True)


def broken_skill(folder: str) -> None:
    """A skill whose description has a colon that YAML does not allow there."""
    target = os.path.join(folder, "skills", "changelog")
    shutil.copytree(os.path.join(EXAMPLES, "broken", "changelog"), target, dirs_exist_ok=True)


def git(folder: str) -> None:
    """The folder is a git repository."""
    subprocess.run(["git", "init", "--quiet", folder], check=True)


FIXTURES: dict[str, Callable[[str], None]] = {
    "three-skills": three_skills,
    "broken-skill": broken_skill,
    "git": git,
}
