"""Searches the regions of a file for the patterns of the text rules.

Plain words decide first: most rules are excluded before a regular expression runs. Long texts are
searched in windows. No pattern may be superlinear: their repetitions are bounded, so that the time
is linear for any text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from satchel.security.discussed_attacks import (
    CLAUSE_END,
    downgrade,
    find_clause_start,
    is_example,
    remove_asides,
    remove_hollow_negations,
    remove_negation,
)
from satchel.security.pattern_words import read_pattern_words
from satchel.security.regions import PROGRAM_KINDS
from satchel.security.report import MAX_EVIDENCE_CHARS, Finding
from satchel.security.rule_index import load_rule_index
from satchel.security.rules import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.security.regions import Region
    from satchel.security.report import TimeBudget
    from satchel.security.rules import ScanRule

_WINDOW_CHARS = 8192
_OVERLAP_CHARS = 1024
"""Of two windows of a long text. Windows without a rule's words are left out, and the time budget
is checked between them."""
_MAX_LINE_CHARS = 2000
"""A longer line is reported once for each part of this length."""
_MAX_CLAUSE_CHARS = 100
"""Before and after a match, where an exception counts."""
_CLAUSE_COMMA = re.compile(r"[,()\[\]\"“”«»`（）—–]")
_CONDITION_START = re.compile(
    r"\W*(?:(?:and|but|or|then|und|y|e|et|и) )?(?:if|when|unless|until|after|before|once|only"
    r"|never|not|do not|don['’]?t|ask|with|as|wenn|bevor|bis|erst|nachdem|dass|nur|si|cuando"
    r"|antes|hasta|solo|se|quando|até|quand|avant|sauf|если|когда|пока|только|после)\b"
)
"""How a part of a sentence begins that is about the next or the previous part."""
_CODE_KINDS = PROGRAM_KINDS | {"data"}


def find_patterns(path: str, regions: Iterable[Region], budget: TimeBudget) -> Iterator[Finding]:
    """Find what the text rules match.

    Args:
        path: For the findings.
        regions: The parts of the file.
        budget: The time budget.

    Raises:
        OutOfTime: the time budget is exceeded.
    """
    index = load_rule_index()
    for region in regions:
        text = _RegionText(path, region)
        candidates = index.find(region.kind, text.lowered)
        for rule, rule_candidates in groupby(candidates, attrgetter("rule")):
            budget.check()
            expressions = [candidate.expression for candidate in rule_candidates]
            yield from _RuleSearch(text, rule, budget).find(expressions)


class _RegionText:
    """A region, and its text in the forms that rules search."""

    def __init__(self, path: str, region: Region) -> None:
        self.path = path
        self.region = region
        self.lowered = _lower(region.text)

    @cached_property
    def code(self) -> str:
        """The text in lower case without the comments of a shell script."""
        return _blank_comments(self.lowered) if self.region.kind == "shell" else self.lowered

    @cached_property
    def line_starts(self) -> list[int]:
        """The position of the first character of each line."""
        return [0, *(newline.end() for newline in re.finditer("\n", self.lowered))]


class _RuleSearch:
    """Searches a region for the patterns of one rule."""

    def __init__(self, region_text: _RegionText, rule: ScanRule, budget: TimeBudget) -> None:
        self._region_text = region_text
        self._region = region_text.region
        self._rule = rule
        self._budget = budget
        is_instruction = rule.engine == "instructions"
        self._text = region_text.lowered if is_instruction else region_text.code

    def find(self, expressions: Iterable[str]) -> Iterator[Finding]:
        """Find the matches of some patterns of the rule."""
        patterns = [
            compile_pattern(expression) for expression in expressions if self._may_match(expression)
        ]
        if not patterns:
            return
        lowered = self._region_text.lowered
        words = [word for word in self._rule.needs if word in lowered]
        for start, end in _find_windows(lowered, words):
            self._budget.check()
            yield from self._find_in_window(patterns, start, end)

    def _may_match(self, expression: str) -> bool:
        """Whether an expression matches at one of the words with which it begins."""
        words = read_pattern_words(expression).starts
        if not words:
            return True
        match = compile_pattern(expression).match
        for word in words:
            self._budget.check()
            position = self._text.find(word)
            while position >= 0:
                if match(self._text, position, position + _WINDOW_CHARS):
                    return True
                position = self._text.find(word, position + 1)
        return False

    def _find_in_window(
        self, patterns: Iterable[re.Pattern[str]], start: int, end: int
    ) -> Iterator[Finding]:
        """Find one match in each line, or part of a long line; orders before discussed ones."""
        reported: set[tuple[int, int]] = set()
        discussed: set[tuple[int, int]] = set()
        for pattern in patterns:
            for match in pattern.finditer(self._text, start, end):
                if not self._has_required(match):
                    continue
                line_part = self._locate(match.start())
                if line_part in reported or self._is_excepted(match):
                    continue
                finding = self._make_finding(match, line_part[0])
                if not self._is_discussed(match):
                    reported.add(line_part)
                    yield finding
                elif line_part not in discussed:
                    discussed.add(line_part)
                    yield downgrade(finding)

    def _has_required(self, match: re.Match[str]) -> bool:
        """Whether all patterns of `with` are near a match."""
        distance = self._rule.near
        if not distance:
            return self._has_all
        window = self._text[max(0, match.start() - distance) : match.end() + distance]
        return all(compile_pattern(other).search(window) for other in self._rule.all)

    @cached_property
    def _has_all(self) -> bool:
        return all(compile_pattern(other).search(self._text) for other in self._rule.all)

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the line of a position, from 0, and the part of that line."""
        starts = self._region_text.line_starts
        line = bisect_right(starts, position) - 1
        return line, (position - starts[line]) // _MAX_LINE_CHARS

    def _is_excepted(self, match: re.Match[str]) -> bool:
        """Whether one of `unless` matches in the clause of a match."""
        if not self._rule.unless:
            return False
        clause = self._read_clause(match)
        return any(compile_pattern(other).search(clause) for other in self._rule.unless)

    def _read_clause(self, match: re.Match[str]) -> str:
        """Return the clause of a match: an exception elsewhere says nothing about it."""
        text, original = self._text, self._region.text
        start, end = match.span()
        last = end - (text[end - 1] in ",.!?;:)")
        limit = end + _MAX_CLAUSE_CHARS
        clause_end = CLAUSE_END.search(original, last, limit)
        before = text[find_clause_start(original, max(0, start - _MAX_CLAUSE_CHARS), start) : start]
        after = remove_asides(text[last : clause_end.start() if clause_end else limit])
        if self._rule.engine == "instructions":
            before, after = self._select_conditions(before, after)
        return remove_hollow_negations(before + text[start:last] + after)

    def _select_conditions(self, before: str, after: str) -> tuple[str, str]:
        """Return what is before and after an order without the parts that are about another one.

        Only conditions can except a blocking order from the other side of a comma.
        """
        *earlier, before = _CLAUSE_COMMA.split(before)
        earlier = [remove_negation(part) for part in earlier]
        if self._rule.severity == "block":
            earlier = [part for part in earlier if _CONDITION_START.match(part)]
            after, *later = _CLAUSE_COMMA.split(after)
            after = ", ".join([after] + [part for part in later if _CONDITION_START.match(part)])
        return ", ".join([*earlier, remove_negation(before)]), after

    def _is_discussed(self, match: re.Match[str]) -> bool:
        """Whether a blocking match is discussed, not ordered; orders in code are data."""
        if self._rule.severity != "block" or not self._rule.talk:
            return False
        if self._rule.engine == "instructions" and self._region.kind in _CODE_KINDS:
            return True
        return is_example(self._region, self._region_text.path, *match.span())

    def _make_finding(self, match: re.Match[str], line: int) -> Finding:
        evidence = " ".join(self._region.text[match.start() : match.end()].split())
        if len(evidence) > MAX_EVIDENCE_CHARS:
            evidence = evidence[: MAX_EVIDENCE_CHARS - 1] + "…"
        return Finding(self._rule.id, self._region_text.path, self._region.line + line, evidence)


def _lower(text: str) -> str:
    """Return `text` in lower case, with the same positions."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def _find_windows(lowered: str, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Find the ranges to search: all of a short text, or overlapping windows with a word."""
    if len(lowered) <= _WINDOW_CHARS:
        yield 0, len(lowered)
        return
    step = _WINDOW_CHARS - _OVERLAP_CHARS
    for start in range(0, max(len(lowered) - _OVERLAP_CHARS, 1), step):
        end = min(start + _WINDOW_CHARS, len(lowered))
        if not words or any(lowered.find(word, start, end) >= 0 for word in words):
            yield start, end


def _blank_comments(text: str) -> str:
    """Replace the comments of a shell script by blanks."""
    if "#" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(" " * len(line) if line.lstrip().startswith("#") else line for line in lines)
