"""openskills: `openskills list`, the whole command, which is all that it offers its users.

CPU time is that of the command, start of Node included. The memory shown is not Node's.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def scan(root: str) -> Any:
    """Run the command in a project whose skills are `root`: this is timed."""
    with tempfile.TemporaryDirectory() as project:
        Path(project, ".agent").mkdir()
        Path(project, ".agent", "skills").symlink_to(root)
        done = subprocess.run(
            ["node", os.environ["OPENSKILLS_BUNDLE"], "list"],
            cwd=project,
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    rows: list[tuple[str, str]] = []
    name = ""
    for line in str(found).splitlines():
        if line.startswith("    "):
            rows.append((name, line.strip()))
        elif line.startswith("  "):
            name = line.split()[0]
    return rows
