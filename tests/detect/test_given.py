"""A detector of one's own: what it is told, what it may return, and who is heard before it."""

from __future__ import annotations

import pytest

import satchel.detect
from satchel import Satchel
from satchel.detect import Answer, LexicalDetector, Match, WithExplicit
from satchel.errors import InvalidInput
from satchel.testing import make_skill

NAMES = ("code-review", "pdf-forms", "pdf-merge", "sql-tuning", "write-tests")


class First:
    """Chooses whoever comes first."""

    name = "first"

    def detect(self, goal_text, skills):
        return [Match(skill.name, 1.0, "comes first", (), skill, self.name) for skill in skills[:1]]


class Returns:
    """Returns whatever the test wants."""

    def __init__(self, value) -> None:
        self.value = value

    def detect(self, goal_text, skills):
        return self.value


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in NAMES:
        words = name.replace("-", " ")
        make_skill(tmp_path / "project/.agents/skills", name, f"Does {words}. Use it for {words}.")

    def make(**more):
        return Satchel.for_project(
            tmp_path / "project", builtin=False, packaged=False, trust="all", **more
        )

    return make


# --- an answer ----------------------------------------------------------------------------


def test_an_answer_is_true_when_a_skill_fits(make):
    answer = make(detector=First()).which("anything")
    assert answer
    assert answer.fits is True
    assert answer.names == ["code-review"]
    assert answer.skills is answer.matches
    assert answer.near_copies is answer.collapsed
    none = make().which("xylophone")
    assert not none
    assert (none.fits, none.names) == (False, [])


def test_an_answer_is_still_a_tuple_and_short_to_look_at(make):
    answer = make().which("merge some pdf files")
    assert answer[0] is answer.matches
    assert answer._replace(fit=1.0).fit == 1.0
    assert repr(answer).startswith("Answer(['pdf-merge'")
    assert "description" not in repr(answer)
    assert len(repr(Answer([], [], 0.0, 0.5, "hybrid", 1.0))) < 80


def test_what_is_loaded_late_is_listed_all_the_same():
    assert set(satchel.detect.__all__) <= set(dir(satchel.detect))


# --- who is heard -------------------------------------------------------------------------


@pytest.mark.req("C3")
def test_who_is_called_by_name_wins_over_a_detector_of_ones_own(make):
    mine = make(detector=First())
    assert mine.which("tune this").names == ["code-review"]
    assert mine.which("use the skill sql-tuning").names == ["sql-tuning"]
    assert mine.which("do not use the skill code-review").names == []
    assert mine.search("sql-tuning")[0].name == "sql-tuning"
    alone = make(detector=First(), explicit=False)
    assert alone.which("use the skill sql-tuning").names == ["code-review"]


def test_ours_and_whoever_hears_already_are_left_as_they_are(make):
    for detector in (LexicalDetector(), WithExplicit(First())):
        assert make(detector=detector).detector is detector
    assert make(detector=First()).detector.name == "first"


@pytest.mark.req("C3")
def test_somebody_may_decide_for_one_request(make):
    mine = make()
    assert mine.which("merge some pdf files", use=["sql-tuning"]).names == ["sql-tuning"]
    assert mine.which("merge some pdf files", use="sql-tuning").names == ["sql-tuning"]
    barred = mine.which("use the skill pdf-merge", never=["pdf-merge"])
    assert "pdf-merge" not in barred.names
    skill = mine.get_skill("sql-tuning")
    assert mine.which("merge some pdf files", use=[skill]).names == ["sql-tuning"]
    with pytest.raises(InvalidInput, match="sql-tuning"):
        mine.which("x", use=["sql-tuning"], never=["sql-tuning"])
    assert make(detector=First()).which("x", never=["pdf-forms"]).names == ["code-review"]


def test_the_limit_of_one_request(make):
    mine = make(shortlist=1)
    goal = "do pdf forms, do pdf merge, do sql tuning, do write tests"
    assert len(mine.which(goal).matches) == 1
    many = mine.which(goal, limit=3)
    assert len(many.matches) == 3
    few = make().which(goal, limit=1)
    assert len(few.matches) == 1
    assert few.runners_up[0].name in many.names
    with pytest.raises(InvalidInput, match="limit"):
        mine.which(goal, limit=0)


# --- what it may return -------------------------------------------------------------------


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("value", [None, 7, "pdf-forms", ["pdf-forms"], [("pdf-forms", 1.0)]])
def test_a_detector_that_returns_no_matches_is_named(make, value, explicit):
    mine = make(detector=Returns(value), explicit=explicit)
    for more in ({}, {"never": ["sql-tuning"]}):
        with pytest.raises(InvalidInput, match="The detector `Returns` returned"):
            mine.which("x", **more)
    with pytest.raises(InvalidInput, match="The detector `Returns` returned"):
        mine.search("x")
    assert mine.shortlist("x").text == ""
    assert mine.trace.events[-1].kind == "failed"


def test_an_answer_of_another_kind_is_named_too(make):
    class Looks(First):
        def look(self, goal_text, skills):
            return ["code-review"]

    with pytest.raises(InvalidInput, match="from `look`, not an `Answer`"):
        make(detector=Looks()).which("x")


@pytest.mark.parametrize("detector", [First, object(), 7])
def test_what_is_no_detector_is_told_so(make, detector):
    with pytest.raises(InvalidInput, match="is no detector"):
        make(detector=detector).which("x")
    assert "is no detector" in make(detector=detector).shortlist("x").reason
