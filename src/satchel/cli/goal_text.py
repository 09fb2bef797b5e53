"""Reads a goal from arguments, a file or stdin, and the skills that a request names or excludes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from satchel.cli.console import one_line
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill

_STDIN = "-"
_MAX_GOAL_BYTES = 1 << 20
_MAX_QUOTED_CHARS = 60


def read_goal(
    context: CliContext, words: Sequence[str], file: str | None, such_as: str = "satchel which"
) -> str:
    """Read the goal from arguments or `--file`; `-` means stdin. `such_as` is for the hint."""
    given = " ".join(words).strip()
    if given == _STDIN and file is None:
        given, file = "", _STDIN
    if given and file is not None:
        raise InvalidInput(
            say("The goal is there twice: as words, and in `{path}`", path=one_line(file)),
            say("Leave one of them out"),
        )
    text = given if file is None else _read_file(context, file)
    if not text.strip():
        raise InvalidInput(
            say("There is no task") if such_as == "satchel run" else say("There is no goal"),
            say("Say what is wanted: `{command} {goal}`", command=such_as,
                goal='"review this pull request"'),
        )  # fmt: skip
    return text


def _read_file(context: CliContext, file: str) -> str:
    if file == _STDIN and sys.stdin.isatty():
        context.err.line(say("Write what you want; Ctrl-D on a line of its own ends it"), "dim")
    hint = say("Give `--file` a text file, or `-` for what comes in by stdin")
    data = read_bytes(file, _MAX_GOAL_BYTES, hint)
    if b"\0" in data:
        raise InvalidInput(
            say("`{path}` is not text", path=one_line(file)), say("Give the path of a text file")
        )
    if len(data) > _MAX_GOAL_BYTES:
        data = data[:_MAX_GOAL_BYTES]
        context.err.line(
            say("Only the first {count} bytes of the goal are read", count=_MAX_GOAL_BYTES)
        )
    return data.decode("utf-8-sig", "replace")


def read_bytes(path: str, max_bytes: int, hint: str) -> bytes:
    """Read a file, or stdin for `-`, up to one byte beyond the limit; `hint` if it is missing."""
    try:
        if path == _STDIN:
            return sys.stdin.buffer.read(max_bytes + 1)
        with open(os.path.expanduser(path), "rb") as stream:
            return stream.read(max_bytes + 1)
    except FileNotFoundError as exc:
        raise NotFound(say("There is no `{path}`", path=one_line(path)), hint) from exc
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=one_line(path), reason=reason),
            say("Check its permissions"),
        ) from exc


def offered(context: CliContext, name: str) -> Skill:
    """Find the offered skill of a name, for `--skill`."""
    skill = context.find(name)[0]
    if skill.state != "active" or skill.is_tool:
        raise Refused(
            say("The skill `{name}` is not offered, so it cannot be chosen",
                name=one_line(skill.name)),
            say("See why: `satchel why {name}`", name=skill.typed),
        )  # fmt: skip
    return skill


def with_overrides(satchel: Satchel, use: Sequence[Skill], never: Sequence[Skill]) -> Satchel:
    """The project with a detector that always chooses `use` and never `never`."""
    if not use and not never:
        return satchel
    excluded = {skill.path for skill in never}
    both = next((skill for skill in use if skill.path in excluded), None)
    if both is not None:
        raise InvalidInput(
            say("`{name}` is given both with `--skill` and with `--never`",
                name=one_line(both.name)),
            say("Leave one of them out"),
        )  # fmt: skip
    from satchel.satchel import Satchel as Made

    detector = satchel.detector.overriding(use, never)
    return Made(satchel.library, satchel.settings, detector=detector)


def quote_goal(goal: str) -> str:
    """Quote the goal for a command in a hint; `"…"` if it is long or has special characters."""
    text = " ".join(goal.split())
    is_plain = text.isprintable() and not any(char in text for char in "`\"\\$!'")
    return f'"{text}"' if is_plain and len(text) <= _MAX_QUOTED_CHARS else '"…"'
