"""The detector by words: who comes first, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_memory import skill
from satchel.detect import LexicalDetector, Match, MinimalSkillDetector


def found(goal: str, *skills, limit: int = 50) -> list[str]:
    return [match.name for match in LexicalDetector(limit).detect(goal, skills)]


def test_a_match_names_words_and_fields():
    detector = LexicalDetector()
    one = skill("code-review", "Checks pull requests")
    (match,) = detector.detect("Review this PULL request", (one,))
    assert match == Match(
        "code-review",
        match.score,
        "name has `review`; description has `pull`, `request`",
        ("name: review", "description: pull", "description: request"),
        one,
    )


def test_no_words_match_no_skill():
    assert found("review") == []
    assert found("", skill("a")) == []
    assert found("...", skill("a")) == []
    assert found("zebra", skill("code-review", "Checks code")) == []


def test_case_and_signs_do_not_matter():
    skills = (skill("pdf_forms", "Fill-in: FORMS, (quickly)"),)
    for goal in ("PDF", "fill in", "“forms”", "quickly!", "ＰＤＦ"):
        assert found(goal, *skills) == ["pdf_forms"], goal
    assert found("ünïcode", skill("x", "About ÜNÏCODE")) == ["x"]


def test_a_name_weighs_more_than_a_description():
    assert found("deploy", skill("a", "How to deploy"), skill("deploy-it", "d")) == [
        "deploy-it",
        "a",
    ]


def test_a_whole_word_before_a_beginning_before_a_middle():
    skills = (skill("a", "start"), skill("b", "artist"), skill("c", "art"))
    assert found("art", *skills) == ["c", "b", "a"]


def test_a_rare_word_weighs_more_than_a_common_one():
    many = [skill(f"s{number}", "code things") for number in range(50)]
    assert found("code zebra", *many, skill("z", "zebra"))[0] == "z"


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("don't panic", []),
        ("What’s up?", []),
        ("the shop's invoices", ["invoices"]),
        ("don't use other", []),
        ("don't use invoices, sort the mail", ["other"]),
        ("use skill other for invoices", ["other"]),
        ("不要用 other", []),
    ],
)
def test_the_minimal_detector_reads_contractions_and_mentions(goal, expected):
    skills = (skill("invoices", "Set up an invoice template"), skill("other", "Sorts mail"))
    assert [match.name for match in MinimalSkillDetector().detect(goal, skills)] == expected


def test_a_contraction_is_not_searched_as_a_letter():
    assert found("don't", skill("a", "Sorts the mail")) == []


def test_stop_words_are_ignored():
    skills = (skill("a", "use this for the skill you want"), skill("b", "invoices"))
    assert found("I want to use a skill for invoices", *skills) == ["b"]
    assert found("use this", *skills) == ["a"]  # unless there are no others


def test_the_exact_name_is_always_first():
    crowd = [skill(f"test-{n}-test", "test test test") for n in range(30)]
    skills = (*crowd, skill("Test", "x"), skill("test", "y"), skill("te-st", "test"))
    assert found("test", *skills)[:2] == ["test", "Test"]
    assert found("Test", *skills)[:2] == ["Test", "test"]
    assert found("code review", skill("review", "code review"), skill("code-review", "x"))[0] == (
        "code-review"
    )


def test_when_to_use_and_tags_are_searched():
    one = skill("a", "d", when_to_use="On invoices", tags=("billing",))
    assert found("invoices", one) == found("billing", one) == ["a"]


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("写报告", "zh"),
        ("帮我写一份中文报告", "zh"),
        ("使用pdf工具", "mixed"),
        ("日本語の文書を翻訳する", "ja"),
        ("한국어 문서", "ko"),
        ("เขียนรายงาน", "th"),
    ],
)
def test_scripts_without_spaces_are_searched_too(goal, expected):
    skills = (
        skill("en", "Write reports"),
        skill("zh", "中文报告写作。使用时机：写报告前、格式化输出时。"),
        skill("mixed", "处理PDF表格的工具"),
        skill("ja", "文書の翻訳"),
        skill("ko", "한국어 문서를 번역합니다"),
        skill("th", "ช่วยเขียนรายงานภาษาไทย"),
    )
    assert found(goal, *skills)[0] == expected


@given(st.text(), st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=6))
def test_any_text_can_be_searched(goal, rows):
    skills = tuple(skill(" ".join(name.split()) or "x", text) for name, text in rows)
    first = LexicalDetector().detect(goal, skills)
    assert first == LexicalDetector().detect(goal, skills)
    assert len({id(match.skill) for match in first}) == len(first)
    for one in skills:
        assert LexicalDetector().detect(one.name, skills)[0].name == one.name
