from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.blocks import hostile
from in_memory import skill
from satchel.catalogue import Account, Budget, build_catalogue
from satchel.catalogue.budget import sentence_ends, shorten
from satchel.catalogue.render import clean
from satchel.errors import InvalidInput


@pytest.mark.req("A11")
def test_a_budget_is_characters_tokens_or_a_share_of_the_window():
    assert Budget.of(12_000) == (12_000, "characters")
    assert Budget.tokens(3_000) == (3_000, "tokens")
    assert Budget.share(0.02, window=200_000) == (4_000, "tokens")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("four", 1),
        ("fours", 2),
        ("Привет", 3),
        ("代码审查", 4),
        ("คน", 2),
        ("👍", 1),
    ],
)
def test_tokens_are_estimated_and_wide_scripts_count_more(text, tokens):
    assert Budget.tokens(9).measure(text) == tokens


@pytest.mark.parametrize(
    "make",
    [
        lambda: Budget.of(-1),
        lambda: Budget.tokens(-1),
        lambda: Budget.share(1.5, window=10),
        lambda: Budget.share(-0.1, window=10),
        lambda: Budget.share(0.5, window=-10),
        lambda: Budget(1, "pages").checked(),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(make):
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.req("A11")
def test_the_account_knows_how_each_skill_stands():
    account = Account(100, 90, 7, ("a",), ("b",), ("c",), 2, ("e", "f"))
    stands = [account.standing(name) for name in "abcde"]
    assert stands == ["full", "shortened", "named", "unlisted", "withheld"]


def test_the_summary_names_only_what_there_is():
    assert Account(100, 0, 0).summary() == "no skills; 0 of 100 characters"
    assert Account(100, 90, 5, ("a",), ("b",), ("c",), 2, unit="tokens").summary() == (
        "5 skills: 1 in full, 1 shortened, 1 by name, 2 not listed; about 90 of 100 tokens"
    )


@pytest.mark.req("A11")
def test_a_small_budget_drops_the_rules_before_the_names():
    skills = [skill(f"skill-{n:02d}", "Does a thing with great care. " * 4) for n in range(12)]
    for form in ("xml", "markdown"):
        made = build_catalogue(skills, budget=450, form=form)
        assert len(made.text) <= 450
        assert made.account.unlisted == 0
        assert not made.account.rules
        assert "without the rules" in made.account.summary()
        assert all(one.name in made.text for one in skills)
    assert build_catalogue(skills, budget=2_500).account.rules


def cut(text: str, limit: int) -> str:
    return shorten(text, limit, sentence_ends(text))


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("Reviews code.", 24, "Reviews code."),
        ("Reviews code. Use it before each merge.", 20, "Reviews code. …"),
        ("A. Reviews the code of a whole project.", 24, "A. Reviews the code of…"),
        ("Reads files, tables and pictures of any kind", 13, "Reads files…"),
        (
            "Works with tools, e.g. compilers and linters of all kinds",
            30,
            "Works with tools, e.g.…",
        ),
        ("审查代码的质量和风险给出可执行的修改建议", 10, "审查代码的质量和风…"),
        ("审查代码。给出可执行的修改建议和说明", 9, "审查代码。给出可…"),
        ("审查代码的质量。给出可执行的修改建议", 11, "审查代码的质量。 …"),
        ("https://example.com/a/very/long/address", 20, "https://example.com…"),
        ("Überprüft größere Änderungen", 20, "Überprüft größere…"),
        ("家族は👩\u200d💻と一緒", 5, "家族は…"),
        ("ที่นี่มีคนอยู่มากมาย", 6, "ที่…"),
    ],
)
def test_a_text_is_cut_where_a_reader_would(text, limit, short):
    assert cut(text, limit) == short


@given(hostile.map(clean), st.integers(3, 200))
def test_a_cut_text_is_a_beginning_within_the_limit(text, limit):
    short = cut(text, limit)
    assert len(short) <= limit
    if short != text:
        assert short.endswith("…")
        assert text.startswith(short[:-1].rstrip())
