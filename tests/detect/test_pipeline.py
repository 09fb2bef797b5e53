"""The pipeline: who decides for a request, what is left out, and a user's own detector."""

from __future__ import annotations

import os
from typing import Any

import pytest

from in_memory import skill
from satchel import Satchel
from satchel.detect import BaseDetector, Detection, Match, RankExplanation, SelectionPipeline
from satchel.detect.pipeline import index_folder
from satchel.errors import InvalidInput, NotFound
from satchel.settings import load_settings
from satchel.testing import make_skill

PDF = skill("pdf-forms", "Fills in PDF forms")
DOCX = skill("docx", "Writes letters and forms in Word")
CHART = skill("charts", "Draws charts of numbers")
SKILLS = (PDF, DOCX, CHART)


class Fixed:
    """A user's detector: the same skills for every request."""

    name = "fixed"

    def __init__(self, *found) -> None:
        self._found = found
        self.goals: list[str] = []

    def detect(self, goal_text, skills):
        self.goals.append(goal_text)
        return [
            Match(one.name, 100.0 - at, "fixed likes it", (), one, self.name)
            for at, one in enumerate(self._found)
            if one in skills
        ]


class Returns:
    """Returns whatever the test wants."""

    def __init__(self, value) -> None:
        self.value = value

    def detect(self, goal_text, skills):
        return self.value


def names(found) -> list[str]:
    return [match.name for match in found]


# --- mentions -----------------------------------------------------------------------------


@pytest.mark.req("C3")
def test_a_named_skill_is_chosen_and_the_detector_is_not_asked():
    inner = Fixed(DOCX)
    answer = SelectionPipeline(inner).look("use skill charts for this letter", SKILLS)
    assert names(answer.matches) == ["charts"]
    assert answer.matches[0].reason == "called by name: `use skill charts`"
    assert (answer.detector, answer.fit) == ("explicit", 1.0)
    assert inner.goals == []


@pytest.mark.req("C3")
def test_an_excluded_skill_is_never_selected():
    inner = Fixed(PDF, DOCX)
    answer = SelectionPipeline(inner).look("a form, without pdf-forms", SKILLS)
    assert names(answer.matches) == ["docx"]
    assert answer.notes == ("`pdf-forms` is left out: the request says not to use it",)
    assert inner.goals == ["a form,"], "it is asked once, without the mention"
    both = SelectionPipeline(Fixed()).look("use skill docx. Do not use docx", SKILLS)
    assert both.matches == []
    assert both.notes[0] == "`docx` is left out: the request says not to use it"


@pytest.mark.req("C3")
def test_an_unknown_name_is_noted_and_not_searched():
    inner = Fixed(DOCX)
    pipeline = SelectionPipeline(inner)
    answer = pipeline.look("use skill chart", SKILLS)
    assert (answer.matches, answer.runners_up, answer.fit) == ([], [], 0.0)
    assert answer.notes == ("There is no skill `chart`; did you mean `charts`?",)
    assert inner.goals == []
    answer = pipeline.look("use skill terraform-plan; write a letter", SKILLS)
    assert inner.goals == ["; write a letter"]
    assert names(answer.matches) == ["docx"]
    assert answer.notes == ("There is no skill `terraform-plan`",)


def test_a_search_has_the_named_first_and_the_ruled_out_last():
    pipeline = SelectionPipeline(Fixed(PDF, DOCX, CHART))
    found = pipeline.rank("use skill charts", SKILLS)
    assert names(found) == ["charts", "pdf-forms", "docx"]
    assert [match.score for match in found] == sorted((m.score for m in found), reverse=True)
    assert names(pipeline.rank("without pdf-forms", SKILLS)) == ["docx", "charts", "pdf-forms"]
    assert names(pipeline.rank("use skill charts", SKILLS, 1)) == ["charts"]


def test_a_place_says_what_was_named_and_ruled_out():
    pipeline = SelectionPipeline(Fixed(PDF, DOCX))
    first = pipeline.place("use skill charts", SKILLS, CHART)
    assert (first.rank, first.fields) == (1, {"explicit": 1.0})
    second = pipeline.place("use skill charts", SKILLS, PDF)
    assert (second.rank, second.ahead[0][0].name) == (2, "charts")
    out = pipeline.place("a form without pdf-forms", SKILLS, PDF)
    assert (out.rank, out.match.reason) == (
        0, "`pdf-forms` is left out: the request says not to use it",
    )  # fmt: skip


# --- use and never ------------------------------------------------------------------------


@pytest.mark.req("C10")
def test_the_option_use_has_precedence():
    inner = Fixed(DOCX)
    pipeline = SelectionPipeline(inner).overriding(use=("Charts",))
    answer = pipeline.look("use skill pdf-forms", SKILLS)
    assert (names(answer.matches), answer.detector) == (["charts"], "override")
    assert inner.goals == []
    assert names(SelectionPipeline(inner, use=(PDF,)).detect("x", SKILLS)) == ["pdf-forms"]
    missing = SelectionPipeline(inner, use="nope").look("x", SKILLS)
    assert names(missing.matches) == ["docx"]
    assert missing.notes == ("There is no skill `nope`",)


@pytest.mark.req("C10")
def test_the_option_never_excludes_a_mentioned_skill():
    pipeline = SelectionPipeline(Fixed(PDF, DOCX), never=("pdf-forms",))
    answer = pipeline.look("use skill pdf-forms", SKILLS)
    assert answer.matches == []
    assert answer.notes == ("`pdf-forms` is left out: it is set never to be chosen",)
    assert names(pipeline.detect("fill this in", SKILLS)) == ["docx"]
    assert names(pipeline.rank("fill this in", SKILLS)) == ["docx", "pdf-forms"]
    assert pipeline.place("fill this in", SKILLS, PDF).rank == 0
    with pytest.raises(InvalidInput, match="charts"):
        pipeline.overriding(use=["charts"], never=["charts"])


# --- a user's own detector, at the front door ---------------------------------------------


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("code-review", "pdf-forms", "pdf-merge", "sql-tuning", "write-tests"):
        words = name.replace("-", " ")
        make_skill(tmp_path / "project/.agents/skills", name, f"Does {words}. Use it for {words}.")

    def make(**more):
        return Satchel.for_project(
            tmp_path / "project", builtin=False, packaged=False, trust="all", **more
        )

    return make


class First:
    """Chooses whatever comes first."""

    name = "first"

    def detect(self, goal_text, skills):
        return [Match(skill.name, 1.0, "comes first", (), skill, self.name) for skill in skills[:1]]


@pytest.mark.req("C3", "C10")
def test_a_named_skill_wins_over_a_users_detector(make):
    mine = make(detector=First())
    assert mine.detector.name == "first"
    assert mine.which("tune this").names == ["code-review"]
    assert mine.which("use the skill sql-tuning").names == ["sql-tuning"]
    assert "code-review" not in mine.which("do not use the skill code-review, tune").names
    assert mine.search("sql-tuning")[0].name == "sql-tuning"
    assert mine.which("tune this", use="pdf-forms").names == ["pdf-forms"]
    assert mine.which("use the skill sql-tuning", never=["sql-tuning"]).names == []
    alone = make(detector=First(), explicit=False)
    assert alone.which("use the skill sql-tuning").names == ["code-review"]
    pipeline = SelectionPipeline(First())
    assert make(detector=pipeline).detector is pipeline


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


@pytest.mark.parametrize("value", [None, 7, "pdf-forms", ["pdf-from"], [("pdf-forms", 1.0)]])
def test_a_detector_that_returns_no_matches_is_named(make, value):
    mine = make(detector=Returns(value))
    for ask in (mine.which, mine.search):
        with pytest.raises(InvalidInput, match="The detector `Returns` returned"):
            ask("x")
    assert mine.shortlist("x").text == ""
    assert mine.trace.events[-1].kind == "failed"


def test_a_detector_may_return_names(make):
    answer = make(detector=Returns(["sql-tuning", "pdf-forms"])).which("x")
    assert answer.names == ["sql-tuning", "pdf-forms"]
    assert [match.skill.name for match in answer.matches] == answer.names
    assert answer.matches[0].score > answer.matches[1].score


def test_a_template_without_a_place_offers_nothing(make):
    mine = make()
    assert mine.fill("no placeholder") == "no placeholder"
    assert not [event for event in mine.trace.events if event.kind == "offered"]


@pytest.mark.parametrize("detector", [First, object(), 7])
def test_an_object_that_is_no_detector_is_refused(make, detector):
    with pytest.raises(InvalidInput, match="is no detector"):
        make(detector=detector).which("x")
    assert "is no detector" in make(detector=detector).shortlist("x").reason


def test_a_base_detector_may_answer_for_itself(make):
    class Knows(BaseDetector):
        def look(self, goal_text, skills, limit=None):
            return Detection([], [], 0.1, 0.4, "knows", 0.0, ("a note",))

        def place(self, goal_text, skills, skill):
            return RankExplanation(1, len(skills), None, {"name": 1.0}, [], (goal_text,))

    class Wrong(BaseDetector):
        def look(self, goal_text, skills, limit=None) -> Any:
            return ["code-review"]

    mine = make(detector=Knows())
    assert mine.which("x").notes == ("a note",)
    assert mine.place("pdf-forms", "x") == RankExplanation(1, 5, None, {"name": 1.0}, [], ("x",))
    assert mine.prepare() is None
    with pytest.raises(InvalidInput, match="from `look`, not a `Detection`"):
        make(detector=Wrong()).which("x")


def test_a_list_is_enough_for_a_place(make):
    class ByName(First):
        def detect(self, goal_text, skills):
            found = sorted(skills, key=lambda skill: skill.name)[:4]
            return [Match(skill.name, 1.0, "", (), skill) for skill in found]

    mine = make(detector=ByName())
    place = mine.place("sql-tuning", "anything")
    assert (place.rank, place.of, place.fields, place.missing) == (4, 5, {}, ())
    assert [match.name for match, _ in place.ahead] == ["code-review", "pdf-forms", "pdf-merge"]
    assert mine.place("write-tests", "anything").match is None
    hidden = make(detector=ByName(), exclude=["pdf-forms"]).place("pdf-forms", "anything")
    assert (hidden.rank, hidden.of) == (2, 5), "as if it were offered"
    with pytest.raises(NotFound):
        mine.place("zebra", "anything")


# --- the folder of the index --------------------------------------------------------------


def settings(tmp_path, **given):
    env = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return load_settings(str(tmp_path / "project"), env, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"include": ["pdf-*"]},
        {"exclude": ["pdf-*"]},
        {"tags": ["office"]},
        {"locations": ["more"]},
        {"builtin": True},
        {"ecosystem": False},
        {"trust": "ask"},
    ],
    ids=str,
)
def test_each_set_of_visible_skills_has_its_own_index(tmp_path, given):
    usual = index_folder(settings(tmp_path))
    other = index_folder(settings(tmp_path, **given))
    assert usual is not None
    assert other not in (usual, None)
    assert other == index_folder(settings(tmp_path, **given))
    assert os.path.dirname(other) == os.path.dirname(usual)


def test_settings_that_change_no_skills_keep_the_index(tmp_path):
    usual = index_folder(settings(tmp_path))
    assert index_folder(settings(tmp_path, shortlist=7, budget=5_000, trace="off")) == usual
    elsewhere = settings(tmp_path)._replace(project=str(tmp_path / "b\udce4d"))
    assert index_folder(elsewhere) not in (usual, None)


def test_without_a_cache_folder_nothing_is_kept(tmp_path):
    assert index_folder(load_settings(str(tmp_path), {"HOME": "~"})) is None
