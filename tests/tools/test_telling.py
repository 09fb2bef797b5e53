"""News: told once, and again when nobody read them."""

from __future__ import annotations

import shutil


def test_news_of_a_turn_that_failed_come_again(talks):
    session = talks.begin()
    session.told()
    talks.add("brand-new", "Brand new.")
    mark = session.checkpoint()
    news = session.news()
    assert "Brand new." in news
    assert session.news() == ""
    session.restore(mark)
    assert session.news() == news
    assert session.news() == ""


def test_news_of_a_first_turn_that_failed_come_again(talks):
    session = talks.begin()
    mark = session.checkpoint()
    session.told()
    talks.add("brand-new", "Brand new.")
    assert "Brand new." in session.news()
    session.restore(mark)
    assert "Brand new." in session.news()


def test_a_failed_turn_in_which_the_prompt_was_built_again(talks):
    session = talks.begin()
    session.told()
    mark = session.checkpoint()
    talks.add("brand-new", "Brand new.")
    assert session.rebuild()
    talks.add("newer", "Newer.")
    assert "Newer." in session.news()
    session.restore(mark)
    news = session.news()
    assert "Newer." in news
    assert "Brand new." not in news  # the prompt has it


def test_news_that_were_trimmed_away_are_the_difference_from_the_prompt(talks):
    session = talks.begin()
    session.told()
    talks.add("brand-new", "Brand new.")
    assert "Brand new." in session.news()
    shutil.rmtree(talks.place / "code-review")
    assert "Brand new." not in session.news()
    session.forget_news()
    news = session.news()
    assert "Brand new." in news
    assert "do not call them: code-review" in news
    assert session.news() == ""
    session.forget()  # everything went
    assert session.news() == news


def test_forgetting_news_before_anything_was_told_tells_nothing(talks):
    session = talks.begin()
    session.forget_news()
    assert session.news() == ""
    session.told()
    session.forget_news()
    assert session.news() == ""


def test_who_cannot_load_a_skill_is_told_of_none(talks):
    child = talks.begin().child(tools=["ReadFile"])
    assert child.prompt == ""
    talks.add("brand-new", "Brand new.")
    assert child.news() == ""
    assert child.tail("please use the brand-new skill") == ""
    assert child.shortlist("review my code").reason == "`Skill` cannot be called here"


def test_names_are_those_that_are_declared(talks):
    for name in ("code-review", "write-docs"):
        shutil.rmtree(talks.place / name)
    session = talks.begin()
    assert session.names == ("ReadFile",)
    assert [one["name"] for one in session.definitions()] == ["ReadFile"]
    talks.add("first", "The first one.")
    assert list(session.names) == [one["name"] for one in session.definitions()]
    assert "Skill" in session.names
