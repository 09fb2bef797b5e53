"""May a stranger's pattern be tried on a text? Only when that ends soon, whatever the text is.

Python's `re` goes back and tries again, and lets nothing else run meanwhile: a pattern such as
`(a+)+$` stops a whole process. So patterns that refer back or look around are refused, and those
that repeat what repeats unless there is only one way to read any text by it (`one_way`). For the
others the most that can be tried is known before: where that grows as the square of a text, the
text must be short.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from satchel.goals import one_way

try:
    _parser: Any = import_module("re._parser")
except ImportError:  # pragma: no cover - another Python: then no pattern is tried
    _parser = None

LONGEST = 100_000
"""Characters of a text that a pattern is tried on."""
_WRITTEN = 1_000
"""Characters of a pattern."""
_MOST = 5_000_000
"""Ways to try: some tenths of a second."""
_LIGHT = 8
"""Characters that are compared in the time that a way takes."""
_RANGES = 500_000
"""Characters in all ranges of a pattern: Python looks at each when it reads the pattern."""
_FEW = 8
"""Repeats that are looked at one by one."""
_PARTS = 5_000
"""Of a pattern, once its few repeats are written out."""
_TABLE = 0xFFFF
"""The last character of which Python makes a table."""
_REFUSED = ("GROUPREF", "GROUPREF_EXISTS", "GROUPREF_IGNORE", "ASSERT", "ASSERT_NOT")
_SINGLE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def fault(pattern: Any) -> str:
    """Why a pattern is not tried; empty when it is."""
    if not isinstance(pattern, str):
        return "it is no text"
    return _known(pattern)[0]


class Tries:
    """How much may still be tried: one for all texts of an output."""

    def __init__(self) -> None:
        self.left = 2 * _MOST


def fits(pattern: str, text: str, tries: Tries | None = None) -> str:
    """What is wrong with a text; empty when the pattern is found in it."""
    refused, bounds = _known(pattern)
    if refused:
        return f"has a pattern that is not tried: {refused}"
    length = len(text)
    ways = min(bound.ways_in(length) for bound in bounds)
    if length > LONGEST or ways > _MOST:
        return f"is too long, with {length} characters, for `{pattern}`"
    if tries is not None:
        tries.left -= ways
        if tries.left < 0:
            return f"is one text too many for `{pattern}`"
    return "" if re.search(pattern, text) else f"must match `{pattern}`"


class _Bound(NamedTuple):
    """How much is tried at most."""

    ways: int
    """Alternatives, each as often as it takes the time of a short one."""
    spreads: tuple[int, ...]
    """How far each repeat can go."""

    def ways_in(self, length: int) -> int:
        """For a text of so many characters."""
        ways = self.ways
        for spread in self.spreads:
            ways *= min(spread, length) + 1
        return ways


@lru_cache(maxsize=500)
def _known(pattern: str) -> tuple[str, tuple[_Bound, ...]]:
    """Why it is refused; else what bounds it: the smallest of these holds."""
    if len(pattern) > _WRITTEN:
        return f"it has more than {_WRITTEN} characters", ()
    if _parser is None:  # pragma: no cover
        return "this Python does not say what is in it", ()
    bounds: list[_Bound] = []
    try:
        tree: Any = _parser.parse(pattern)
        weights = _Weights()
        whole = 1 + weights.of(tree) // _LIGHT
        if weights.ranges > _RANGES:
            return "its ranges are too wide", ()
        re.compile(pattern)
        flags = int(tree.state.flags)
        with suppress(one_way.Unclear):
            choice = one_way.widest_choice(tree, flags) * weights.step()
            bounds.append(_Bound(choice, (min(int(tree.getwidth()[1]), LONGEST),)))
        try:
            look = _Look()
            ways = look.walk(tree, flags, inside=False) * whole
            bounds.append(_Bound(ways, tuple(look.spreads)))
        except _Refused as exc:
            if not bounds:
                return str(exc), ()
    except (re.error, OverflowError, RecursionError, ValueError) as exc:
        return f"it cannot be read: {exc}", ()
    op, given = tree[0] if tree else ("", "")
    anchored = str(op) == "AT" and str(given) == "AT_BEGINNING"
    if not anchored or flags & re.MULTILINE:  # it is tried from every character on
        bounds = [bound._replace(spreads=(*bound.spreads, LONGEST)) for bound in bounds]
    return "", tuple(bounds)


class _Weights:
    """How long one way takes: what is read in it, and what is only looked at between characters."""

    def __init__(self) -> None:
        self.ranges = 0
        """Characters in ranges, all together."""
        self._between = 0
        self._widest = 0
        self._kept = 0
        """Groups whose text is kept, for every round: that takes memory too."""

    def step(self) -> int:
        """For one character, when there is one way: with all that may lie before it."""
        return 1 + (self._between + self._widest) // _LIGHT + self._kept // 3

    def of(self, tree: Any) -> int:
        """For a part of a pattern: all that must be read, and all alternatives."""
        return sum(self._part(str(op), given) for op, given in tree)

    def _part(self, name: str, given: Any) -> int:
        if name in _SINGLE:
            return self._set(given) if name == "IN" else 1
        self._between += 1
        if name in _REPEATS:
            body = given[2]
            rounds = max(1, int(given[0]))
            single = len(body) == 1 and str(body[0][0]) in _SINGLE
            return rounds * (self.of(body) + (0 if single else _LIGHT))
        if name == "SUBPATTERN":
            kept = given[0] is not None
            self._kept += kept
            return (_LIGHT if kept else 0) + self.of(given[3])
        if name == "ATOMIC_GROUP":
            return _LIGHT + self.of(given)
        if name == "BRANCH":
            return sum(2 + self.of(part) for part in given[1])
        return 1

    def _set(self, items: Any) -> int:
        """Python makes a table of most; those beyond the first 65536 it goes through one by one."""
        slow = 1
        for op, value in items:
            low, high = value if str(op) == "RANGE" else (0, value)
            if str(op) == "RANGE":
                self.ranges += int(high) - int(low)
            if not isinstance(high, int) or high > _TABLE or str(op) == "CATEGORY":
                slow += 1
        self._widest = max(self._widest, slow)
        return slow


class _Refused(Exception):
    """It may take for ever."""


class _Look:
    """One look at all parts of a pattern."""

    def __init__(self) -> None:
        self.spreads: list[int] = []
        """How far each repeat can go."""
        self._parts = 0

    def walk(self, tree: Any, flags: int, *, inside: bool) -> int:
        """Note what repeats, and count alternatives.

        Args:
            tree: As Python's own parser made it.
            flags: That hold for it.
            inside: Whether something around it repeats, who knows how often.

        Raises:
            _Refused: it has something that may take for ever.
        """
        ways = 1
        for op, given in tree:
            self._parts += 1
            if self._parts > _PARTS:
                raise _Refused("it has too many parts")
            name = str(op)
            if name in _REFUSED:
                raise _Refused("it refers back or looks around")
            if name in _REPEATS:
                least, most = int(given[0]), int(given[1])
                ways *= self._repeat(least, most, given[2], flags, inside=inside)
            elif name == "SUBPATTERN":
                around = one_way.inner_flags(flags, int(given[1]), int(given[2]))
                ways *= self.walk(given[3], around, inside=inside)
            elif name == "ATOMIC_GROUP":
                ways *= self.walk(given, flags, inside=inside)
            elif name == "BRANCH":
                if inside:
                    raise _Refused("it repeats alternatives")
                ways *= sum(self.walk(part, flags, inside=inside) for part in given[1])
        return ways

    def _repeat(self, least: int, most: int, body: Any, flags: int, *, inside: bool) -> int:
        if inside and most != least:
            raise _Refused("it repeats what repeats")
        if most > _FEW:
            return self._often(least, most, body, flags, inside=inside)
        if most != least:
            self.spreads.append(most - least)
        ways = 1
        for _ in range(most):
            ways *= self.walk(body, flags, inside=inside)
        return ways

    def _often(self, least: int, most: int, body: Any, flags: int, *, inside: bool) -> int:
        """Something that is repeated more often than one would write out."""
        try:
            ways = self.walk(body, flags, inside=True)
        except _Refused:
            if inside:  # who repeats all of this looks at it as a whole
                raise
            try:
                ways = one_way.repeated(body, flags)
            except one_way.Unclear:
                pass
            else:
                self.spreads.append(LONGEST)  # each round may end anywhere, but in one way only
                return ways
            raise
        if most != least:
            self.spreads.append(min(most - least, LONGEST))
        return ways
