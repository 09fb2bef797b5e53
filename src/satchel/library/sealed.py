"""What was verified of a skill, and what is ready to be approved. `seal.py` makes both."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from satchel.library.survey import Survey
    from satchel.skill.model import Skill
    from satchel.skill.tree import Seal


class Sealed(NamedTuple):
    """A folder that was verified; the very same object as long as nothing in it changes."""

    path: str
    """The folder as it was asked for: the skill's, or that of the locked skill around it."""
    real: str
    only: frozenset[str] | None
    seal: Seal
    rows: Survey
    left: tuple[str, ...] = ()
    """What Python and desktops left in it since, and nobody approved: not part of `seal`. Only a
    look that deletes nothing finds any."""

    def holds(self, real: str, digest: str) -> bool:
        """Whether a file, by its real path, is part of it with this content.

        Args:
            real: The real path of a regular file.
            digest: The hexadecimal SHA-256 of what was read of it.
        """
        return self.has(os.path.relpath(real, self.real).replace(os.sep, "/"), digest)

    def has(self, path: str, digest: str) -> bool:
        """The same by the path below the folder, with `/`."""
        mark = self.seal.files.get(path, "")
        if mark.startswith("link:"):
            real = os.path.realpath(os.path.join(self.path, path))
            path = os.path.relpath(real, self.real).replace(os.sep, "/")
            mark = self.seal.files.get(path, "")
        return mark.removesuffix(" x") == f"sha256:{digest}"


class Taken(NamedTuple):
    """A skill as it is now, ready to be approved."""

    skill: Skill
    seal: Seal
    """Without what Python and desktops generate: nobody reads that before approving it."""
    head: str
