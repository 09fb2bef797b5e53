"""What does somebody want? A goal as words of the command line, from a file or from stdin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.cli.output import one_line
from satchel.errors import InvalidInput, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.session import Session
    from satchel.facade import Satchel
    from satchel.skill.model import Skill

STDIN = "-"
MOST = 1 << 20
"""Bytes of a goal that are read."""
_QUOTED = 60
"""A goal up to this long is repeated in a command to type."""


def read_goal(
    session: Session, words: Sequence[str], file: str | None, such_as: str = "satchel which"
) -> str:
    """The goal, however it was given.

    Args:
        session: The terminal.
        words: What stands on the command line; `-` alone means stdin.
        file: Where it stands instead; `-` means stdin.
        such_as: What comes before a goal, for the hint.

    Raises:
        InvalidInput: there is none, or there are two, or it is no text.
        NotFound: there is no such file.
        Refused: the file cannot be read.
    """
    given = " ".join(words).strip()
    if given == STDIN and file is None:
        given, file = "", STDIN
    if given and file is not None:
        raise InvalidInput(
            say("The goal is there twice: as words, and in `{path}`", path=one_line(file)),
            say("Leave one of them out"),
        )
    text = given if file is None else _read(session, file)
    if not text.strip():
        raise InvalidInput(
            say("There is no task") if such_as == "satchel run" else say("There is no goal"),
            say("Say what is wanted: `{command} {goal}`", command=such_as,
                goal='"review this pull request"'),
        )  # fmt: skip
    return text


def _read(session: Session, file: str) -> str:
    if file == STDIN:
        if sys.stdin.isatty():
            session.err.line(say("Write what you want; Ctrl-D on a line of its own ends it"), "dim")
        data = sys.stdin.buffer.read(MOST + 1)
    else:
        try:
            with open(file, "rb") as stream:
                data = stream.read(MOST + 1)
        except FileNotFoundError as exc:
            raise NotFound(
                say("There is no `{path}`", path=one_line(file)),
                say("Give `--file` a text file, or `-` for what comes in by stdin"),
            ) from exc
        except (OSError, ValueError) as exc:
            reason = getattr(exc, "strerror", None) or str(exc)
            raise Refused(
                say("`{path}` cannot be read: {reason}", path=one_line(file), reason=reason),
                say("Check its permissions"),
            ) from exc
    if b"\0" in data:
        raise InvalidInput(
            say("`{path}` is not text", path=one_line(file)), say("Give the path of a text file")
        )
    if len(data) > MOST:
        data = data[:MOST]
        session.err.line(say("Only the first {count} bytes of the goal are read", count=MOST))
    return data.decode("utf-8-sig", "replace")


def offered(session: Session, name: str) -> Skill:
    """The offered skill of that name, for `--skill`.

    Raises:
        NotFound: there is no such skill.
        Refused: there is one, and it is not offered.
    """
    skill = session.find(name)[0]
    if skill.state != "active" or skill.is_tool:
        raise Refused(
            say("The skill `{name}` is not offered, so it cannot be chosen",
                name=one_line(skill.name)),
            say("See why: `satchel why {name}`", name=skill.typed),
        )  # fmt: skip
    return skill


def overruled(satchel: Satchel, use: Sequence[Skill], never: Sequence[Skill]) -> Satchel:
    """The same project, with a detector that somebody has a say in.

    Raises:
        InvalidInput: one skill is both to be chosen and not.
    """
    if not use and not never:
        return satchel
    barred = {skill.path for skill in never}
    both = next((skill for skill in use if skill.path in barred), None)
    if both is not None:
        raise InvalidInput(
            say("`{name}` is given both with `--skill` and with `--never`",
                name=one_line(both.name)),
            say("Leave one of them out"),
        )  # fmt: skip
    from satchel.facade import Satchel as Made

    detector = satchel.detector.overriding(use, never)
    return Made(satchel.library, satchel.settings, detector=detector)


def repeated(goal: str) -> str:
    """The goal as it can be typed again; a long or odd one is left to the reader."""
    text = " ".join(goal.split())
    if len(text) > _QUOTED or not text.isprintable() or any(char in text for char in "`\"\\$!'"):
        return '"…"'
    return f'"{text}"'
