"""What did a text say about skills, and what is left of it when that is taken out?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect import phrases as say_so
from satchel.detect.denials import denial, is_asked
from satchel.detect.names import wordy
from satchel.detect.words import STOP

if TYPE_CHECKING:
    from satchel.detect.mentions import Item
    from satchel.detect.names import Text

SAID = 80
"""Characters of the text that a call quotes."""
TOKEN = re.compile(r"[^\W_](?:[\w.:/+#@-]{0,78}[\w+#])?").match
"""What may be a name, whether something has it or not."""


class Call(NamedTuple):
    """One skill that was named."""

    at: int
    wanted: bool
    said: str
    """The words that named it."""


class Told:
    """Grows while a text is listened to."""

    def __init__(self, text: Text, amid: str, quotes: str) -> None:
        self.text = text
        self._others = (amid, quotes)
        self.calls: list[Call] = []
        self.unknown: dict[str, None] = {}
        """Names that nothing has."""
        self.unheard = len(amid)
        """Characters amid a long text that were not listened to."""
        self.none = False
        """No skill at all is wanted."""
        self.cuts: list[tuple[int, int]] = []
        """From where to where something is said about skills."""

    @property
    def said(self) -> bool:
        """Whether anything was said about skills."""
        return bool(self.cuts or self.calls or self.unknown)

    def rest(self) -> str | None:
        """What the text says beside its calls: that is what it is about; None without calls."""
        if not self.said:
            return None
        parts: list[str] = []
        past = 0
        for start, end in sorted(self.cuts):
            parts.append(self.text.plain[past : max(past, start)])
            past = max(past, end)
        parts += [self.text.plain[past:], *self._others]
        return " ".join(part.strip() for part in parts if part.strip())

    def tell(
        self,
        items: list[Item],
        start: int,
        end: int,
        *,
        wanted: bool,
        only_marked: bool = False,
    ) -> None:
        """Names were called, or ruled out, from `start` to `end`; a question tells nothing."""
        items = [item for item in items if item.marked or not only_marked]
        if not items or is_asked(self.text.low, start):
            return
        said = " ".join(self.text.plain[start:end].split())[:SAID]
        told = False
        for item in items:
            if item.at >= 0:
                self.calls.append(Call(item.at, wanted, said))
                told = True
            elif wanted and item.word and not only_marked:
                self.unknown.setdefault(item.word)
                told = True
        if told:
            self.cut(start, end, wanted=wanted)

    def cut(self, start: int, end: int, *, wanted: bool) -> None:
        """What names a skill does not say what it is wanted for."""
        if not wanted:
            found = denial(self.text.low, start)
            start = start if found is None else _whole(self.text.low, found.start)
            after = say_so.NOT_AFTER(self.text.low, end)
            end = after.end() if after is not None else end
        if not self.text.low.isascii():
            from satchel.detect.no_orders import ENDING

            ending = ENDING(self.text.low, end)
            end = end if ending is None else ending.end()
        self.cuts.append((start, end))

    def not_there(self, at: int, start: int) -> bool:
        """Keep the word at `at`, if it looks like the name of a skill that is not there."""
        token = TOKEN(self.text.plain, at)
        if token is None or is_asked(self.text.low, start):
            return False
        word = token.group()
        low = word.lower()
        if not wordy(word[0]) or low in STOP or low in say_so.VAGUE:
            return False
        self.unknown.setdefault(word)
        self.cut(start, token.end(), wanted=True)
        return True


def _whole(low: str, at: int) -> int:
    """Where a denial begins with all its words: `please do not`, `I would rather not`, `don't`."""
    if low.startswith("n't", at):
        least = max(0, at - 8)
        while at > least and "a" <= low[at - 1] <= "z":
            at -= 1
    led = say_so.LED(low[max(0, at - say_so.SPAN) : at])
    return at if led is None else at - len(led.group())
