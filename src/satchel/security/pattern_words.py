"""Reads from a regular expression which plain words every match of it contains.

The index of the rules excludes most expressions by these words before one is tried.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NO_WORDS: frozenset[str] = frozenset()
_EMPTY_WORD = frozenset(("",))
_MAX_JOINED_WORDS = 16
_MIN_START_CHARS = 2
_STATED_WORDS = re.compile(r"((?:\(\?#[^)]+\))+)")
"""The words that a pattern states at its start, as `(?#word|word)(?#other)`."""
_TOKEN = re.compile(
    r"\(\?#[^)]*\)|\(\?:[\w '/:,|-]+\)|\(\?(?:<?[=!]|:)|\\[ux][0-9a-f]{2,4}|\\."
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]|[?*+][?+]?|\{[\d,]+\}[?+]?|[^\W_][\w '/:,-]*(?![?*+{])|.",
    re.DOTALL,
)
_REPETITION = re.compile(r"([?*+])|\{(\d*),?\d*\}")
LETTER_RUN = re.compile(r"[^\W\d_]+")


class PatternWords(NamedTuple):
    """Plain words that decide whether a pattern is tried."""

    starts: tuple[str, ...]
    """Every match begins with one of these; none when that is not known."""
    groups: tuple[frozenset[str], ...]
    """Every match contains one word of each."""


@cache
def read_pattern_words(pattern: str) -> PatternWords:
    """Return the words of a pattern, stated at its start or read from the expression."""
    part = _PatternReader(pattern).read_branches()
    starts: list[str] = []
    for word in sorted(part.starts or ()):
        if not starts or not word.startswith(starts[-1]):
            starts.append(word)
    if min(map(len, starts), default=0) < _MIN_START_CHARS:
        starts = []
    groups = {
        *map(_select_letter_runs, part.groups),
        *map(frozenset, read_stated_words(pattern)),
    } - {_NO_WORDS}
    return PatternWords(tuple(starts), tuple(sorted(groups, key=len)))


class _Part(NamedTuple):
    """What is known about the texts that a part of an expression matches."""

    exact: frozenset[str] | None
    """All of them, where they are few."""
    starts: frozenset[str] | None
    groups: tuple[frozenset[str], ...]


_ANY_TEXT = _Part(None, None, ())


class _PatternReader:
    """Reads the literal texts of a regular expression; what it does not support may be any text."""

    def __init__(self, pattern: str) -> None:
        self._tokens = _TOKEN.findall(pattern)
        self._index = 0

    def _peek(self) -> str:
        """Return the next token; a closing parenthesis at the end of the pattern."""
        return self._tokens[self._index] if self._index < len(self._tokens) else ")"

    def read_branches(self) -> _Part:
        """Read the alternatives up to the closing parenthesis, which is skipped."""
        parts = [self._read_sequence()]
        while self._peek() == "|":
            self._index += 1
            parts.append(self._read_sequence())
        self._index += 1
        if len(parts) == 1:
            return parts[0]
        exact = [part.exact for part in parts if part.exact is not None]
        starts = [part.starts for part in parts if part.starts is not None]
        groups = [group for part in parts if (group := _select_best_group(part.groups))]
        return _Part(
            _NO_WORDS.union(*exact) if len(exact) == len(parts) else None,
            _NO_WORDS.union(*starts) if len(starts) == len(parts) else None,
            (_NO_WORDS.union(*groups),) if len(groups) == len(parts) else (),
        )

    def _read_sequence(self) -> _Part:
        """Read one alternative."""
        run, is_exact = _EMPTY_WORD, True
        starts: list[frozenset[str] | None] = []
        groups: list[frozenset[str]] = []
        while self._peek() not in {"|", ")"}:
            part = self._read_atom()
            if part is None:
                continue
            minimum, maximum = self._read_repetition()
            words = _repeat_exact(part, minimum, maximum)
            if words is not None and len(run) * len(words) <= _MAX_JOINED_WORDS:
                run = frozenset(prefix + other for prefix in run for other in words)
                continue
            is_exact = False
            if run != _EMPTY_WORD:
                starts.append(run)
            groups.append(run)
            run = words or _EMPTY_WORD
            if words is None:
                starts.append(part.starts if minimum else None)
                groups += part.groups if minimum else ()
        if is_exact:
            return _Part(run, run, (run,))
        return _Part(None, (*starts, run)[0], (*groups, run))

    def _read_atom(self) -> _Part | None:
        """Read the next character, class or group; None for what matches an empty text."""
        token = self._peek()
        self._index += 1
        if token.startswith("(?#"):
            return None
        if token.startswith("(?:") and token != "(?:":  # noqa: S105 - a token of a pattern
            return _make_exact_part(token[3:-1].split("|"))
        if token.startswith("("):
            inner = self.read_branches()
            return inner if token in {"(", "(?:"} else None
        if token in {"^", "$", "\\b", "\\B"}:
            return None
        if token[0] == "[":
            plain = token[1:-1]
            return (
                _ANY_TEXT
                if len(plain) > 3 or re.search(r"\\|^\^|.-.", plain)
                else _make_exact_part(plain)
            )
        if token[0] == "." or (token[0] == "\\" and token[1].isalnum()):
            return _ANY_TEXT
        return _make_exact_part((token.removeprefix("\\") or token,))

    def _read_repetition(self) -> tuple[int, int]:
        """Read how often the last atom is repeated: at least, and at most (2 for more)."""
        match = _REPETITION.match(self._peek())
        if match is None:
            return 1, 1
        self._index += 1
        if match[1]:
            return match[1] == "+", 1 if match[1] == "?" else 2
        return min(int(match[2] or 0), 1), 2


def _repeat_exact(part: _Part, minimum: int, maximum: int) -> frozenset[str] | None:
    """Return the texts that a part matches with its repetition, where they are few."""
    if part.exact is None or maximum != 1:
        return None
    return part.exact if minimum else part.exact | _EMPTY_WORD


def _make_exact_part(texts: Iterable[str]) -> _Part:
    words = frozenset(texts)
    return _Part(words, words, (words,))


@cache
def _select_letter_runs(words: frozenset[str]) -> frozenset[str]:
    """Return the longest run of letters of each word; nothing if one is too short to tell."""
    runs = {max(LETTER_RUN.findall(word), key=len, default="") for word in words}
    if any(len(run) < (3 if run.isascii() else 2) for run in runs):
        return _NO_WORDS
    return frozenset(run for run in runs if not any(shorter in run for shorter in runs - {run}))


def _select_best_group(groups: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the group that the fewest texts have a word of."""
    return max(
        map(_select_letter_runs, groups),
        key=lambda group: min(map(len, group), default=0),
        default=_NO_WORDS,
    )


def read_stated_words(pattern: str) -> list[list[str]]:
    """Return the groups of words that a pattern states at its start."""
    match = _STATED_WORDS.match(pattern)
    return [group.split("|") for group in match[1][3:-1].split(")(?#")] if match else []
