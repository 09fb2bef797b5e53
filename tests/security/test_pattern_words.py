"""The words that decide whether a pattern is tried: no text that it matches lacks them."""

from __future__ import annotations

import importlib
import random
import re
from typing import Any

import pytest

from satchel.security.pattern_words import read_pattern_words
from satchel.security.rules import RULES, compile_pattern

codes: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")
CATEGORIES = {
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_WORD: "w",
    codes.CATEGORY_NOT_SPACE: "x",
    codes.CATEGORY_NOT_WORD: ";",
    codes.CATEGORY_NOT_DIGIT: "x",
}


def example(tree, dice: random.Random) -> str:
    """A text that an expression matches, but for what it looks ahead or behind."""
    return "".join(piece(kind, value, dice) for kind, value in tree)


def piece(kind, value, dice: random.Random) -> str:
    if kind is codes.LITERAL:
        return chr(value)
    if kind is codes.IN:
        kind, value = dice.choice(value)
        if kind is codes.RANGE:
            return chr(dice.choice(value))
        return CATEGORIES[value] if kind is codes.CATEGORY else chr(value or 120)
    if kind is codes.BRANCH:
        return example(dice.choice(value[1]), dice)
    if kind is codes.SUBPATTERN:
        return example(value[3], dice)
    if kind in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
        least, most, inner = value
        times = dice.randint(least, min(most, least + 2))
        return "".join(example(inner, dice) for _ in range(times))
    return "x" if kind in {codes.ANY, codes.NOT_LITERAL} else ""


def patterns() -> list[str]:
    """Every pattern, without the words that it states."""
    found = {one for rule in RULES.values() for one in (*rule.any, *rule.all)}
    return sorted(re.sub(r"\(\?#[^)]*\)", "", one) for one in found)


def test_every_match_has_the_words_of_its_pattern():
    dice = random.Random(3)
    tried = 0
    for pattern in patterns():
        words = read_pattern_words(pattern)
        tree = parser.parse(pattern)
        found = [compile_pattern(pattern).search(example(tree, dice)) for _ in range(20)]
        matches = [one.group() for one in found if one]
        tried += bool(matches)
        for text in matches:
            assert not words.starts or text.startswith(words.starts), (pattern, text)
            for group in words.groups:
                assert any(word in text for word in group), (pattern, text, group)
    assert tried > 0.7 * len(patterns())


@pytest.mark.parametrize(
    ("pattern", "starts", "groups"),
    [
        (r"\bsend(?:s|ing)?\b", ["send"], [["send"]]),
        (r"e-?mail the (?:key|code)s", ["e-mail the codes", "e-mail the keys", "email the codes",
                                        "email the keys"], [["codes", "mail"]]),
        (r"(?:curl|wget)\s[^\n]{0,9}\|\s*sh", ["curl", "wget"], [["curl", "wget"]]),
        (r"(?:foo)?bar\)baz", ["bar)baz", "foobar)baz"], [["bar"]]),
        (r"\w+ (?:token|\d+)", [], []),
        (r"(?:abc|def)*ghi{2,}", [], []),
        (r"(?=abc)(?!def)(?<=ghi)jkl+", ["jk"], []),
        (r"[ -]abc[^x]def", [" abc", "-abc"], [["abc"], ["def"]]),
    ],
)  # fmt: skip
def test_the_words_of_an_expression(pattern, starts, groups):
    words = read_pattern_words(pattern)
    assert list(words.starts) == starts
    assert sorted(sorted(group) for group in words.groups) == groups
