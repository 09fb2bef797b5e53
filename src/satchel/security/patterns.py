"""Where does a file match a text rule?

Plain words decide first: most rules are done with a file before a regular expression runs. Long
texts are looked at in pieces, and a text that repeats a rule's words without end is given up, so
that no text can make a scan slow.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from satchel.security.context import softened, talks
from satchel.security.report import Finding
from satchel.security.rules import every_word, text_rules, words_of_rules
from satchel.security.yara import word_finder

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

    from satchel.security.budget import Budget
    from satchel.security.regions import Region
    from satchel.security.rules import Pattern, Rule

_MATCHES = 20
"""Matches of one rule in one region that are looked at: more say nothing new."""
_PIECE = 8192
_OVERLAP = 1024
"""Long texts are looked at in pieces, so that the time can be checked between them."""
_DENSE = 200
"""Words of a rule in one piece. Real text has a third of it at most."""
_SPARSE = 2 * _DENSE
"""A text of this length cannot hold that many words."""
_EVIDENCE = 160
_CODE = frozenset(("shell", "powershell", "python", "javascript", "code", "data"))


class TooDense(Exception):
    """Words of a rule are repeated so often that looking closer would take for ever."""


def find_patterns(
    path: str, regions: Sequence[Region], lowered: str, budget: Budget
) -> list[Finding]:
    """What the text rules find in a file.

    Args:
        path: For the findings.
        regions: The parts of the file.
        lowered: The whole file in lower case, for the quick look.
        budget: The time there is.

    Raises:
        OutOfTime: there is none left.
        TooDense: words of a rule are repeated without end.
    """
    return [*_find(path, regions, lowered, budget)]


def _find(path: str, regions: Sequence[Region], lowered: str, budget: Budget) -> Iterator[Finding]:
    present = _present(lowered)
    rules = [
        (rule, present.intersection(rule.needs), present.intersection(rule.also))
        for rule in text_rules()
        if (not rule.needs or not present.isdisjoint(rule.needs))
        and (not rule.also or not present.isdisjoint(rule.also))
    ]
    if not rules:
        return
    by_kind: dict[str, tuple[list[tuple[Rule, set[str], set[str]]], list[str]]] = {}
    for region in regions:
        kind = region.kind
        if kind not in by_kind:
            own = [row for row in rules if kind in row[0].where]
            by_kind[kind] = own, [*{word for row in own for words in row[1:] for word in words}]
        own, words = by_kind[kind]
        low = lower(region.text)
        here = {word for word in words if word in low}
        code = ""
        for rule, needs, also in own:
            if (needs and here.isdisjoint(needs)) or (also and here.isdisjoint(also)):
                continue
            if rule.engine != "instructions":
                code = code or _code_only(kind, low)
            text = low if rule.engine == "instructions" else code
            for start, end in _pieces(low, needs & here):
                budget.check()
                yield from _fires(path, region, text, rule, start, end)


def _present(lowered: str) -> set[str]:
    """The words of rules that a text holds."""
    finder = word_finder(every_word())
    if finder is not None:
        return finder.present(lowered)
    plain, spaced, foreign = words_of_rules()
    # Each word once: a page says the same words over and over.
    once = " ".join(set(lowered.split()))
    if not once.isascii():
        once = once.encode("ascii", "replace").decode("ascii")
    found = {word for word in plain if word in once}
    found.update(word for word in spaced if word in lowered)
    if not lowered.isascii():
        found.update(word for word in foreign if word in lowered)
    return found


def lower(text: str) -> str:
    """`text` in lower case, each character at its place."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def _pieces(low: str, words: set[str]) -> Iterator[tuple[int, int]]:
    """Where to look: everything at once, or pieces that overlap when there is much.

    Raises:
        TooDense: a piece repeats the rule's words without end.
    """
    if len(low) <= _SPARSE:
        yield 0, len(low)
        return
    for start in range(0, max(len(low) - _OVERLAP, 1), _PIECE - _OVERLAP):
        end = min(start + _PIECE, len(low))
        hits = 0
        for word in words:
            hits += low.count(word, start, end)
        if hits > _DENSE:
            raise TooDense
        if hits or not words:
            yield start, end


def _fires(
    path: str, region: Region, text: str, rule: Rule, first: int, last: int
) -> Iterator[Finding]:
    seen: set[int] = set()
    starts: list[int] | None = None
    for pattern in rule.any:
        for found in _matches(pattern, text, first, last):
            if not _holds(rule, text, found.start(), found.end()):
                continue
            if starts is None:
                starts = _line_starts(text)
            row = bisect_right(starts, found.start()) - 1
            if row in seen:
                continue
            seen.add(row)
            end = text.find("\n", found.end())
            line = text[starts[row] : end if end >= 0 else len(text)]
            if any(other.search(line[:2000]) for other in rule.unless):
                continue
            shown = _short(region.text[found.start() : found.end()])
            finding = Finding(rule.id, path, region.line + row, shown)
            soft = rule.severity == "block" and _soft(rule, region, path, found.span())
            yield softened(finding) if soft else finding


def _matches(pattern: Pattern, text: str, first: int, last: int) -> Iterator[re.Match[str]]:
    count = 0
    while count < _MATCHES:
        found = pattern.search(text, first, last)
        if found is None:
            return
        start = found.start()
        if pattern.word and start and (text[start - 1].isalnum() or text[start - 1] == "_"):
            first = start + 1  # the middle of a word; a match may begin inside this one
            continue
        count += 1
        yield found
        first = max(found.end(), start + 1)


def _soft(rule: Rule, region: Region, path: str, span: tuple[int, int]) -> bool:
    """Whether the words are talked about. Orders in code are data of some program."""
    if not rule.talk:
        return False
    if rule.engine == "instructions" and region.kind in _CODE:
        return True
    return talks(region, path, *span)


def _holds(rule: Rule, text: str, start: int, end: int) -> bool:
    if not rule.all:
        return True
    window = text[max(0, start - rule.near) : end + rule.near] if rule.near else text
    return all(other.search(window) for other in rule.all)


def _code_only(kind: str, text: str) -> str:
    """The text; in a shell script without its comments, at the same places."""
    if kind != "shell" or "#" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(" " * len(line) if line.lstrip().startswith("#") else line for line in lines)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _EVIDENCE else text[: _EVIDENCE - 1] + "…"
