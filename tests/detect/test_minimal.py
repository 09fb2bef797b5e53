"""The smallest detector: keywords of names and descriptions, and skills called by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.detect import MinimalSkillDetector
from satchel.detect.words import STOP
from satchel.library import Library, Location
from satchel.skill import Head, Origin, Skill

ORIGIN = Origin("/skills", "project", "skills")
DETECTOR = MinimalSkillDetector()


def skill(name: str, description: str = "d") -> Skill:
    return Skill(Head(name, description, name, "SKILL.md", 0, 0, 0), ORIGIN)


SKILLS = (
    skill("cataloging-apis", "Lists the endpoints of a service and writes API documentation."),
    skill("pdf-forms", "Fills in PDF forms. Use when the user has a form to fill in."),
    skill("tidy", "Sorts the files of a folder."),
)


def found(goal: str, *skills: Skill) -> list[str]:
    return [match.name for match in DETECTOR.detect(goal, skills or SKILLS)]


@pytest.mark.req("C3")
def test_a_goal_about_api_documentation_picks_cataloging_apis(tmp_path):
    """The validation example of the plan, its half about detection, from files on disk."""
    for one in SKILLS:
        folder = tmp_path / "skills" / one.name
        folder.mkdir(parents=True)
        text = f"---\nname: {one.name}\ndescription: {one.description}\n---\nDo it.\n"
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
    library = Library([Location(str(tmp_path / "skills"), "user", "skills")])
    goal = "Bring the API documentation of our payment service up to date"
    (match,) = DETECTOR.detect(goal, library.snapshot().skills)
    assert match.name == "cataloging-apis"
    assert match.reason == "name has `api`; description has `documentation`, `service`"
    assert match.detector == "minimal"


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("Write API DOCUMENTATION", ["cataloging-apis"]),
        ("fill in a Form", ["pdf-forms"]),
        ("sort my folders", ["tidy"]),
        ("use skill tidy on the api documentation", ["tidy"]),
        ("Write api documentation --skill pdf-forms", ["pdf-forms"]),
        ("Write api documentation, but don't use cataloging-apis", []),
        ("Bake a cake", []),
        ("", []),
    ],
)
def test_keywords_and_calls_decide(goal, names):
    assert found(goal) == names


def test_words_that_say_nothing_choose_nobody():
    chatty = skill("chatty", "Use this when you want to do some of the things that a user has")
    assert found("can you help me do this", chatty) == []
    for word in STOP:
        assert found(word, skill("one", f"{word} {word}")) == []


def test_a_keyword_is_a_whole_word_in_singular_or_plural():
    assert found("art", skill("start", "A party")) == []
    assert found("APIs", skill("a", "An API")) == ["a"]
    assert found("news", skill("a", "A new thing")) == []
    assert found("docs", skill("my_docs")) == ["my_docs"]


def test_more_keywords_come_first_and_a_name_counts_twice():
    skills = (skill("a", "sort files"), skill("sort", "x"), skill("b", "sort files by date"))
    assert found("sort files by date", *skills) == ["b", "a", "sort"]
    assert found("sort", *skills)[0] == "sort"


def test_a_pair_of_signs_alone_is_chance():
    skills = (skill("a", "整理表格中的数据"), skill("b", "把音乐变成表演"))
    assert found("帮我整理这份表格的数据", *skills) == ["a"]
    assert found("表格", *skills) == ["a"]


def test_the_limit_leaves_the_rest_as_runners_up():
    answer = MinimalSkillDetector(limit=1).look("sort forms", SKILLS)
    assert [match.name for match in answer.matches] == ["pdf-forms"]
    assert [match.name for match in answer.runners_up] == ["tidy"]


def test_notes_tell_what_was_left_out():
    goal = " ".join(f"word{number}" for number in range(100))
    assert DETECTOR.look(goal, SKILLS).notes == (
        "Only the first 64 keywords of the request are compared",
    )
    assert DETECTOR.look("sort files without tidy", SKILLS).notes == (
        "`tidy` is left out: the request says not to use it",
    )
    assert DETECTOR.look("use skill tidi", SKILLS).notes == (
        "There is no skill `tidi`; did you mean `tidy`?",
    )


@given(st.text(max_size=100), st.lists(st.text(min_size=1, max_size=10), max_size=5))
def test_whatever_comes_nothing_raises(goal, names):
    skills = tuple(skill(name, goal[:20]) for name in names)
    assert DETECTOR.detect(goal, skills) == MinimalSkillDetector().detect(goal, skills)
