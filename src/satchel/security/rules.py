"""Scan rules, loaded from `rules/*.toml` at first use.

A text rule matches where one of `any` matches, every one of `with` matches within `near`
characters, and none of `unless` matches in the same sentence or command. `needs` and `also` are
plain words: a text without one of each cannot match, which excludes most rules for most files
without a regular expression. So do the plain words in each pattern. A pattern may state more of
them at its start, as `(?#word|word)(?#other)`: a match contains one of each.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.security.pattern_words import read_stated_words

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

_REGION_GROUPS = {
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
_UPPERCASE_OR_ESCAPE = re.compile(r"\\.|[A-Z]")


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
    """Regular expressions, for `compile_pattern`."""
    all: tuple[str, ...] = ()
    near: int = 0
    """Maximum distance of `all` from the match, in characters; 0: anywhere in the region."""
    unless: tuple[str, ...] = ()
    talk: bool = True
    """Whether a match in a text that discusses attacks is downgraded."""


@cache
def _read_rules() -> dict[str, ScanRule]:
    folder = os.path.join(os.path.dirname(__file__), "rules")
    rules: dict[str, ScanRule] = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".toml"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            table = tomllib.load(file)
        for entry in table["rule"]:
            rule = _make_rule(entry, os.path.splitext(name)[0], table)
            if rule.id in rules:
                raise ValueError(f"two rules are called {rule.id}")
            rules[rule.id] = rule
    return rules


def _make_rule(entry: Mapping[str, Any], engine: str, table: Mapping[str, Any]) -> ScanRule:
    """Make a rule of its entry in a file.

    Args:
        entry: The rule.
        engine: The name of the file, which names the engine by default.
        table: The file.
    """
    fragments = table.get("fragments", {})
    patterns = _expand_patterns(entry.get("any", ()), fragments)
    kinds: set[str] = set()
    for name in entry.get("where", ()):
        kinds.update(_REGION_GROUPS.get(name, (name,)))
    return ScanRule(
        id=entry["id"],
        severity=entry["severity"],
        what=entry["what"],
        fix=table["block_fix" if entry["severity"] == "block" else "fix"],
        owasp=tuple(entry["owasp"]),
        engine=entry.get("engine", engine),
        where=frozenset(kinds),
        needs=tuple(entry.get("needs", _collect_stated_words(patterns))),
        also=tuple(entry.get("also", ())),
        any=patterns,
        all=_expand_patterns(entry.get("with", ()), fragments),
        near=entry.get("near", 0),
        unless=_expand_patterns(entry.get("unless", ()), fragments),
        talk=entry.get("talk", True),
    )


def _expand_patterns(patterns: Sequence[str], fragments: Mapping[str, str]) -> tuple[str, ...]:
    """Return regular expressions in lower case; `<name>` stands for a fragment of the file."""
    expanded: list[str] = []
    for text in patterns:
        for name, part in fragments.items():
            text = text.replace(f"<{name}>", part)  # noqa: PLW2901 - built up piece by piece
        expanded.append(_UPPERCASE_OR_ESCAPE.sub(_lower_match, text))
    return tuple(expanded)


@cache
def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern, for texts in lower case, at its first use: most files need a few rules."""
    return re.compile(text, re.MULTILINE)


def _collect_stated_words(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the first words that the patterns state; none if one of them states no words."""
    stated_words = [read_stated_words(pattern) for pattern in patterns]
    if not all(stated_words):
        return ()
    return tuple(dict.fromkeys(word for groups in stated_words for word in groups[0]))


def _lower_match(match: re.Match[str]) -> str:
    r"""Return a letter in lower case; an escape such as `\S` is unchanged."""
    return match.group() if match.group().startswith("\\") else match.group().lower()


class _LazyRules(Mapping[str, ScanRule]):
    """The rules, read at first use."""

    def __getitem__(self, key: str) -> ScanRule:
        return _read_rules()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_read_rules())

    def __len__(self) -> int:
        return len(_read_rules())


RULES = _LazyRules()
"""Every rule by its id; also the source of the reference page."""


@cache
def list_text_rules() -> tuple[ScanRule, ...]:
    """Return the rules with text patterns."""
    return tuple(rule for rule in RULES.values() if rule.any)
