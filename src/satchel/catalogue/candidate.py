"""What does it cost to list one skill: by name, with some of its description, with all of it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.catalogue.escape import clean
from satchel.catalogue.render import Entry
from satchel.catalogue.shorten import MORE, sentence_ends, shorten

if TYPE_CHECKING:
    from satchel.catalogue.budget import Budget
    from satchel.catalogue.render import Form
    from satchel.skill.model import Skill

LONGEST_NAME = 256
"""A longer name cannot be shown. Libraries read none: folders end there too."""
_LONGEST_ID = 200
_LONGEST_HINT = 60


class Description:
    """What is said about one skill, at any length."""

    __slots__ = ("_ends", "_form", "_frame", "_frame_cost", "_scale", "_simple", "_whole", "text")

    def __init__(self, skill: Skill, shown: str, form: Form, scale: Budget) -> None:
        hint, identity = clean(skill.argument_hint), clean(skill.id)
        hint_part = shorten(hint, _LONGEST_HINT, ())
        same = identity == shown
        id_part = "" if same else shorten(identity, _LONGEST_ID, ())
        raw = f"{skill.description} {skill.when_to_use}"
        self.text = clean(raw[: scale.room])
        self._whole = hint_part == hint and (same or (id_part == identity != ""))
        if len(raw) > scale.room:  # more cannot fit, so it was not looked at
            self.text += MORE
            self._whole = False
        self._form = form
        self._scale = scale
        self._frame = form.frame(Entry(shown, id_part, hint_part, clean(skill.origin.remote)))
        self._frame_cost = scale.weigh("".join(self._frame) + form.between)
        self._ends = sentence_ends(self.text)
        # Text that needs no quoting and counts one a character is weighed by its length.
        self._simple = scale.unit == "characters" and form.text(self.text) == self.text

    def cost(self, limit: int) -> int:
        """The price of an entry with at most `limit` characters of description."""
        text = shorten(self.text, limit, self._ends)
        weight = len(text) if self._simple else self._scale.weigh(self._form.text(text))
        return self._frame_cost + weight

    def write(self, limit: int) -> str:
        """The entry."""
        start, end = self._frame
        return f"{start}{self._form.text(shorten(self.text, limit, self._ends))}{end}"

    def is_full(self, limit: int) -> bool:
        """Whether nothing is missing at this length."""
        return self._whole and len(self.text) <= limit


class Candidate:
    """A skill that may be listed."""

    __slots__ = ("_description", "_form", "_scale", "_shown", "name", "name_cost", "place", "skill")

    def __init__(self, skill: Skill, shown: str, place: int, form: Form, scale: Budget) -> None:
        """Take a skill.

        Args:
            skill: The skill.
            shown: Its `shown_name`.
            place: Where it stands among all; -1 when it is pinned.
            form: How it is written.
            scale: How it is weighed.
        """
        self.skill = skill
        self.place = place
        self._shown = shown
        # A name alone must not pass for one of ours either.
        origin = skill.origin.remote
        self.name = form.name(f"{shown} [{clean(origin)}]" if origin else shown)
        self.name_cost = scale.weigh(self.name + form.names_between)
        self._form = form
        self._scale = scale
        self._description: Description | None = None

    @property
    def description(self) -> Description:
        """Worked out when asked for: most candidates of a large library never are."""
        if self._description is None:
            self._description = Description(self.skill, self._shown, self._form, self._scale)
        return self._description


def shown_name(skill: Skill) -> str:
    """The name as it stands in a block; empty when it cannot stand there."""
    name = skill.head.name
    return clean(name) if len(name) <= LONGEST_NAME else ""
