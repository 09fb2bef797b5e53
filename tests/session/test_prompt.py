"""Change notices: sent once, and again when they were lost."""

from __future__ import annotations

import shutil


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


def test_who_can_neither_load_nor_read_a_skill_is_told_of_none(talks):
    child = talks.begin().child(tools=["SkillSearch"])
    assert child.prompt == ""
    talks.add("brand-new", "Brand new.")
    assert child.news() == ""
    assert child.tail("please use the brand-new skill") == ""
    assert child.shortlist("review my code").reason == "`Skill` cannot be called here"
