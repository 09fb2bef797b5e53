"""skills-ref: it has no discovery; this is the loop inside its `to_prompt`, without the text.

Like `to_prompt`, the loop stops at the first folder that cannot be read.
"""

from pathlib import Path
from typing import Any

from skills_ref import read_properties


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    return [read_properties(folder) for folder in sorted(Path(root).iterdir()) if folder.is_dir()]


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill.name, skill.description) for skill in found]
