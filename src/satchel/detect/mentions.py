"""Which names stand at one place of a text?

A name may be quoted, stand after `$`, `/` or `@`, or be a word like any other; several may be
enumerated, and they may end where something else begins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect import phrases as say_so
from satchel.detect.idle import IDLE
from satchel.detect.names import LONGEST
from satchel.detect.words import STOP

if TYPE_CHECKING:
    from satchel.detect.names import Names, Text

MANY = 40
"""Names in one enumeration."""
_CLOSE = {
    "`": "`", '"': '"', "'": "'", "<": ">", "[": "]", "{": "}", "«": "»",
    "「": "」", "『": "』", "《": "》", "【": "】",
}  # fmt: skip
_OPEN = {close: opening for opening, close in _CLOSE.items()}
_FLAG_TOKEN = re.compile(r"[^\s,;\"'`]{1,200}").match
looks_like_one = re.compile(r"^(?=.*[^\W\d_]).*[-_:/\d]").search
"""Whether a word looks like the name of a skill, and not like a word or a number."""


class Item(NamedTuple):
    """One name in a text."""

    at: int
    """The skill's place; -1 when there is none of that name."""
    word: str
    start: int
    end: int
    marked: bool
    """It looks like a name, not like a word: quoted, after `$`, or with a hyphen."""


class Mentions:
    """Reads names off one text."""

    def __init__(self, text: Text, names: Names) -> None:
        self.text = text
        self.names = names

    def following(self, at: int) -> tuple[list[Item], int, bool]:
        """Names one after the other, where they end, and whether they are called skills."""
        items: list[Item] = []
        is_called = False
        end = at
        while len(items) < MANY:
            item = self.one(at)
            if item is None or (items and not self._goes_on(item)):
                break
            items.append(item)
            end = item.end
            word = say_so.SKILL_AFTER(self.text.low, end)
            if word is not None:
                is_called, end = True, word.end()
            joint = say_so.AND(self.text.low, end)
            if joint is None:
                break
            at = self.after_article(joint.end())
        return items, end, is_called

    def _goes_on(self, item: Item) -> bool:
        """`use pdf-forms and docx` names two, `use pdf-forms and search the web` one."""
        low = self.text.low
        if item.marked or say_so.SKILL_AFTER(low, item.end):
            return True
        ends = say_so.STOPS if item.word.lower() in say_so.DOING else say_so.GOES_ON
        return ends(low, item.end) is not None

    def one(self, at: int) -> Item | None:
        """The name that begins here, quoted or not."""
        plain = self.text.plain
        while plain[at : at + 1] in {"*", " "}:
            at += 1
        item = self.quoted(at)
        if item is not None:
            return item
        sign = plain[at : at + 1] in {"$", "/", "@"}
        hit = self.names.starting(self.text, at + sign)
        if hit is None:
            return None
        word = plain[at + sign : hit[1]]
        return Item(hit[0], word, at, hit[1], sign or looks_like_one(word) is not None)

    def quoted(self, at: int) -> Item | None:
        """The name in quotation marks that begins here."""
        plain = self.text.plain
        close = _CLOSE.get(plain[at : at + 1])
        if close is None:
            return None
        end = plain.find(close, at + 1, at + LONGEST + 2)
        inner = plain[at + 1 : end].strip(" *").lstrip("$/@") if end > 0 else ""
        if not inner or "\n" in inner:
            return None
        there = self.names.exact(inner)
        return Item(-1 if there is None else there, inner, at, end + 1, marked=True)

    def before(self, end: int) -> list[Item]:
        """Names that end at `end`, in the order of the text."""
        items: list[Item] = []
        plain, low = self.text.plain, self.text.low
        while len(items) < MANY:
            while end > 0 and plain[end - 1] in "* ":
                end -= 1
            opening = _OPEN.get(plain[end - 1 : end])
            if opening is not None:
                start = plain.rfind(opening, max(0, end - 2 - LONGEST), end - 1)
                item = self.quoted(start) if start >= 0 else None
            else:
                hit = self.names.ending(self.text, end)
                item = None
                if hit is not None:
                    start = hit[1] - (plain[hit[1] - 1 : hit[1]] in {"$", "/", "@"})
                    word = plain[hit[1] : end]
                    marked = start < hit[1] or looks_like_one(word) is not None
                    item = Item(hit[0], word, start, end, marked)
            if item is None or item.end != end:
                break
            items.append(item)
            joint = say_so.AND_BACK(low[max(0, item.start - 6) : item.start])
            if joint is None:
                break
            end = item.start - len(joint.group())
        return items[::-1]

    def flag_value(self, at: int) -> Item | None:
        """A value as a shell would take it; a name with spaces too, if there is one."""
        token = _FLAG_TOKEN(self.text.plain, at)
        if token is None:
            return None
        word = token.group().rstrip(".!?:)]}。").lstrip("$/@")
        there = self.names.exact(word) if word else None
        if there is None:
            longer = self.names.starting(self.text, at)
            if longer is not None:
                return Item(longer[0], word, at, longer[1], marked=True)
        return Item(-1 if there is None else there, word, at, token.end(), marked=bool(word))

    def kind(self, at: int) -> list[Item]:
        """`the pdf skills`: whoever has the word in its name."""
        found = say_so.KIND(self.text.low, at)
        if found is None:
            return []
        start, end = found.span(1)
        word = self.text.plain[start:end]
        if word.lower() in IDLE or word.lower() in say_so.VAGUE or word.lower() in STOP:
            return []
        return [Item(one, word, start, end, marked=False) for one in self.names.family(word)]

    def with_kin(self, items: list[Item], verb: int, past: int, end: int) -> list[Item]:
        """`any pdf skill` and `the pdf skills` are more than the one that is called `pdf`."""
        low = self.text.low
        first = items[0]
        many = "skills" in low[first.end : end] or " any " in low[verb:past]
        if len(items) > 1 or not many or first.at < 0:
            return items
        kin = [at for at in self.names.family(first.word) if at != first.at]
        return [first, *(first._replace(at=at) for at in kin)]

    def after_article(self, at: int) -> int:
        """Where a name may begin: after `the`, `any`, `my`."""
        found = say_so.ARTICLE(self.text.low, at)
        return found.end() if found is not None else at
