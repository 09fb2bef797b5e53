"""What did the user read of a served skill before approving it?

A server may list another skill between the reading and the approval. So what was shown is noted by
its mark, and an approval is for that and nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain, write_atomic
from satchel._language import Message
from satchel.errors import Refused

if TYPE_CHECKING:
    from satchel.library.supply import Supply
    from satchel.skill.model import Skill

_LONGEST = 200
_DIGITS = 12


class Shown(NamedTuple):
    """The notes of one user."""

    state: str
    """The folder for what was decided; empty when there is none."""

    def note(self, skill: Skill, supply: Supply) -> None:
        """A skill was shown as it is now. What cannot be noted was not shown."""
        if not self.state:
            return
        try:
            write_atomic(self._path(skill), supply.mark(skill).encode(), private=True)
        except OSError:
            return  # `check` says what to do

    def check(self, skill: Skill, supply: Supply) -> None:
        """See that a skill is what was shown.

        Raises:
            Refused: it is something else, or nobody looked at it.
        """
        hint = Message(
            "Read it with `satchel show {name}`, then run `satchel trust {name}`", name=skill.typed
        )
        try:
            mark = read_plain(self._path(skill), _LONGEST).decode("ascii", "replace")
        except OSError:
            mark = ""
        if not mark:
            raise Refused(
                f"The skill `{skill.name}` lies on a server, and was not read here yet", hint
            )
        if mark != supply.mark(skill):
            raise Refused(
                f"The skill `{skill.name}` changed on its server since you read it: it was "
                f"{short(mark)}, and is {short(supply.mark(skill))}",
                hint,
            )

    def _path(self, skill: Skill) -> str:
        from hashlib import sha256

        folder = os.path.realpath(skill.base_dir)
        name = sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()
        return os.path.join(self.state, "shown", name)


def short(mark: str) -> str:
    """As much of a mark as people compare."""
    return mark.removeprefix("sha256:")[:_DIGITS]
