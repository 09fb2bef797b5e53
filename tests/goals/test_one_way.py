"""Where a pattern is said to have one way, no text is read in two."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.goals.one_way import Unclear, characters, inner_flags, repeated, widest_choice

pytestmark = pytest.mark.timeout(60)

parser = import_module("re._parser")
TIMES = ("*", "+", "?", "{2,3}")
SETS = ["a", "b", "-", "[ab]", "[^a]", r"\w"]
TRICKY = (
    "aAkKsSiIzZ09_ -.\n\t\x1c\x1f\u00e9\u00c9\u212a\u017f\u0130\u0131\u0660\u3000\u4e00\u3001\u24b6"
)


def one_way(pattern: str, whole=widest_choice) -> bool:
    tree = parser.parse(pattern)
    try:
        whole(tree, tree.state.flags)
    except Unclear:
        return False
    return True


def grown(inner):
    return st.one_of(
        st.tuples(st.just("then"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("or"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.sampled_from(TIMES), inner),
    )


patterns = st.recursive(st.sampled_from(SETS), grown, max_leaves=6)


def written(pattern) -> str:
    if isinstance(pattern, str):
        return pattern
    kind, inner = pattern
    if kind in TIMES:
        return f"(?:{written(inner)}){kind}"
    parts = [written(one) for one in inner]
    return "(?:" + ("|" if kind == "or" else "").join(parts) + ")"


def ends(tree, text: str, at: int):
    """Every way to read the text from here, by where it ends: as Python goes back and tries."""
    if not tree:
        yield at
        return
    (op, value), *rest = tree
    for middle in part_ends(str(op), value, text, at):
        yield from ends(rest, text, middle)


def part_ends(name, value, text: str, at: int):
    if name == "SUBPATTERN":
        yield from ends(list(value[3]), text, at)
    elif name == "BRANCH":
        for one in value[1]:
            yield from ends(list(one), text, at)
    elif name == "MAX_REPEAT":
        yield from rounds(list(value[2]), text, at, int(value[0]), int(value[1]))
    elif at < len(text) and characters(name, value, 0) & 1 << ord(text[at]):
        yield at + 1


def rounds(body, text: str, at: int, least: int, most: int):
    if least <= 0:
        yield at
    if most > 0:
        for middle in ends(body, text, at):
            if middle > at or least > 0:
                yield from rounds(body, text, middle, least - 1, most - 1)


@given(patterns, st.text("ab-", max_size=6))
def test_no_text_is_read_in_two_ways(pattern, text):
    if one_way(written(pattern)):
        found = Counter(ends(list(parser.parse(written(pattern))), text, 0))
        assert all(count == 1 for count in found.values())


@given(patterns, st.text("ab-", max_size=6))
def test_nor_is_what_repeats(pattern, text):
    if one_way(written(pattern), repeated):
        found = Counter(ends(list(parser.parse(f"(?:{written(pattern)})+")), text, 0))
        assert all(count == 1 for count in found.values())


@pytest.mark.parametrize("flags", ["", "(?i)", "(?a)", "(?ai)", "(?s)"])
@pytest.mark.parametrize(
    "items",
    [
        ".", "a", "K", "[^k]", "[a-z]", "[^a-z]", "[^\u212a]", "\u212a", "\u24d0",
        r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[^\s]", r"[^\w-]", r"[\d.]",
        "[\u4e00-\u9fff]", "[\u00e0-\u00ff]", "[\u0100-\uffff]",
    ],
)  # fmt: skip
def test_no_character_is_left_out_of_a_set(items, flags):
    tree = parser.parse(flags + items)
    ((op, value),) = tree
    found = characters(str(op), value, tree.state.flags)
    for character in TRICKY:
        if re.fullmatch(flags + items, character):
            ((_, number),) = parser.parse(re.escape(character))
            alone = characters("LITERAL", number, 0)
            assert found & alone, character


def test_sets_are_not_larger_than_they_must_be():
    assert one_way("(?:[a-z]|-|[0-9])*")
    assert one_way(r"(?:\w|\s)*")
    assert one_way(r"(?i)(?:a|b)*")
    assert one_way("(?:[^,]|,)*")
    assert one_way("a{0,500}b")
    assert not one_way("a{0,5}a")
    assert not one_way("a{5000}")


@pytest.mark.parametrize("outer", ["", "(?i)", "(?a)", "(?ai)", "(?s)"])
@pytest.mark.parametrize("inner", ["a", "u", "i", "-i", "ai", "u-i", "ui", "s", "-s", "a-s"])
def test_flags_of_a_group_are_joined_as_python_joins_them(outer, inner):
    for items in (r"\w", r"\s", r"\d", ".", "k", r"[^\W]"):
        tree = parser.parse(f"{outer}(?{inner}:{items})")
        ((_, (_, added, removed, body)),) = tree
        ((op, value),) = body
        flags = inner_flags(tree.state.flags, added, removed)
        found = characters(str(op), value, flags)
        for character in TRICKY:
            if re.fullmatch(f"{outer}(?{inner}:{items})", character):
                ((_, number),) = parser.parse(re.escape(character))
                assert found & characters("LITERAL", number, 0), (items, character)


def test_a_group_with_another_alphabet_is_not_one_way():
    assert not one_way(r"(?a)^(?u:(?:\w-?|é-?)*)$")
    assert not one_way(r"(?a)^(?u:(?:\w|éé)*)$")
    assert one_way(r"(?a:(?:\w|é)*)")
