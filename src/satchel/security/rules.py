"""Which rules are there? Reads `rules/*.toml` once, when the first one is asked for.

A rule is data: what it means, why it matters, what to do, and for text rules the patterns. A text
rule fires where one of `any` matches, every one of `with` matches within `near` characters, and
none of `unless` matches on the same line. `needs` are plain words of which a text must hold one,
and one of `also`: they decide without a regular expression for most rules and most files.
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
    r"""A regular expression, without the `\b` that it began with: the engine is faster so.

    It is compiled when it is first tried. Most files have words of a few rules, and compiling all
    takes longer than looking at many a skill.
    """

    __slots__ = ("search", "text", "word")

    def __init__(self, text: str, *, word: bool) -> None:
        """Take the expression; `word` is whether a match must begin where a word begins."""
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
"""Names that stand for several kinds of region."""


class Rule(NamedTuple):
    """One thing a scan looks for."""

    id: str
    severity: Severity
    what: str
    """What the skill does, in one sentence."""
    why: str
    """Why that matters."""
    fix: str
    """What to do next, in the imperative."""
    owasp: tuple[str, ...] = ()
    engine: str = "text"
    where: frozenset[str] = frozenset()
    """Kinds of region that a text rule looks at."""
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    any: tuple[Pattern, ...] = ()
    all: tuple[Pattern, ...] = ()
    near: int = 0
    """How far from the match `all` may be, in characters; 0 means anywhere in the region."""
    unless: tuple[Pattern, ...] = ()
    talk: bool = True
    """Whether a text that talks about the thing is told from one that does it."""


def _read() -> dict[str, Rule]:
    import tomllib

    folder = os.path.join(os.path.dirname(__file__), "rules")
    rules: dict[str, Rule] = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".toml"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            table = tomllib.load(file)
        for row in table["rule"]:
            rule = _rule(row, os.path.splitext(name)[0], table.get("fragments", {}))
            if rule.id in rules:
                raise ValueError(f"two rules are called {rule.id}")
            rules[rule.id] = rule
    return rules


def _rule(row: Mapping[str, Any], engine: str, fragments: Mapping[str, str]) -> Rule:
    kinds = (part for word in row.get("where", ()) for part in _GROUPS.get(word, (word,)))
    return Rule(
        id=row["id"],
        severity=row["severity"],
        what=row["what"],
        why=row["why"],
        fix=row["fix"],
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
    """Regular expressions; `<name>` in one stands for a fragment of the same file.

    They are written in lower case and tried on text in lower case: without `IGNORECASE` the engine
    looks for a literal beginning, which is several times faster.
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
    """Whether a `|` stands outside of all brackets."""
    depth = 0
    for part in _BRACKETS.findall(text):
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            return True
    return False


def _lowered(found: re.Match[str]) -> str:
    r"""A letter in lower case; an escape such as `\S` stays what it is."""
    return found.group() if found.group().startswith("\\") else found.group().lower()


_BRACKETS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]")
_ESCAPE = re.compile(r"\\.|[A-Z]")


class _Rules(Mapping[str, Rule]):
    """The shipped rules and, for the length of a process, those of YARA files that were given."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._shipped = False

    def _all(self) -> dict[str, Rule]:
        if not self._shipped:
            self._rules |= _read()
            self._shipped = True
        return self._rules

    def add(self, rule: Rule) -> None:
        """Make a rule known that came from the user."""
        self._all().setdefault(rule.id, rule)

    def __getitem__(self, key: str) -> Rule:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


RULES = _Rules()
"""Every rule by its id; the reference page is made from it."""


@cache
def text_rules() -> tuple[Rule, ...]:
    """The rules that are patterns on text."""
    return tuple(rule for rule in RULES.values() if rule.any)


@cache
def every_word() -> tuple[str, ...]:
    """Every word that decides whether a text rule is tried."""
    return tuple(sorted({word for rule in text_rules() for word in (*rule.needs, *rule.also)}))


@cache
def words_of_rules() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The same in three parts: plain ones, with a space, not ASCII."""
    words = every_word()
    return (
        tuple(word for word in words if word.isascii() and " " not in word),
        tuple(word for word in words if word.isascii() and " " in word),
        tuple(word for word in words if not word.isascii()),
    )
