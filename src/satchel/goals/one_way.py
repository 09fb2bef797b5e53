"""Is there only one way to read a text by a pattern? Then trying it takes as long as the text is.

Going back costs much only where a text can be read in several ways: `(a+)+` may read `aaa` as one
round or as three. In `[a-z]+(-[a-z]+)*` each next character says where in the pattern one is, so
what was tried is never tried again. That is looked at here, once for a pattern: which of its
characters may come after which, and whether any two of those that may come next can be the same.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_POSITIONS = 2_000
"""Characters of a pattern, once its repeats are written out."""
_FOLLOWERS = 20_000
"""What may come after them, all together."""
_ASCII = (1 << 128) - 1
_DIGIT, _LETTER, _SPACE, _OTHER = 1 << 128, 1 << 129, 1 << 130, 1 << 131
_BEYOND = _DIGIT | _LETTER | _SPACE | _OTHER
_ALL = _ASCII | _BEYOND
_LARGE, _SMALL = ((1 << 26) - 1) << 65, ((1 << 26) - 1) << 97
_STRANGE = sum(1 << ord(letter) for letter in "iIkKsS")
"""Letters that have another case beyond ASCII."""
_SEPARATORS = 0b1111 << 28
"""What is space only when all alphabets count."""
_WIDE = 1_000
"""Characters of a range that are looked at one by one."""
_HAN = (0x4E00, 0x9FFF)
"""The range that is written most often, and all of it letters."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_SETS = ("LITERAL", "NOT_LITERAL", "ANY", "IN")


_ALPHABETS = int(re.ASCII | re.LOCALE | re.UNICODE)


def inner_flags(flags: int, added: int, removed: int) -> int:
    """The flags inside a group, as Python joins them: of the alphabets only one holds."""
    if added & _ALPHABETS:
        flags &= ~_ALPHABETS
    return (flags | added) & ~removed


class Unclear(Exception):
    """There may be several ways."""


class _Piece(NamedTuple):
    """A part of a pattern: characters are known by their numbers."""

    first: list[int]
    last: list[int]
    empty: bool
    """Whether it may match nothing, in exactly one way."""


_NOTHING = _Piece([], [], empty=True)


def widest_choice(tree: Any, flags: int) -> int:
    """Among how many characters one chooses at most, each different from the others.

    Args:
        tree: As Python's own parser made it.
        flags: That hold for it.

    Raises:
        Unclear: two of them may be the same, or it is too large to say.
    """
    paths = _Paths()
    whole = paths.sequence(tree, flags)
    paths.disjoint(whole.first)
    return max(1, len(whole.first), *(len(after) for after in paths.after))


def repeated(tree: Any, flags: int) -> int:
    """The same for something that is repeated, who knows how often."""
    paths = _Paths()
    body = paths.loop(paths.sequence(tree, flags))
    paths.disjoint(body.first)
    return max(1, len(body.first), *(len(after) for after in paths.after))


class _Paths:
    """Which character of a pattern may come after which."""

    def __init__(self) -> None:
        self.after: list[list[int]] = []
        self._sets: list[int] = []
        self._followers = 0

    def disjoint(self, numbers: list[int]) -> None:
        """Insist that no text fits two of these."""
        seen = 0
        for number in numbers:
            if seen & self._sets[number]:
                raise Unclear
            seen |= self._sets[number]

    def _joined(self, last: list[int], first: list[int]) -> None:
        for number in last:
            after = self.after[number]
            after.extend(first)
            self._followers += len(first)
            if self._followers > _FOLLOWERS:
                raise Unclear
            self.disjoint(after)

    def sequence(self, tree: Any, flags: int) -> _Piece:
        """Parts one after the other."""
        whole = _NOTHING
        for op, given in tree:
            part = self._part(str(op), given, flags)
            self._joined(whole.last, part.first)
            whole = _Piece(
                whole.first + part.first if whole.empty else whole.first,
                whole.last + part.last if part.empty else part.last,
                whole.empty and part.empty,
            )
        return whole

    def loop(self, body: _Piece) -> _Piece:
        """A part once or more often."""
        if body.empty:
            raise Unclear  # going round without reading anything is another way
        self._joined(body.last, body.first)
        return body

    def _part(self, name: str, given: Any, flags: int) -> _Piece:
        if name in _SETS:
            return self._character(characters(name, given, flags))
        if name == "AT":
            return _NOTHING  # it only takes ways away
        if name == "SUBPATTERN":
            return self.sequence(given[3], inner_flags(flags, int(given[1]), int(given[2])))
        if name == "ATOMIC_GROUP":
            return self.sequence(given, flags)
        if name == "BRANCH":
            return self._branch([self.sequence(part, flags) for part in given[1]])
        if name in _REPEATS:
            return self._repeat(int(given[0]), int(given[1]), given[2], flags)
        raise Unclear

    def _character(self, which: int) -> _Piece:
        number = len(self._sets)
        if number >= _POSITIONS:
            raise Unclear
        self._sets.append(which)
        self.after.append([])
        return _Piece([number], [number], empty=False)

    def _branch(self, parts: list[_Piece]) -> _Piece:
        if sum(part.empty for part in parts) > 1:
            raise Unclear
        first = [number for part in parts for number in part.first]
        self.disjoint(first)
        last = [number for part in parts for number in part.last]
        return _Piece(first, last, any(part.empty for part in parts))

    def _repeat(self, least: int, most: int, body: Any, flags: int) -> _Piece:
        """Written out as often as it must be; then once more for each time that it may be."""
        endless = most > _POSITIONS
        rounds = max(1, least) if endless else most
        first: list[int] = []
        last: list[int] = []
        before: list[int] = []
        for round_ in range(rounds):
            part = self.sequence(body, flags)
            if endless and round_ == rounds - 1:
                part = self.loop(part)
            elif part.empty:
                raise Unclear
            self._joined(before, part.first)
            first = first or part.first
            last = last + part.last if round_ >= least else part.last
            before = part.last
        return _Piece(first, last, empty=least == 0)


def characters(name: str, given: Any, flags: int) -> int:
    """A set of characters, none left out: one bit for each of ASCII, and four for all others."""
    if name == "ANY":
        return _ALL if flags & re.DOTALL else _ALL & ~(1 << 10)
    if name == "LITERAL":
        items: list[Any] = [("LITERAL", given)]
    elif name == "NOT_LITERAL":
        items = [("NEGATE", None), ("LITERAL", given)]
    else:
        items = list(given)
    found = surely = 0
    negated = False
    for op, value in items:
        kind = str(op)
        if kind == "NEGATE":
            negated = True
        elif kind == "CATEGORY":
            category = _category(str(value), narrow=bool(flags & re.ASCII))
            found |= category
            surely |= category
        elif kind in {"LITERAL", "RANGE"}:
            low, high = (value, value) if kind == "LITERAL" else value
            some = _range(int(low), int(high))
            if flags & re.IGNORECASE:
                surely |= _both_cases(some & _ASCII)
                found |= _any_case(some)
            else:
                surely |= some & _ASCII
                found |= some
        else:
            return _ALL
    # Of those beyond ASCII only whole kinds are surely in it: the others stay when it is negated.
    return _ALL & ~surely if negated else found


@lru_cache(maxsize=500)
def _range(low: int, high: int) -> int:
    found = 0
    for number in range(low, min(high, 127) + 1):
        found |= 1 << number
    low = max(low, 128)
    if low >= _HAN[0] and high <= _HAN[1]:
        return found | _LETTER
    if high - low > _WIDE:
        return found | _BEYOND
    for number in range(low, high + 1):
        found |= _kind(chr(number))
    return found


def _kind(character: str) -> int:
    if character.isdecimal():
        return _DIGIT
    if character.isalnum():
        return _LETTER
    return _SPACE if character.isspace() else _OTHER


def _both_cases(some: int) -> int:
    """Letters of ASCII, large and small."""
    return some | (some & _LARGE) << 32 | (some & _SMALL) >> 32


def _any_case(some: int) -> int:
    """The same; some letters beyond ASCII are another case of `i`, `k` and `s`."""
    beyond = some & (_LETTER | _OTHER)
    found = _both_cases(some & _ASCII) | (some & _BEYOND)
    if beyond:
        found |= _STRANGE | _LETTER | _OTHER
    if found & _STRANGE:
        found |= _LETTER
    return found


@lru_cache(maxsize=20)
def _category(name: str, *, narrow: bool) -> int:
    kind = name.removeprefix("CATEGORY_")
    test, beyond = _CATEGORIES.get(kind.removeprefix("NOT_"), (None, 0))
    if test is None:  # pragma: no cover - a category that Python does not have yet
        raise Unclear
    found = sum(1 << number for number in range(128) if test(chr(number)))
    if narrow:
        found &= ~_SEPARATORS
    else:
        found |= beyond
    return _ALL & ~found if kind.startswith("NOT_") else found


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_CATEGORIES: dict[str, tuple[Callable[[str], bool], int]] = {
    "DIGIT": (str.isdecimal, _DIGIT),
    "SPACE": (str.isspace, _SPACE),
    "WORD": (_is_word, _DIGIT | _LETTER),
}
