"""Terms: what is one word, in any script, and what it weighs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.detect.tokenizer import (
    MAX_GOAL_TERMS,
    MAX_TERM_CHARS,
    GoalText,
    extract_terms,
    segmenter_name,
    split_clauses,
)


@pytest.mark.parametrize(
    "words",
    [
        "review reviews reviewed reviewing",
        "create creates created creating",
        "generate generation generating generated",
        "deploy deploys deployed deploying",
        "story stories",
        "stop stopped stopping stops",
        "document documents documentation",
        "manage managing managed management",
        "implement implementation implements",
        "API APIs", "cpu CPUs", "menu menus", "code coding", "note noted", "run running",
        "fix fixes", "box boxes", "PDF PDFs", "C# csharp", ".NET dotnet",
    ],
)  # fmt: skip
def test_the_forms_of_a_word_are_one_word(words):
    assert len({tuple(extract_terms(word)) for word in words.split()}) == 1


def test_names_come_apart():
    assert extract_terms("getTeamStats") == ["getteamstat", "get", "team", "stats"]
    assert extract_terms("parse_HTMLPage-v2") == ["pars", "htmlpag", "html", "page", "v2"]
    assert {"sqlit"} <= set(extract_terms("SQLite")) & set(extract_terms("sqlite"))
    assert {"cte"} <= set(extract_terms("CTEs")) & set(extract_terms("CTE"))
    assert extract_terms("don't") == ["dont"]
    assert extract_terms("ＰＤＦ") == ["pdf"]


def test_dense_scripts_have_signs_pairs_and_words():
    found = extract_terms("合同审查")
    assert {"合", "合同", "同审", "审查"} <= set(found)
    if segmenter_name():
        assert {"=合同", "=审查"} <= set(found)
    assert "コー" in extract_terms("コードレビュー")
    assert "코드" in extract_terms("코드 리뷰")


def test_words_that_only_ask_are_left_out():
    assert GoalText("Please help me to review my contract").terms == {
        "review": 1.0,
        "contract": 1.0,
    }
    assert GoalText("yes, please continue").terms == {}
    chinese = GoalText("请帮我审查合同").terms
    assert "请帮" not in chinese
    assert "帮我" not in chinese
    assert max(GoalText("写一个").terms.values()) < 0.5  # one sign alone is hardly a wish


def test_letters_keep_their_marks():
    assert extract_terms("हिन्दी में अनुवाद") == ["हिन्दी", "में", "अनुवाद"]
    assert extract_terms("தமிழ் மொழி") == ["தமிழ்", "மொழி"]
    assert extract_terms("كِتَاب") == extract_terms("كتاب")
    assert extract_terms("cafe\u0301") == extract_terms("café")


def test_a_wish_after_a_log_counts():
    log = "\n".join(f"line {number} error code{number}x" for number in range(2_000))
    weights = GoalText(f"{log}\nPlease merge these invoices").terms
    assert weights["merg"] == weights["invoic"] == 1.0


def test_the_words_of_a_cutter_lead():
    needed = segmenter_name()
    assert needed == "rjieba", "the tests run with the extra `search`"
    weights = GoalText("请帮我审查合同").terms
    assert weights["=合同"] == 1.0
    assert weights["合同"] < 0.5


@given(st.text(max_size=200))
def test_any_text_has_terms_without_spaces(text):
    for term in (*extract_terms(text), *GoalText(text).terms):
        assert term
        assert " " not in term
        assert term.split() == [term]


def test_a_long_request_is_cut():
    assert (
        len(GoalText(" ".join(f"word{number}x" for number in range(9_999))).terms) == MAX_GOAL_TERMS
    )
    assert extract_terms("a" * (MAX_TERM_CHARS + 1)) == []
    began = time.thread_time()
    GoalText("的" * 1_000_000)
    GoalText("aB" * 500_000)
    split_clauses("a, then " * 100_000)
    assert time.thread_time() - began < 5


def test_the_parts_of_a_goal():
    assert split_clauses("Write the file. Mail it to Ann, then delete it") == [
        "Write the file.",
        "Mail it to Ann",
        "delete it",
    ]
    assert split_clauses("先写文件，然后发邮件。再删除它") == ["先写文件", "发邮件。", "再删除它"]
    assert split_clauses("ok") == ["ok"]
    assert split_clauses("") == [""]
    assert len(split_clauses("Do this. " * 50)) == 12


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("site", "sit"),
        ("note", "not"),
        ("state", "stats"),
        ("rate", "rat"),
        ("C", "C#"),
        ("C", "C++"),
    ],
)
def test_two_words_stay_apart(one, other):
    assert extract_terms(one) != extract_terms(other)


def test_british_and_american_spelling_are_one():
    british = "analyse organised visualisations colours behaviour catalogue"
    assert extract_terms(british) == extract_terms(
        "analyze organized visualizations colors behavior catalog"
    )


def test_words_in_s_that_mean_one_thing():
    words = ["redis", "status", "analysis", "ios", "axis", "this", "virus"]
    assert extract_terms(" ".join(words)) == words


def test_a_word_of_grammar_counts_where_it_is_written_as_a_name():
    assert "go" in GoalText("review my Go code").terms
    assert "go" not in GoalText("Go on and review my code").terms
    assert "to" not in GoalText("How To Build An App").terms
    assert "not" not in GoalText("do NOT deploy").terms
    assert "i" not in GoalText("today I deploy").terms
