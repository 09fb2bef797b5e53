"""How does a user's first skill come to be? `init` writes it, and trusts it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import AccessDenied, InvalidInput, Refused
from satchel.library.locations import user_folder

if TYPE_CHECKING:
    from satchel.library import Library
    from satchel.settings import Settings

FIRST = "hello-skill"
"""What `init` writes when it is given no name."""


def write_first_skill(library: Library, settings: Settings, name: str) -> str:
    """Write a skill of that name into the user's folder and trust it; returns its SKILL.md."""
    from satchel._fs import is_really_inside, write_atomic

    _check_name(name)
    folder = os.path.join(user_folder(settings), name)
    path = os.path.join(folder, "SKILL.md")
    if os.path.lexists(folder):
        # Whatever is in there is not ours: making it trusted would trust that too.
        raise InvalidInput(
            say("The skill `{name}` exists already", name=name),
            say("Edit `{path}`", path=os.path.relpath(path, settings.project)),
        )
    title = name.replace("-", " ").capitalize()
    text = _FIRST_SKILL if name == FIRST else _NEW_SKILL
    if not is_really_inside(user_folder(settings), settings.project):
        raise AccessDenied(
            say("`{path}` leads outside the project", path=user_folder(settings)),
            say("Replace the link by a folder"),
        )
    try:
        write_atomic(path, text.format(name=name, title=title).encode())
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Check the permissions of the project's folder"),
        ) from exc
    library.trust.approve(folder, "own")
    library.refresh()
    return path


def _check_name(name: str) -> None:
    from satchel.skill.interpret import MAX_NAME, NAME, slug

    if not NAME.fullmatch(name):
        raise InvalidInput(
            say("`{name}` cannot be a skill's name: use a-z, 0-9 and single hyphens", name=name),
            say("Try `{name}`", name=slug(name)),
        )
    if len(name) > MAX_NAME:
        raise InvalidInput(
            say("A skill's name has at most {limit} characters", limit=MAX_NAME),
            say("Try `{name}`", name=slug(name)),
        )


_FIRST_SKILL = """\
---
name: {name}
description: Greets somebody by name. Use when the user asks for a greeting or a welcome.
---
# {title}

Write one friendly sentence that greets: $ARGUMENTS

If no name was given, ask for one.
"""
_NEW_SKILL = """\
---
name: {name}
description: To be written. Say what this skill does and when to use it, in one or two sentences.
---
# {title}

To be written: the steps to take, in order, and how to know that the work is done.

What the user gave: $ARGUMENTS
"""
