"""May a stranger's pattern be tried on a text? Only when that ends soon, whatever the text is.

Python's `re` goes back and tries again, and lets nothing else run meanwhile: a pattern such as
`(a+)+$` stops a whole process. So patterns that repeat what repeats, that refer back or look around
are refused, and for the others the most that can be tried is known before.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

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
_FEW = 8
"""Repeats that are looked at one by one."""
_PARTS = 5_000
"""Of a pattern, once its few repeats are written out."""
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
    refused, spreads, ways = _known(pattern)
    if refused:
        return f"has a pattern that is not tried: {refused}"
    length = len(text)
    for spread in spreads:
        ways *= min(spread, length) + 1
    if length > LONGEST or ways > _MOST:
        return f"is too long, with {length} characters, for `{pattern}`"
    if tries is not None:
        tries.left -= ways
        if tries.left < 0:
            return f"is one text too many for `{pattern}`"
    return "" if re.search(pattern, text) else f"must match `{pattern}`"


@lru_cache(maxsize=500)
def _known(pattern: str) -> tuple[str, tuple[int, ...], int]:
    """Why it is refused; how far each repeat can go; and how many alternatives there are."""
    if len(pattern) > _WRITTEN:
        return f"it has more than {_WRITTEN} characters", (), 1
    if _parser is None:  # pragma: no cover
        return "this Python does not say what is in it", (), 1
    look = _Look()
    try:
        re.compile(pattern)
        tree: Any = _parser.parse(pattern)
        ways = look.walk(tree, inside=False)
    except _Refused as exc:
        return str(exc), (), 1
    except (re.error, OverflowError, RecursionError, ValueError) as exc:
        return f"it cannot be read: {exc}", (), 1
    spreads = look.spreads
    anchored = bool(tree) and [str(part) for part in tree[0]] == ["AT", "AT_BEGINNING"]
    if not anchored:
        spreads.append(LONGEST)  # it is tried from every character on
    return "", tuple(spreads), ways


class _Refused(Exception):
    """It may take for ever."""


class _Look:
    """One look at all parts of a pattern."""

    def __init__(self) -> None:
        self.spreads: list[int] = []
        """How far each repeat can go."""
        self._parts = 0

    def walk(self, tree: Any, *, inside: bool) -> int:
        """Note what repeats, and count alternatives.

        Args:
            tree: As Python's own parser made it.
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
                ways *= self._repeat(int(given[0]), int(given[1]), given[2], inside=inside)
            elif name == "SUBPATTERN":
                ways *= self.walk(given[3], inside=inside)
            elif name == "ATOMIC_GROUP":
                ways *= self.walk(given, inside=inside)
            elif name == "BRANCH":
                if inside:
                    raise _Refused("it repeats alternatives")
                ways *= sum(self.walk(part, inside=inside) for part in given[1])
        return ways

    def _repeat(self, least: int, most: int, body: Any, *, inside: bool) -> int:
        if inside and most != least:
            raise _Refused("it repeats what repeats")
        if most != least:
            self.spreads.append(min(most - least, LONGEST))
        if most > _FEW:
            single = len(body) == 1 and str(body[0][0]) in _SINGLE
            return self.walk(body, inside=True) * (1 if single else max(1, least))
        ways = 1
        for _ in range(most):
            ways *= self.walk(body, inside=inside)
        return ways
