"""Skills that lie nowhere, for tests that read no file."""

from __future__ import annotations

from satchel.skill import Skill, SkillHeader, SkillOrigin

ORIGIN = SkillOrigin("/somewhere/skills", "user", "skills")


def skill(
    name: str,
    description: str = "Does things.",
    id: str | None = None,  # noqa: A002 - as the record calls it
    *,
    origin: SkillOrigin = ORIGIN,
    stamp: int = 0,
    **extra: object,
) -> Skill:
    """A skill. Keys of `extra` are frontmatter keys with `_` for `-`."""
    keys = {key if key == "when_to_use" else key.replace("_", "-"): extra[key] for key in extra}
    where = (name if id is None else id, "SKILL.md", stamp, stamp, stamp)
    return Skill(SkillHeader(name, description, *where, keys or None), origin)
