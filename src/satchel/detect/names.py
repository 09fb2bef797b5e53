"""Which skill is meant by a piece of a text? Names, ids and refs, looked up and never searched.

One table for each tuple of skills: a look at a place of a text costs a few lookups, whether there
are ten skills or a hundred thousand. Case, and whether words are joined by a space, a hyphen or an
underscore, make no difference; where both spellings exist, the one that was written wins.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.skill import Skill

DENSE = (
    "\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff"
    "\ua960-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts in which a word ends without a sign, for a character class: CJK, Hangul, Thai and kin."""
LONGEST = 200
"""Characters of the longest name that is recognised; the library cuts names there too."""
_NEAR = 400
_SLIP = 3
"""Names shorter than this are alike by chance; in Chinese one sign says as much as a syllable."""
_PIECES = 4
_START, _END = slice(2), slice(-2, None)
"""Signs of a name that it is found by."""
_TABLES = 2
"""Tables that are kept: of all skills, and of these with one that is not offered."""
_BEHIND = 8
"""Skills that may come behind those of a table for it to be taken over."""
_KEYS = str.maketrans({" ": "-", "_": "-", "/": ":"})
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "‛": "'", "´": "'", "“": '"', "”": '"', "„": '"'})
_BLANKS = re.compile(r"[^\S\n]+")
_dense = re.compile(f"[{DENSE}]").match


class Text(NamedTuple):
    """A text in three spellings of the same length, so that places in one are places in all."""

    plain: str
    """One spelling for what Unicode spells in several ways, and single spaces."""
    low: str
    keyed: str
    """In lower case, words joined by hyphens: what the table is asked with."""


def spell(text: str) -> Text:
    """Make a text comparable."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).translate(_QUOTES)
    text = _BLANKS.sub(" ", text)
    low = text.lower()
    if len(low) != len(text):  # some capitals have two small letters
        low = "".join(small if len(small := char.lower()) == 1 else char for char in text)
    low = low.replace("ς", "σ")
    return Text(text, low, low.translate(_KEYS))


def key_of(name: str) -> str:
    """How the table spells a name."""
    if name.isascii():
        name = name.lower().replace("_", "-").replace("/", ":")
        return "-".join(name.split()) if " " in name or not name.isprintable() else name
    return spell(name.strip()).keyed


class Names:
    """The names, ids and refs of some skills."""

    def __init__(self, skills: Sequence[Skill], last: Names | None = None) -> None:
        """Look at all skills, or at those that come after the ones of a `last` table."""
        self.skills = skills
        self._table: dict[str, int | tuple[int, ...]] = {}
        self._labels: dict[str, str] = {}
        self._short: dict[str, list[int]] = {}
        """The part of a name behind the last `:` -> whose."""
        self._lengths: dict[str, list[int]] = {}
        self._tails: dict[str, list[int]] | None = None
        known = self._take_over(last) if last is not None else 0
        for at, (head, origin, _, _) in enumerate(islice(skills, known, None), known):
            name = head.name
            key = key_of(name)
            self._add(key, at)
            if head.id != name:
                self._add(key_of(head.id), at)
            if ":" in name:
                self._short.setdefault(key.rpartition(":")[2], []).append(at)
            if origin.label not in self._labels:
                self._labels[origin.label] = key_of(origin.label) + ":"
        self._alone: list[str] = []
        """Keys that are in the table only as such a part."""
        for key, found in self._short.items():
            # `review` stands for `acme:review` if for nothing else.
            if len(found) == 1 and key not in self._table:
                self._alone.append(key)
                self._add(key, found[0])
        self._table.pop("", None)
        # Of a table that was taken over only the end is new, and what was put behind it.
        new = 2 * (len(skills) - known) + len(self._alone)
        keys = list(islice(reversed(self._table), new)) if known else self._table
        self._lengths = _sizes(keys, _START, self._lengths)
        if self._tails is not None:
            self._tails = _sizes(keys, _END, self._tails)

    def _take_over(self, last: Names) -> int:
        """Begin with what another table knows; returns of how many skills."""
        self._table = last._table.copy()
        for key in last._alone:
            self._table.pop(key, None)
        self._labels = last._labels.copy()
        self._short = {key: list(found) for key, found in last._short.items()}
        self._lengths, self._tails = last._lengths, last._tails
        return len(last.skills)

    def _add(self, key: str, at: int) -> None:
        there = self._table.setdefault(key, at)
        if there is not at:
            others = there if isinstance(there, tuple) else (there,)
            self._table[key] = others if at in others else (*others, at)

    def exact(self, written: str) -> int | None:
        """The skill that this is the whole name, id or ref of: its place, or None."""
        return self._chosen(key_of(written), written.strip())

    def starting(self, text: Text, at: int) -> tuple[int, int] | None:
        """The skill with the longest name that begins at `at`, and where the name ends."""
        keyed = text.keyed
        start = keyed[at : at + 2]
        for label in self._labels.values():
            if len(label) > 1 and keyed.startswith(label, at):
                found = self._by_ref(text, at, at + len(label))
                if found is not None:
                    return found
        for size in (*self._lengths.get(start, ()), *(self._lengths.get(start[:1], ()))):
            end = at + size
            key = keyed[at:end]
            if len(key) == size and key in self._table and ends_at(text.low, end):
                found = self._chosen(key, text.plain[at:end])
                if found is not None:
                    return found, end
        return None

    def ending(self, text: Text, end: int, least: int = 0) -> tuple[int, int] | None:
        """The skill with the longest name that ends at `end`, and where the name begins."""
        if self._tails is None:
            self._tails = _sizes(self._table, _END)
        tail = text.keyed[max(0, end - 2) : end]
        for size in (*self._tails.get(tail, ()), *self._tails.get(tail[-1:], ())):
            at = end - size
            if at < least:
                continue
            key = text.keyed[at:end]
            if key in self._table and begins_at(text.low, at):
                found = self._chosen(key, text.plain[at:end])
                if found is not None:
                    return found, at
        return None

    def family(self, word: str) -> list[int]:
        """The places of all skills that have this word in their names: `pdf` is in `pdf-forms`."""
        sought = f"-{key_of(word)}-"
        found: dict[int, None] = {}
        for key, there in self._table.items():
            if sought in f"-{key.replace(':', '-')}-":
                found.update(dict.fromkeys((there,) if isinstance(there, int) else there))
        return list(found)

    def meant(self, word: str) -> int | None:
        """The only skill whose name differs from `word` by one slip of the pen; else None."""
        key = key_of(word)[:LONGEST]
        found = {
            there if isinstance(there, int) else there[0]
            for name, there in self._table.items()
            if abs(len(name) - len(key)) <= 1 and one_slip(key, name)
        }
        return found.pop() if len(found) == 1 else None

    def near(self, word: str) -> list[str]:
        """Up to three names that are written much like `word`."""
        from difflib import get_close_matches

        key = key_of(word)[:LONGEST]
        pieces = [piece for piece in re.split("[-:.]", key) if len(piece) > 2]
        size = len(key)
        start = key[:2]
        alike = {name for name in self._table if name.startswith(start)}
        for piece in pieces[:_PIECES]:
            alike.update([name for name in self._table if piece in name])
        dense = _is_dense(key)
        if dense:
            alike.update([name for name in self._table if one_slip(key, name)])
        pool = sorted(alike, key=lambda name: (abs(len(name) - size), name))
        found: dict[str, None] = {}
        for close in get_close_matches(key, pool[:_NEAR], n=3, cutoff=0.5 if dense else 0.6):
            there = self._table[close]
            at = there if isinstance(there, int) else there[0]
            found.setdefault(self.skills[at].name)
        return list(found)

    def _by_ref(self, text: Text, at: int, past: int) -> tuple[int, int] | None:
        for size in self._lengths.get(text.keyed[past : past + 2], ()):
            end = past + size
            if text.keyed[past:end] in self._table and ends_at(text.low, end):
                found = self._chosen(text.keyed[at:end], text.plain[at:end])
                if found is not None:
                    return found, end
        return None

    def _chosen(self, key: str, written: str) -> int | None:
        """Of the skills that share a key the one that is written so; else the first."""
        there = self._table.get(key)
        if there is None:
            return self._of_label(key)
        if isinstance(there, int):
            return there
        for at in there:
            if self.skills[at].head.name == written:
                return at
        for at in there:
            if self.skills[at].head.id == written:
                return at
        return there[0]

    def _of_label(self, key: str) -> int | None:
        for label, start in self._labels.items():
            if len(start) > 1 and key.startswith(start):
                there = self._table.get(key[len(start) :], ())
                for at in (there,) if isinstance(there, int) else there:
                    skill = self.skills[at]
                    if skill.origin.label == label and key_of(skill.head.id) == key[len(start) :]:
                        return at
        return None


def _sizes(
    keys: Iterable[str], part: slice, known: Mapping[str, list[int]] | None = None
) -> dict[str, list[int]]:
    """A part of each key -> how long keys with it are, the longest first."""
    found = {start: set(sizes) for start, sizes in (known or {}).items()}
    for key in keys:
        if len(key) <= LONGEST:
            sizes = found.get(key[part])
            if sizes is None:
                found[key[part]] = {len(key)}
            else:
                sizes.add(len(key))
    return {start: sorted(sizes, reverse=True) for start, sizes in found.items()}


def one_slip(written: str, name: str) -> bool:
    """Whether one sign more, less, other or swapped makes the one of the other."""
    least = _SLIP - 1 if _is_dense(written) and _is_dense(name) else _SLIP
    if min(len(written), len(name)) < least or written == name:
        return False
    start = 0
    least = min(len(written), len(name))
    while start < least and written[start] == name[start]:
        start += 1
    one, other = written[start:], name[start:]
    if len(one) != len(other):
        return one[1:] == other or one == other[1:]
    return one[1:] == other[1:] or (one[:2] == other[:2][::-1] and one[2:] == other[2:])


class NamesKept:
    """The tables of the skills that were asked about last."""

    def __init__(self) -> None:
        self._kept: list[Names] = []

    def of(self, skills: Sequence[Skill]) -> Names:
        """The table of these skills; made again for a list, which may have changed."""
        kept = self._kept
        names = next((one for one in kept if one.skills is skills), None)
        if names is None:
            # Who asks about a skill that is not offered puts it behind all that are.
            last = next((one for one in kept if _is_start(one.skills, skills)), None)
            names = Names(skills, last)
        if isinstance(skills, tuple):
            self._kept = [names, *(one for one in kept if one is not names)][:_TABLES]
        return names


def _is_start(some: Sequence[Skill], skills: Sequence[Skill]) -> bool:
    """Whether `skills` are these very ones and a few more behind them."""
    return 0 < len(skills) - len(some) <= _BEHIND and all(map(is_, some, skills))


def _is_dense(word: str) -> bool:
    """Whether all of it is Chinese, Japanese or Korean, or the like."""
    return all(map(_dense, word))


def wordy(char: str) -> bool:
    """A letter or digit of a script that puts something between its words."""
    return char.isalnum() and not _dense(char)


def ends_at(low: str, end: int) -> bool:
    """Whether a name may end here: `pdf` does not in `pdfs`, `pdf-forms` or `pdf.js`."""
    if end >= len(low):
        return True
    after = low[end]
    if after.isalnum() or after == "_":
        return not wordy(low[end - 1]) or bool(_dense(after))
    if after in "+#" and low[end - 1].isalnum():
        return False
    return not (after in "-:./\\@" and low[end + 1 : end + 2].isalnum())


def begins_at(low: str, at: int) -> bool:
    """Whether a name may begin here."""
    if at <= 0:
        return at == 0
    before = low[at - 1]
    if before.isalnum() or before == "_":
        return not wordy(low[at]) or bool(_dense(before))
    return not (before in "-:.\\" and low[at - 2 : at - 1].isalnum())
