"""Which skill is meant by a piece of a text? Names, ids and refs, looked up and never searched.

One table for each tuple of skills: a look at a place of a text costs a few lookups, whether there
are ten skills or a hundred thousand. Case, and whether words are joined by a space, a hyphen or an
underscore, make no difference; where both spellings exist, the one that was written wins.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.skills = skills
        self._table: dict[str, int | tuple[int, ...]] = {}
        self._labels: dict[str, str] = {}
        tails: dict[str, list[int]] = {}
        for at, (head, origin, _, _) in enumerate(skills):
            name = head.name
            key = key_of(name)
            self._add(key, at)
            if head.id != name:
                self._add(key_of(head.id), at)
            if ":" in name:
                tails.setdefault(key.rpartition(":")[2], []).append(at)
            if origin.label not in self._labels:
                self._labels[origin.label] = key_of(origin.label) + ":"
        for key, found in tails.items():  # `review` stands for `acme:review` if for nothing else
            if len(found) == 1 and key not in self._table:
                self._add(key, found[0])
        self._table.pop("", None)
        lengths: dict[str, set[int]] = {}
        for key in self._table:
            if len(key) <= LONGEST:
                sizes = lengths.get(key[:2])
                if sizes is None:
                    lengths[key[:2]] = {len(key)}
                else:
                    sizes.add(len(key))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        self._tails: dict[str, list[int]] | None = None

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
            tails: dict[str, set[int]] = {}
            for key in self._table:
                if len(key) <= LONGEST:
                    tails.setdefault(key[-2:], set()).add(len(key))
            self._tails = {tail: sorted(found, reverse=True) for tail, found in tails.items()}
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
    """The table of the skills that were asked about last."""

    def __init__(self) -> None:
        self._last: Names | None = None

    def of(self, skills: Sequence[Skill]) -> Names:
        """The table of these skills; made again for a list, which may have changed."""
        last = self._last
        if last is not None and last.skills is skills:
            return last
        names = Names(skills)
        if isinstance(skills, tuple):
            self._last = names
        return names


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
