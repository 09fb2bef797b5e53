"""Fusion: legs are stretched, weighed and added up; and near copies stand back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.detect.fusion import (
    MEANING,
    THRESHOLD,
    WORDS,
    Leg,
    Signs,
    collapse,
    fit_of,
    fuse,
)
from satchel.skill import Head, Origin, Skill


def skill(name: str, description: str) -> Skill:
    return Skill(Head(name, description, name, "SKILL.md", 0, 0, 0), Origin("/s", "project", "s"))


def test_each_leg_gives_its_share():
    legs = {"head": Leg({"a": 10.0, "b": 5.0}), "body": Leg({"b": 2.0, "c": 1.0})}
    found = fuse(legs, {"head": 0.6, "body": 0.4})
    assert [(one.key, round(one.score, 2)) for one in found] == [("b", 0.7), ("a", 0.6), ("c", 0.2)]
    assert found[0].parts == {"head": 0.3, "body": 0.4}


def test_a_missing_leg_shares_out_its_weight():
    (one,) = fuse({"head": Leg({"a": 3.0})}, WORDS)
    assert one.score == pytest.approx(1.0)
    assert fuse({"head": Leg({}), "body": Leg({})}, WORDS) == []


def test_a_leg_that_tells_nothing_apart_gives_nothing():
    found = fuse({"head": Leg({"a": 1.0}), "about": Leg({"a": 0.2, "b": 0.2}, 0.2)}, MEANING)
    assert [one.key for one in found] == ["a"]


@given(
    st.dictionaries(st.text("abc", max_size=3), st.sampled_from([1.0, 2.0, 2.5, 3.0]), max_size=30),
    st.dictionaries(st.text("abc", max_size=3), st.sampled_from([1.0, 2.0]), max_size=30),
    st.integers(0, 12),
)
def test_the_best_few_are_the_first_of_all(head, body, most):
    legs = {"head": Leg(head), "body": Leg(body)}
    assert fuse(legs, WORDS, most=most) == fuse(legs, WORDS)[:most]


def test_who_is_left_out_does_not_stretch_the_others():
    legs = {"head": Leg({"a": 100.0, "b": 1.0})}
    assert [(one.key, one.score) for one in fuse(legs, {"head": 1.0}, ["a"])] == [("b", 1.0)]


@given(
    st.dictionaries(
        st.sampled_from(sorted(MEANING)),
        st.dictionaries(st.sampled_from("abcde"), st.floats(0, 1e6), max_size=5),
    )
)
def test_a_score_is_a_share(legs):
    found = fuse({name: Leg(scores) for name, scores in legs.items()}, MEANING)
    assert all(-1e-9 <= one.score <= 1 + 1e-9 for one in found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_fit_is_a_share_and_grows_with_the_signs():
    weak, strong = Signs(), Signs(0.9, 3.0, 0.9, 0.8, 0.8, 0.6)
    for meaning in (False, True):
        assert 0 <= fit_of(weak, meaning=meaning) < THRESHOLD
        assert THRESHOLD < fit_of(strong, meaning=meaning) <= 1
    fit_of(Signs(1e9, 1e9, 1e9, 1e9, 1e9, 1e9), meaning=True)


def test_near_copies_stand_back():
    long = (
        "Reviews pull requests for bugs, missing tests, unclear names, slow queries and leaked "
        "secrets before somebody merges them; use when a branch is ready and wants a second pair"
    )
    skills = [
        skill("code-review", long),
        skill("deploy", "Ships the application to the test cluster and watches its health there"),
        skill("reviewer", long + " of eyes"),
        skill("code-review", long.upper()),
    ]
    assert collapse(skills) == ([0, 1], [(2, 0), (3, 0)])


def is_twin(one, other, goal=()):
    return collapse([one, other], goal)[1] == [(1, 0)]


def test_what_the_goal_tells_apart_is_no_copy():
    text = (
        "Sends a message to {} with a title, a text, a link and an attachment when somebody asks "
        "for it, and waits until the other side has read, answered or refused every part of it"
    )
    one, other = skill("send-a", text.format("Discord")), skill("send-b", text.format("Telegram"))
    assert is_twin(one, other)
    assert is_twin(one, other, {"messag"})
    assert not is_twin(one, other, {"messag", "telegram"})


def test_short_descriptions_are_copies_only_under_one_name():
    assert not is_twin(skill("a", "Helps with it."), skill("b", "Helps with it."))
    assert is_twin(skill("a", "Helps with it."), skill("a", "Helps with it."))
