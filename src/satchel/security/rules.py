"""Scan rules, loaded from `rules/*.toml` at first use.

A text rule matches where one of `any` matches, every one of `with` matches within `near`
characters, and none of `unless` matches on the same line. `needs` and `also` are plain words: a
text without one of each cannot match, which excludes most rules for most files without a regular
expression. A pattern may state its own words at its start, as `(?#word|word)(?#other)`: a match
contains one of each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Severity = Literal["block", "review", "note"]
SEVERITIES: tuple[Severity, ...] = ("block", "review", "note")


OWASP = {
    "AST01": "Malicious skills",
    "AST02": "Supply chain compromise",
    "AST03": "Over-privileged skills",
    "AST04": "Insecure metadata",
    "AST05": "Untrusted external instructions",
    "AST06": "Weak isolation",
    "AST07": "Update drift",
    "AST08": "Poor scanning",
    "AST09": "No governance",
    "AST10": "Cross-platform reuse",
}
"""The classes of the OWASP Agentic Skills Top 10."""

_GROUPS = {
    "commands": ("shell", "powershell", "plain", "prose", "hidden", "front", "decoded"),
    "scripts": ("shell", "powershell", "plain", "decoded"),
    "words": ("prose", "plain", "hidden", "front", "decoded"),
    "code": ("shell", "powershell", "python", "javascript", "code", "decoded"),
    "everywhere": (
        "shell", "powershell", "python", "javascript", "code", "plain", "prose", "hidden", "front",
        "data", "decoded",
    ),
}  # fmt: skip
"""Group name -> kinds of regions."""


class ScanRule(NamedTuple):
    """A scan rule."""

    id: str
    severity: Severity
    what: str
    """What was found."""
    fix: str
    """What to do: the same for all rules of a file and severity."""
    owasp: tuple[str, ...] = ()
    engine: str = "text"
    where: frozenset[str] = frozenset()
    """Kinds of regions that a text rule applies to."""
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    """Regular expressions, for `compiled_pattern`."""
    all: tuple[str, ...] = ()
    near: int = 0
    """Maximum distance of `all` from the match, in characters; 0: anywhere in the region."""
    unless: tuple[str, ...] = ()
    talk: bool = True
    """Whether a match in a text that discusses attacks is downgraded."""


@cache
def _read() -> dict[str, ScanRule]:
    import tomllib

    folder = os.path.join(os.path.dirname(__file__), "rules")
    rules: dict[str, ScanRule] = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".toml"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            table = tomllib.load(file)
        for row in table["rule"]:
            rule = _rule(row, os.path.splitext(name)[0], table)
            if rule.id in rules:
                raise ValueError(f"two rules are called {rule.id}")
            rules[rule.id] = rule
    return rules


def _rule(row: Mapping[str, Any], engine: str, table: Mapping[str, Any]) -> ScanRule:
    fragments = table.get("fragments", {})
    patterns = _patterns(row.get("any", ()), fragments)
    kinds = (part for word in row.get("where", ()) for part in _GROUPS.get(word, (word,)))
    return ScanRule(
        id=row["id"],
        severity=row["severity"],
        what=row["what"],
        fix=table["block_fix" if row["severity"] == "block" else "fix"],
        owasp=tuple(row["owasp"]),
        engine=row.get("engine", engine),
        where=frozenset(kinds),
        needs=tuple(row.get("needs", _stated_words(patterns))),
        also=tuple(row.get("also", ())),
        any=patterns,
        all=_patterns(row.get("with", ()), fragments),
        near=row.get("near", 0),
        unless=_patterns(row.get("unless", ()), fragments),
        talk=row.get("talk", True),
    )


def _patterns(patterns: Sequence[str], fragments: Mapping[str, str]) -> tuple[str, ...]:
    """Regular expressions in lower case; `<name>` is replaced by a fragment of the same file."""
    made: list[str] = []
    for text in patterns:
        for name, part in fragments.items():
            text = text.replace(f"<{name}>", part)  # noqa: PLW2901 - built up piece by piece
        made.append(_ESCAPE.sub(_lowered, text))
    return tuple(made)


@cache
def compiled_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern, for texts in lower case, at its first use: most files need a few rules."""
    return re.compile(text, re.MULTILINE)


@cache
def required_words(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Words in a pattern, stated or outside of brackets: a match contains one of each tuple."""
    if stated := _STATED.match(pattern):
        return tuple(tuple(group.split("|")) for group in stated[1][3:-1].split(")(?#"))
    words: list[tuple[str, ...]] = []
    depth = 0
    for part in _PARTS.findall(pattern):
        if depth == 0 and part == "|":
            return ()
        depth += (part == "(") - (part == ")")
        if depth == 0 and part[0] != "[" and part[-1] not in "?*{":
            branches = part.removeprefix("(?:").rstrip(")").split("|")
            words.append(tuple(max(_OPTIONAL.split(one), key=len) for one in branches))
    return tuple(group for group in words if min(map(len, group)) > 2)


def _stated_words(patterns: Sequence[str]) -> tuple[str, ...]:
    """The first words that the patterns state; none if one of them states no words."""
    if not all(map(_STATED.match, patterns)):
        return ()
    return tuple(dict.fromkeys(word for one in patterns for word in required_words(one)[0]))


def _lowered(found: re.Match[str]) -> str:
    r"""A letter in lower case; an escape such as `\S` is unchanged."""
    return found.group() if found.group().startswith("\\") else found.group().lower()


_STATED = re.compile(r"((?:\(\?#[^)]+\))+)")
_ESCAPE = re.compile(r"\\.|[A-Z]")
_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:[\w '?|-]+\)[?*{]?"
    r"|[a-z ]+(?=[a-z ][?*{])|[a-z ]+|."
)
"""Escapes, classes, groups of plain alternatives, words without an optional last letter."""
_OPTIONAL = re.compile(r".\?|[^a-z ']")


class _Rules(Mapping[str, ScanRule]):
    """The rules, read at first use."""

    def __getitem__(self, key: str) -> ScanRule:
        return _read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_read())

    def __len__(self) -> int:
        return len(_read())


RULES = _Rules()
"""Every rule by its id; also the source of the reference page."""


@cache
def text_rules() -> tuple[ScanRule, ...]:
    """The rules with text patterns."""
    return tuple(rule for rule in RULES.values() if rule.any)
