"""How much room is there, how is it measured, and who got how much of it?"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from satchel._language import say
from satchel.errors import InvalidInput

Unit = Literal["characters", "tokens"]
Standing = Literal["full", "shortened", "named", "unlisted", "withheld"]

_NOT_ASCII = re.compile("[^\x00-\x7f]")
_WIDE = re.compile("[^\x00-\u07ff]")


class Budget(NamedTuple):
    """The room a catalogue may take.

    Tokens are estimated, because every model counts differently and a catalogue must not need a
    tokenizer: four ASCII characters are one token, two of the other alphabets (Latin with accents,
    Greek, Cyrillic, Hebrew, Arabic) are one, and each Chinese, Japanese, Korean, Indic or Thai
    character and each emoji is one. English prose comes out a little high, which is the safe side.
    """

    amount: int
    unit: Unit = "characters"

    @classmethod
    def of(cls, characters: int) -> Budget:
        """So many characters."""
        return cls(characters).checked()

    @classmethod
    def tokens(cls, amount: int) -> Budget:
        """So many tokens, as estimated."""
        return cls(amount, "tokens").checked()

    @classmethod
    def share(cls, part: float, window: int) -> Budget:
        """A part (0.02) of a model's context window in tokens.

        Raises:
            InvalidInput: the part is not between 0 and 1.
        """
        if not 0 <= part <= 1:
            raise InvalidInput(
                f"A share of the window lies between 0 and 1, and `{part}` does not",
                "Write 0.02 for two per cent",
            )
        return cls(int(part * window), "tokens").checked()

    def checked(self) -> Budget:
        """The budget itself.

        Raises:
            InvalidInput: it is less than nothing, or in an unknown unit.
        """
        if self.amount < 0:
            raise InvalidInput(
                f"A budget cannot be less than nothing: `{self.amount}`", "Write 12000"
            )
        if self.unit not in ("characters", "tokens"):
            raise InvalidInput(
                f"A budget is counted in characters or tokens, not in `{self.unit}`",
                "Write `tokens`",
            )
        return self

    @property
    def room(self) -> int:
        """The amount in the units of `weigh`."""
        return self.amount * 4 if self.unit == "tokens" else self.amount

    def weigh(self, text: str) -> int:
        """What `text` takes of `room`: characters, or quarters of a token.

        Parts can be weighed one by one: the whole weighs exactly their sum.
        """
        if self.unit == "characters" or text.isascii():
            return len(text)
        return len(text) + len(_NOT_ASCII.findall(text)) + 2 * len(_WIDE.findall(text))

    def measure(self, text: str) -> int:
        """How large `text` is in the unit of the budget, rounded up."""
        weight = self.weigh(text)
        return (weight + 3) // 4 if self.unit == "tokens" else weight


class Account(NamedTuple):
    """Where every skill went. The five parts together are `total`."""

    budget: int
    used: int
    total: int
    full: tuple[str, ...] = ()
    """Listed with their whole description."""
    shortened: tuple[str, ...] = ()
    """Listed with a part of it."""
    named: tuple[str, ...] = ()
    """Listed by name only."""
    unlisted: int = 0
    """Not listed; the block says how many there are and how to find them."""
    withheld: tuple[str, ...] = ()
    """Not for models: their authors set `disable-model-invocation`."""
    unit: Unit = "characters"
    unknown_pins: tuple[str, ...] = ()
    """Names that were to be pinned and that no listable skill has."""
    rules: bool = True
    """Whether the block says when and how to load a skill; False where only names had room."""

    def standing(self, name: str) -> Standing:
        """How the skill of that name stands in the block. Ask only about skills it was made of."""
        if name in self.full:
            return "full"
        if name in self.shortened:
            return "shortened"
        if name in self.named:
            return "named"
        return "withheld" if name in self.withheld else "unlisted"

    def summary(self) -> str:
        """The account in one sentence, for people. What there is none of is not named."""
        used = {"used": self.used, "budget": self.budget}
        room = (
            say("about {used} of {budget} tokens", **used)
            if self.unit == "tokens"
            else say("{used} of {budget} characters", **used)
        )
        if not self.total:
            return say("no skills; {room}", room=room)
        if len(self.full) == self.total:
            if self.total == 1:
                return say("1 skill, listed in full; {room}", room=room)
            return say("{total} skills, all listed in full; {room}", total=self.total, room=room)
        parts = (
            (len(self.full), say("{count} in full", count=len(self.full))),
            (len(self.shortened), say("{count} shortened", count=len(self.shortened))),
            (len(self.named), say("{count} by name", count=len(self.named))),
            (self.unlisted, say("{count} not listed", count=self.unlisted)),
            (len(self.withheld), say("{count} withheld from models", count=len(self.withheld))),
            (not self.rules, say("without the rules")),
        )
        named = say(", ").join(words for count, words in parts if count)
        if self.total == 1:
            return say("1 skill: {parts}; {room}", parts=named, room=room)
        return say("{total} skills: {parts}; {room}", total=self.total, parts=named, room=room)
