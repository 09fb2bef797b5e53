"""Scan rules, loaded from `rules/*.toml` at first use.

A text rule matches where one of `any` matches, every one of `with` matches within `near`
characters, and none of `unless` matches on the same line. `needs` and `also` are plain words: a
text without one of each cannot match, which excludes most rules for most files without a regular
expression.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Severity = Literal["block", "review", "note"]
SEVERITIES: tuple[Severity, ...] = ("block", "review", "note")


class Pattern:
    r"""A regular expression without its leading `\b`, which makes the search faster.

    It is compiled at first use: most files need a few rules only.
    """

    __slots__ = ("search", "text", "word")

    def __init__(self, text: str, *, word: bool) -> None:
        """Store the expression; with `word` a match must start at the start of a word."""
        self.text = text
        self.word = word
        self.search: Callable[..., re.Match[str] | None] = self._first

    def _first(self, text: str, *bounds: int) -> re.Match[str] | None:
        self.search = re.compile(self.text, re.MULTILINE).search
        return self.search(text, *bounds)


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
    any: tuple[Pattern, ...] = ()
    all: tuple[Pattern, ...] = ()
    near: int = 0
    """Maximum distance of `all` from the match, in characters; 0: anywhere in the region."""
    unless: tuple[Pattern, ...] = ()
    talk: bool = True
    """Whether a match in a text that discusses attacks is downgraded."""


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
    kinds = (part for word in row.get("where", ()) for part in _GROUPS.get(word, (word,)))
    return ScanRule(
        id=row["id"],
        severity=row["severity"],
        what=row["what"],
        fix=table["block_fix" if row["severity"] == "block" else "fix"],
        owasp=tuple(row["owasp"]),
        engine=row.get("engine", engine),
        where=frozenset(kinds),
        needs=tuple(row.get("needs", ())),
        also=tuple(row.get("also", ())),
        any=_patterns(row.get("any", ()), fragments),
        all=_patterns(row.get("with", ()), fragments),
        near=row.get("near", 0),
        unless=_patterns(row.get("unless", ()), fragments),
        talk=row.get("talk", True),
    )


def _patterns(patterns: Sequence[str], fragments: Mapping[str, str]) -> tuple[Pattern, ...]:
    """Regular expressions; `<name>` is replaced by a fragment of the same file.

    Patterns and texts are in lower case: without `IGNORECASE` the engine searches for a literal
    prefix, which is several times faster.
    """
    made: list[Pattern] = []
    for text in patterns:
        for name, part in fragments.items():
            text = text.replace(f"<{name}>", part)  # noqa: PLW2901 - built up piece by piece
        text = _ESCAPE.sub(_lowered, text)  # noqa: PLW2901 - the same
        word = text.startswith(r"\b") and not _has_branches(text)
        made.append(Pattern(text[2:] if word else text, word=word))
    return tuple(made)


def _has_branches(text: str) -> bool:
    """Whether there is a `|` outside of all brackets."""
    depth = 0
    for part in _BRACKETS.findall(text):
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            return True
    return False


def _lowered(found: re.Match[str]) -> str:
    r"""A letter in lower case; an escape such as `\S` is unchanged."""
    return found.group() if found.group().startswith("\\") else found.group().lower()


_BRACKETS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]")
_ESCAPE = re.compile(r"\\.|[A-Z]")


class _Rules(Mapping[str, ScanRule]):
    """The built-in rules and those of the user's YARA files."""

    def __init__(self) -> None:
        self._rules: dict[str, ScanRule] = {}
        self._shipped = False

    def _all(self) -> dict[str, ScanRule]:
        if not self._shipped:
            self._rules |= _read()
            self._shipped = True
        return self._rules

    def add(self, rule: ScanRule) -> None:
        """Add a rule of the user's YARA files."""
        self._all().setdefault(rule.id, rule)

    def __getitem__(self, key: str) -> ScanRule:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


RULES = _Rules()
"""Every rule by its id; also the source of the reference page."""


@cache
def text_rules() -> tuple[ScanRule, ...]:
    """The rules with text patterns."""
    return tuple(rule for rule in RULES.values() if rule.any)


@cache
def words_of_rules() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The words of text rules in three parts: ASCII without a space, with a space, not ASCII."""
    words = sorted({word for rule in text_rules() for word in (*rule.needs, *rule.also)})
    return (
        tuple(word for word in words if word.isascii() and " " not in word),
        tuple(word for word in words if word.isascii() and " " in word),
        tuple(word for word in words if not word.isascii()),
    )
