"""Looks up skills by name, id or the last part of a namespaced name.

There is one table per tuple of skills, so that a lookup costs the same for ten skills and for a
hundred thousand. Case does not matter, nor whether words are joined by a space, a hyphen or an
underscore; where both spellings exist, the exact one wins.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill

MAX_NAME_CHARS = 200
"""Longer names are not recognised; the library cuts names there too."""
_DENSE = (
    "\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff"
    "\ua960-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words, for a character class: CJK, Hangul, Thai and others."""
_MAX_COMPARED = 400
"""Names that are compared for a suggestion."""
_TABLES_KEPT = 2
_KEYS = str.maketrans({" ": "-", "_": "-", "/": ":"})
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "‛": "'", "´": "'", "“": '"', "”": '"', "„": '"'})
_BLANKS = re.compile(r"[^\S\n]+")
_dense = re.compile(f"[{_DENSE}]").match
_goes_on = re.compile(r"[\w+#]|[-:./\\@]\w").match


class Text(NamedTuple):
    """A text in two spellings of the same length: an offset in one is an offset in the other."""

    plain: str
    """Unicode normalised, with single spaces."""
    low: str


def normalise(text: str) -> Text:
    """Make a text comparable with names."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_QUOTES)
    text = _BLANKS.sub(" ", text)
    low = text.lower()
    if len(low) != len(text):  # some capitals have two small letters
        low = "".join(small if len(small := char.lower()) == 1 else char for char in text)
    return Text(text, low.replace("ς", "σ"))


def key_of(name: str) -> str:
    """The table's key for a name."""
    if name.isascii() and name.isprintable() and " " not in name:  # nearly all of a million
        return name.lower().replace("_", "-").replace("/", ":")
    return normalise(name.strip()).low.translate(_KEYS)


class NameTable:
    """The names and ids of some skills."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        """Index every skill by its name and its id."""
        self.skills = skills
        self._table: dict[str, list[int]] = {}
        self._lengths: dict[str, list[int]] = {}
        """First two characters of a key -> lengths of the keys with them, the longest first."""
        short: dict[str, list[int]] = {}
        for at, skill in enumerate(skills):
            name, own_id = skill.head.name, skill.head.id
            key = key_of(name)
            self._table.setdefault(key, []).append(at)
            if own_id != name and (other := key_of(own_id)) != key:
                self._table.setdefault(other, []).append(at)
            if ":" in name:
                short.setdefault(key.rpartition(":")[2], []).append(at)
        for key, found in short.items():
            if len(found) == 1:  # `review` stands for `acme:review` if for nothing else
                self._table.setdefault(key, found)
        self._table.pop("", None)
        lengths: dict[str, set[int]] = {}
        for key in self._table:
            if len(key) <= MAX_NAME_CHARS:
                lengths.setdefault(key[:2], set()).add(len(key))
        self._lengths = {start: sorted(sizes, reverse=True) for start, sizes in lengths.items()}

    def exact(self, written: str) -> Skill | None:
        """The skill with this name, id or ref."""
        written = written.strip()
        there = self._table.get(key_of(written))
        if there is not None:
            return self._chosen(there, written)
        if "/" in written:
            return next((skill for skill in self.skills if skill.ref == written), None)
        return None

    def starting(self, text: Text, at: int) -> tuple[Skill, int] | None:
        """The skill with the longest name that begins at `at`, and where the name ends."""
        start = text.low[at : at + 2].translate(_KEYS)
        for size in (*self._lengths.get(start, ()), *self._lengths.get(start[:1], ())):
            end = at + size
            there = self._table.get(text.low[at:end].translate(_KEYS))
            if there is not None and _ends_at(text.low, end):
                return self._chosen(there, text.plain[at:end]), end
        return None

    def near(self, word: str) -> tuple[Skill, ...]:
        """Up to three skills whose names are spelled almost like `word`."""
        from difflib import get_close_matches

        key = key_of(word)[:MAX_NAME_CHARS]
        pieces = [key[:2], *(piece for piece in re.split("[-:.]", key)[:4] if len(piece) > 2)]
        alike = [name for name in self._table if any(piece in name for piece in pieces)]
        alike.sort(key=lambda name: (abs(len(name) - len(key)), name))
        close = get_close_matches(key, alike[:_MAX_COMPARED], n=3)
        found = {self._table[name][0]: None for name in close}
        return tuple(self.skills[at] for at in found)

    def _chosen(self, there: list[int], written: str) -> Skill:
        """Of skills that share a key the one that is spelled like this; else the first."""
        for at in there if len(there) > 1 else ():
            if written in (self.skills[at].head.name, self.skills[at].head.id):
                return self.skills[at]
        return self.skills[there[0]]


class NameTables:
    """The tables of the last few tuples of skills."""

    def __init__(self) -> None:
        self._kept: list[NameTable] = []

    def of(self, skills: Sequence[Skill]) -> NameTable:
        """The table of these skills; that of a list is not kept, since a list may change."""
        table = next((one for one in self._kept if one.skills is skills), None)
        if table is None:
            table = NameTable(skills)
        if isinstance(skills, tuple):
            self._kept = [table, *(one for one in self._kept if one is not table)][:_TABLES_KEPT]
        return table


def _ends_at(low: str, end: int) -> bool:
    """Whether a name may end here: `pdf` does not in `pdfs`, `pdf-forms` or `pdf.js`."""
    return bool(_dense(low, end - 1) or _dense(low, end)) or _goes_on(low, end) is None
