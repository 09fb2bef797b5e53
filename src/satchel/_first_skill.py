"""The skill that `init` writes: an example, or an empty one under another name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.store.store import Store

FIRST = "hello-skill"
"""What `init` writes when it is given no name."""
_DESCRIPTION = "Greets somebody by name. Use when the user asks for a greeting or a welcome."
_BODY = "Write one friendly sentence that greets: $ARGUMENTS\n\nIf no name was given, ask for one."


def add_first_skill(store: Store, name: str) -> str:
    """Add a skill of that name, as one change that can be undone; returns its SKILL.md.

    Raises:
        InvalidInput: the name cannot be a skill's name, or the skill exists.
    """
    texts = (_DESCRIPTION, _BODY) if name == FIRST else ()
    with store.plan_add(name, *texts, skill_id=name) as plan:
        store.insist(plan)
        store.carry_out(plan)
    return os.path.join(store.scope.target(name), "SKILL.md")
