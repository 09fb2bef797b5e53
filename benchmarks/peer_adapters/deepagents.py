"""deepagents: `SkillsMiddleware.before_agent` over its filesystem backend, as an agent starts.

The backend maps its folder to `/` (its default).
"""

from typing import Any

from deepagents.backends.filesystem import FilesystemBackend
from deepagents.middleware.skills import SkillsMiddleware


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    middleware = SkillsMiddleware(backend=FilesystemBackend(root_dir=root), sources=["/"])
    return middleware.before_agent({}, None, {})


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill["name"], skill["description"]) for skill in found["skills_metadata"]]
