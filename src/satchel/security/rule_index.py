"""Finds the expressions of the text rules that may match a text, by the plain words in it.

Texts repeat their words, so the index remembers what a run of letters contains.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.pattern_words import LETTER_RUN, read_pattern_words
from satchel.security.rules import list_text_rules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from satchel.security.rules import ScanRule

_LETTER_BYTES = bytes(byte if byte >= 128 or chr(byte).isalpha() else 32 for byte in range(256))
"""Leaves the letters of a text in UTF-8, and blanks between them."""
_MAX_CACHED_RUNS = 200_000
_MAX_CACHED_RUN_BYTES = 40


class RuleExpression(NamedTuple):
    """One of the patterns of a rule."""

    rule: ScanRule
    expression: str


class _WordGroups(NamedTuple):
    """The groups that some words belong to, as bits; see `RuleIndex`."""

    certain: int
    """The groups of words that consist of letters: such a word is in the text."""
    possible: int
    """The groups of words with other characters: such a word may be in the text."""
    possible_words: list[str]


class RuleIndex:
    """The expressions of the text rules by the words that a text needs to match them.

    Each expression has groups of words, and a text has to have a word of each group. A number has
    a bit for the first group of each expression, then for the second group of each, and so on.
    """

    def __init__(self) -> None:
        self._expressions = [
            RuleExpression(rule, expression)
            for rule in list_text_rules()
            for expression in rule.any
        ]
        self._expressions_by_kind: dict[str, int] = {}
        """Kind of region -> bits of its expressions."""
        self._groups_by_word: dict[str, int] = {}
        self._unusual_words: list[list[tuple[int, frozenset[str]]]] = []
        """Of each expression, the numbers of groups that have words with other characters than
        letters, and these words."""
        self._without_group: list[int] = []
        """Number of a group -> bits of the expressions that have no such group."""
        for index, (rule, expression) in enumerate(self._expressions):
            for kind in rule.where:
                bits = self._expressions_by_kind.get(kind, 0)
                self._expressions_by_kind[kind] = bits | 1 << index
            groups: list[Collection[str]] = [rule.needs, rule.also]
            for pattern in (*rule.all, expression):
                groups += read_pattern_words(pattern).groups
            self._add_groups(index, filter(None, groups))
        self._words_by_start: dict[str, list[tuple[str, str]]] = {}
        """First letters -> the longest run of letters of a word, and the word."""
        words_without_run: list[str] = []
        for word in self._groups_by_word:
            run = max(LETTER_RUN.findall(word), key=len, default="")
            if len(run) < 2 and run.isascii():
                words_without_run.append(word)
            else:
                self._words_by_start.setdefault(run[:3], []).append((run, word))
        self._groups_without_run = self._collect_groups(words_without_run)
        self._groups_by_run: dict[bytes, _WordGroups] = {}
        """Runs of letters of earlier texts -> the groups of their words."""
        self._runs_without_words: set[bytes] = set()

    def _add_groups(self, index: int, groups: Iterable[Collection[str]]) -> None:
        """Add the groups of words of an expression."""
        self._unusual_words.append([])
        for number, group in enumerate(groups):
            unusual_words = frozenset(word for word in group if not word.isalpha())
            if unusual_words:
                self._unusual_words[index].append((number, unusual_words))
            if number == len(self._without_group):
                self._without_group.append((1 << len(self._expressions)) - 1)
            self._without_group[number] ^= 1 << index
            bit = 1 << self._bit_index(number, index)
            for word in group:
                self._groups_by_word[word] = self._groups_by_word.get(word, 0) | bit

    def _bit_index(self, group_number: int, index: int) -> int:
        return group_number * len(self._expressions) + index

    def find(self, kind: str, lowered: str) -> Iterator[RuleExpression]:
        """Find the expressions that may match a region of this kind, in order.

        Args:
            kind: The kind.
            lowered: The text of the region, in lower case.
        """
        certain, possible, words = self._groups_without_run
        possible_words = [*words]
        runs = set(lowered.encode("utf-8", "surrogatepass").translate(_LETTER_BYTES).split())
        for run in runs - self._runs_without_words:
            groups = self._groups_by_run.get(run) or self._read_run(run)
            certain |= groups.certain
            possible |= groups.possible
            possible_words += groups.possible_words
        candidates = self._expressions_by_kind.get(kind, 0)
        for number, without_group in enumerate(self._without_group):
            candidates &= (certain | possible) >> self._bit_index(number, 0) | without_group
        if candidates:
            words_in_text = _WordsInText(lowered, frozenset(possible_words))
            yield from self._select(candidates, certain, words_in_text)

    def _select(
        self, candidates: int, certain: int, words_in_text: _WordsInText
    ) -> Iterator[RuleExpression]:
        """Return the candidates whose words with other characters than letters are in the text."""
        while candidates:
            index = (candidates & -candidates).bit_length() - 1
            candidates ^= 1 << index
            if all(
                certain >> self._bit_index(number, index) & 1 or words_in_text.has_any(words)
                for number, words in self._unusual_words[index]
            ):
                yield self._expressions[index]

    def _read_run(self, run: bytes) -> _WordGroups:
        """Return the groups of the words in a run of letters."""
        text = run.decode("utf-8", "surrogatepass")
        words = {
            word
            for size in ((2, 3) if text.isascii() else (1, 2, 3))
            for start in range(len(text) - size + 1)
            for part, word in self._words_by_start.get(text[start : start + size], ())
            if text.startswith(part, start)
        }
        groups = self._collect_groups(words)
        if len(run) <= _MAX_CACHED_RUN_BYTES:
            if len(self._groups_by_run) + len(self._runs_without_words) >= _MAX_CACHED_RUNS:
                self._groups_by_run.clear()
                self._runs_without_words.clear()
            if words:
                self._groups_by_run[run] = groups
            else:
                self._runs_without_words.add(run)
        return groups

    def _collect_groups(self, words: Iterable[str]) -> _WordGroups:
        certain = possible = 0
        possible_words: list[str] = []
        for word in words:
            if word.isalpha():
                certain |= self._groups_by_word[word]
            else:
                possible |= self._groups_by_word[word]
                possible_words.append(word)
        return _WordGroups(certain, possible, possible_words)


class _WordsInText:
    """Tells which of some words are in a text; each is searched once."""

    def __init__(self, text: str, possible_words: frozenset[str]) -> None:
        self._text = text
        self._possible_words = possible_words
        self._is_present: dict[str, bool] = {}

    def has_any(self, words: frozenset[str]) -> bool:
        """Whether one of the words is in the text."""
        words &= self._possible_words
        for word in words - self._is_present.keys():
            self._is_present[word] = word in self._text
        return any(self._is_present[word] for word in words)


@cache
def load_rule_index() -> RuleIndex:
    """Return the index of the text rules; built at first use."""
    return RuleIndex()
