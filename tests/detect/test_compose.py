"""Detectors put together: who decides, what is left out, and what happens when one fails."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.detect import (
    ExplicitDetector,
    FirstHit,
    HybridDetector,
    LexicalDetector,
    Match,
    MinimalSkillDetector,
    Override,
    Scoped,
    Union,
    WithExplicit,
)
from satchel.detect.base import Answer, Place, Prepared
from satchel.detect.composed import order, rank
from satchel.detect.default import default_detector
from satchel.detect.explicit import set_right
from satchel.settings import load_settings
from satchel.skill import Head, Origin, Skill

ORIGIN = Origin("/skills", "project", "skills")


def skill(name: str, description: str = "d", **extra: object) -> Skill:
    return Skill(Head(name, description, name, "SKILL.md", 0, 0, 0, extra or None), ORIGIN)


PDF = skill("pdf-forms", "Fills in PDF forms", tags=("office",))
DOCX = skill("docx", "Writes letters and forms in Word", tags=("Office", "text"))
CHART = skill("charts", "Draws charts of numbers")
SKILLS = (PDF, DOCX, CHART)


class Fixed:
    """Finds the same skills for every goal."""

    def __init__(self, name: str, *found: Skill, scores: tuple[float, ...] = ()) -> None:
        self.name = name
        self._found = found
        self._scores = scores or tuple(100.0 - at for at in range(len(found)))
        self.asked = 0

    def detect(self, goal_text, skills):
        self.asked += 1
        return [
            Match(one.name, score, f"{self.name} likes it", (f"{self.name}: yes",), one, self.name)
            for one, score in zip(self._found, self._scores, strict=True)
            if one in skills
        ]


class Broken:
    name = "broken"

    def detect(self, goal_text, skills):
        raise RuntimeError("no such luck")


def names(found) -> list[str]:
    return [match.name for match in found]


# --- WithExplicit -------------------------------------------------------------------------


@pytest.mark.req("C3")
def test_whoever_is_called_by_name_wins_and_nobody_else_is_asked():
    inner = Fixed("inner", DOCX)
    answer = WithExplicit(inner).look("use skill charts for this letter", SKILLS)
    assert names(answer.matches) == ["charts"]
    assert answer.detector == "explicit"
    assert inner.asked == 0


@pytest.mark.req("C3")
def test_whoever_is_ruled_out_is_left_out_of_the_others_answer():
    answer = WithExplicit(Fixed("inner", PDF, DOCX)).look("a form, without pdf-forms", SKILLS)
    assert names(answer.matches) == ["docx"]
    assert answer.detector == "inner"
    assert answer.notes == ("`pdf-forms` is left out: the request says not to use it",)
    answer = WithExplicit(Fixed("inner", PDF)).look("a form, without pdf-forms", SKILLS)
    assert answer.matches == []
    assert answer.fit == 0.0


def test_a_name_that_nothing_has_is_not_silent():
    note = "There is no skill `chart`; did you mean `charts`?"
    answer = WithExplicit(Fixed("inner", DOCX)).look("use skill chart", SKILLS)
    assert answer.matches == []
    assert names(answer.runners_up) == ["charts"]
    assert answer.notes == (note,)
    # What else is said is searched with, and the suggestion is not lost.
    answer = WithExplicit(Fixed("inner", DOCX)).look("use skill chart for the sums", SKILLS)
    assert names(answer.matches) == ["docx"]
    assert answer.notes == (note,)
    answer = WithExplicit(Fixed("inner")).look("use skill chart for the sums", SKILLS)
    assert answer.matches == []
    assert names(answer.runners_up) == ["charts"]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "goal", ["I'd rather not use docx", "千万别用 docx", "never use docx; sum"]
)
def test_what_is_ruled_out_is_told_whoever_was_found(goal):
    answer = WithExplicit(Fixed("inner", CHART)).look(goal, SKILLS)
    assert "`docx` is left out: the request says not to use it" in answer.notes


class Hearing(Fixed):
    """Keeps what it was asked, and says how well the first one fits."""

    def __init__(self, *found: Skill) -> None:
        super().__init__("hearing", *found)
        self.goals: list[str] = []

    def look(self, goal_text, skills):
        self.goals.append(goal_text)
        found = self.detect(goal_text, skills)
        fit = 1 / (1 + self._found.index(found[0].skill)) if found else 0.0
        return Answer(found[:1], found[1:], fit, 0.3, self.name, 0.0, ("a note",))


@pytest.mark.req("C3")
def test_a_name_that_nothing_has_does_not_do_the_searching():
    inner = Hearing(DOCX)
    for goal in ("use skill terraform-plan", "$terraform please", "--skill terraform-plan"):
        answer = WithExplicit(inner).look(goal, SKILLS)
        assert (answer.matches, answer.runners_up, answer.fit) == ([], [], 0.0)
        assert answer.notes[0].startswith("There is no skill `terraform")
    assert inner.goals == []
    answer = WithExplicit(inner).look("use skill terraform-plan; write a letter", SKILLS)
    assert inner.goals == ["; write a letter"]
    assert answer.notes == ("There is no skill `terraform-plan`", "a note")
    WithExplicit(inner).look("use the spreadsheet skill", SKILLS)
    assert inner.goals[1:] == ["spreadsheet"]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "goal",
    ["never use pdf-forms; join two pdfs", "join two pdfs without pdf-forms",
     "don't use the pdf skills. join two pdfs"],
)  # fmt: skip
def test_ruled_out_in_words_or_set_so_is_the_same(goal):
    said = WithExplicit(Hearing(PDF, DOCX, CHART)).look(goal, SKILLS)
    never = Override(Hearing(PDF, DOCX, CHART), never=("pdf-forms",)).look("join two pdfs", SKILLS)
    assert names(said.matches) == names(never.matches) == ["docx"]
    assert names(said.runners_up) == names(never.runners_up) == ["charts"]
    assert said.fit == never.fit == 0.5  # of the one that is left
    assert said.notes == ("`pdf-forms` is left out: the request says not to use it", "a note")


@pytest.mark.req("C3")
def test_ruled_out_in_words_or_set_so_is_the_same_for_words_that_are_compared():
    merge = skill("pdf-merge", "Joins several PDF files to one")
    skills = (*SKILLS, merge)
    said = WithExplicit(HybridDetector()).look("never use pdf-forms; join two pdfs", skills)
    never = Override(HybridDetector(), never=("pdf-forms",)).look("join two pdfs", skills)
    assert names(said.matches) == names(never.matches) == ["pdf-merge"]
    assert said.fit == pytest.approx(never.fit)


@pytest.mark.req("C3")
@pytest.mark.parametrize("make", [WithExplicit, lambda one: FirstHit(ExplicitDetector(), one),
                                  lambda one: Union(ExplicitDetector(), one),
                                  lambda one: Override(WithExplicit(one))])  # fmt: skip
def test_a_goal_that_asks_for_no_skill_gets_none(make):
    inner = Fixed("inner", PDF)
    for goal in ("fill in a form, do not use any skill", "不要使用任何技能，填表"):
        answer = make(inner).look(goal, SKILLS)
        assert (answer.matches, answer.runners_up) == ([], [])
        assert answer.notes == ("No skill: the request asks for none",)
    assert inner.asked == 0
    assert MinimalSkillDetector().detect("fill in a form, do not use any skill", SKILLS) == []


def test_a_set_name_that_fails_when_asked_again_leaves_what_was_there():
    class Once(Fixed):
        def detect(self, goal_text, skills):
            if len(skills) < 3:
                raise RuntimeError("again?")
            return super().detect(goal_text, skills)

    answer = Override(Once("once", PDF, DOCX), never=("pdf-forms",)).look("x", SKILLS)
    assert names(answer.matches) == ["docx"]


def test_members_that_do_not_listen_get_what_is_left():
    for make in (FirstHit, Union):
        inner = Hearing(PDF, DOCX)
        make(ExplicitDetector(), inner).look("never use pdf-forms; write it", SKILLS)
        assert set(inner.goals) == {"; write it"}


def test_a_search_has_the_called_first_and_the_ruled_out_last():
    detector = WithExplicit(Fixed("inner", PDF, DOCX, CHART))
    assert names(detector.rank("use skill charts", SKILLS)) == ["charts", "pdf-forms", "docx"]
    assert names(detector.rank("not pdf-forms", SKILLS)) == ["docx", "charts", "pdf-forms"]
    assert names(detector.rank("use skill charts", SKILLS, 1)) == ["charts"]
    scores = [match.score for match in detector.rank("use skill charts", SKILLS)]
    assert scores == sorted(scores, reverse=True)


def test_a_place_tells_who_was_called_and_who_was_ruled_out():
    detector = WithExplicit(Fixed("inner", PDF, DOCX))
    first = detector.place("use skill charts", SKILLS, CHART)
    assert (first.rank, first.fields) == (1, {"explicit": 1.0})
    second = detector.place("use skill charts", SKILLS, PDF)
    assert second.rank == 2
    assert second.ahead[0][0].name == "charts"
    out = detector.place("not pdf-forms", SKILLS, PDF)
    assert out.rank == 0
    assert out.match.reason == "`pdf-forms` is left out: the request says not to use it"


# --- FirstHit, Union ----------------------------------------------------------------------


def test_the_first_that_finds_something_decides():
    second = Fixed("second", PDF)
    answer = FirstHit(Fixed("none"), second, Fixed("third", CHART)).look("x", SKILLS)
    assert (names(answer.matches), answer.detector) == (["pdf-forms"], "second")
    third = Fixed("third", CHART)
    assert names(FirstHit(second, third).detect("x", SKILLS)) == ["pdf-forms"]
    assert third.asked == 0
    empty = FirstHit(Fixed("a"), Fixed("b")).look("x", SKILLS)
    assert (empty.matches, empty.fit, empty.detector) == ([], 0.0, "a+b")


def test_one_that_listens_rules_out_for_all():
    detector = FirstHit(ExplicitDetector(), Fixed("inner", PDF, DOCX))
    assert names(detector.detect("use skill charts", SKILLS)) == ["charts"]
    assert names(detector.detect("never use pdf-forms", SKILLS)) == ["docx"]
    union = Union(WithExplicit(Fixed("a", PDF)), Fixed("b", PDF, CHART))
    assert names(union.detect("never use pdf-forms", SKILLS)) == ["charts"]
    nested = FirstHit(Union(ExplicitDetector(), Fixed("none")), Fixed("b", PDF, CHART))
    assert names(nested.detect("never use pdf-forms", SKILLS)) == ["charts"]


def test_lists_are_merged_by_rank_and_never_by_score():
    low = Fixed("low", PDF, DOCX, scores=(0.2, 0.1))
    high = Fixed("high", CHART, DOCX, scores=(900.0, 800.0))
    answer = Union(low, high).look("x", SKILLS)
    assert names(answer.matches) == ["pdf-forms", "charts", "docx"]
    assert [match.score for match in answer.matches] == [1.0, 1 / 2, 1 / 3]
    assert answer.detector == "low+high"
    both = answer.matches[2]
    assert both.reason == "low likes it; high likes it"
    assert both.evidence == ("low: yes", "high: yes")


def test_whom_two_find_at_one_rank_comes_before_whom_one_finds():
    answer = Union(Fixed("a", PDF), Fixed("b", CHART), Fixed("c", CHART)).look("x", SKILLS)
    assert names(answer.matches) == ["charts", "pdf-forms"]


def test_a_union_puts_the_called_first_and_keeps_its_limit():
    detector = Union(Fixed("a", PDF, DOCX), ExplicitDetector(), limit=2)
    answer = detector.look("$charts", SKILLS)
    assert names(answer.matches) == ["charts", "pdf-forms"]
    assert names(answer.runners_up) == ["docx"]


def test_a_single_list_keeps_its_scores():
    answer = Union(Fixed("a", PDF, scores=(7.5,)), Fixed("none")).look("x", SKILLS)
    assert answer.matches[0].score == 7.5


# --- Override, Scoped ---------------------------------------------------------------------


@pytest.mark.req("C10")
def test_what_is_set_comes_before_what_is_found():
    inner = Fixed("inner", DOCX)
    answer = Override(inner, use=("Charts",)).look("write a letter", SKILLS)
    assert names(answer.matches) == ["charts"]
    assert answer.detector == "override"
    assert answer.matches[0].detector == "explicit"
    assert inner.asked == 0
    assert names(Override(inner, use=(PDF,)).detect("x", SKILLS)) == ["pdf-forms"]
    assert names(Override(inner, use="charts").detect("x", SKILLS)) == ["charts"]


@pytest.mark.req("C10")
def test_what_is_never_to_be_chosen_is_not_even_when_it_is_called():
    detector = Override(WithExplicit(Fixed("inner", PDF, DOCX)), never=("pdf-forms",))
    answer = detector.look("use skill pdf-forms", SKILLS)
    assert answer.matches == []
    assert answer.notes == ("`pdf-forms` is left out: it is set never to be chosen",)
    assert names(detector.detect("fill this in", SKILLS)) == ["docx"]
    assert names(detector.rank("fill this in", SKILLS)) == ["docx", "pdf-forms"]
    assert detector.place("fill this in", SKILLS, PDF).rank == 0


def test_a_set_name_that_nothing_has_is_told_and_the_detector_decides():
    answer = Override(Fixed("inner", DOCX), use=("nope",), never=("nobody",)).look("x", SKILLS)
    assert names(answer.matches) == ["docx"]
    assert answer.notes == ("`nope` is set to be chosen, and there is no such skill",)
    both = Override(Fixed("inner", DOCX), use=("charts",), never=("charts",)).look("x", SKILLS)
    assert names(both.matches) == ["docx"]
    assert both.notes == ("`charts` is left out: it is set never to be chosen",)


@pytest.mark.req("C10")
def test_an_agent_has_its_own_scope():
    inner = Fixed("inner", PDF, DOCX, CHART)
    scoped = [
        (Scoped(inner, include=("pdf-*", "ch*")), ["pdf-forms", "charts"]),
        (Scoped(inner, exclude=("docx",)), ["pdf-forms", "charts"]),
        (Scoped(inner, include="*", exclude="*x"), ["pdf-forms", "charts"]),
        (Scoped(inner, tags=("OFFICE",)), ["pdf-forms", "docx"]),
        (Scoped(inner, tags="text"), ["docx"]),
        (Scoped(inner), ["pdf-forms", "docx", "charts"]),
    ]
    for detector, expected in scoped:
        assert names(detector.detect("x", SKILLS)) == expected
        assert names(detector.rank("x", SKILLS)) == expected
    outside = Scoped(inner, include=("docx",)).place("x", SKILLS, CHART)
    assert outside.rank == 0
    assert outside.match.reason == "`charts` is not among the skills of this agent"


@pytest.mark.req("C10")
def test_two_agents_of_one_library_choose_differently():
    office = Scoped(WithExplicit(MinimalSkillDetector()), tags=("office",))
    analyst = Scoped(WithExplicit(MinimalSkillDetector()), exclude=("pdf-*", "docx"))
    assert names(office.detect("draw charts in forms", SKILLS)) == ["pdf-forms", "docx"]
    assert names(analyst.detect("draw charts in forms", SKILLS)) == ["charts"]
    answer = office.look("use skill charts", SKILLS)
    assert answer.matches == []
    assert answer.notes == ("`charts` is not among the skills of this agent",)
    assert office.heard("use skill charts", SKILLS).notes == answer.notes
    assert office.look("use skill nobody", SKILLS).notes == ("There is no skill `nobody`",)


def test_what_only_people_may_load_is_out_of_scope():
    secret = skill("secret", "x", **{"disable-model-invocation": True})
    inner = Fixed("inner", secret, PDF)
    assert names(Scoped(inner).detect("x", (*SKILLS, secret))) == ["pdf-forms"]
    assert names(Scoped(inner, for_model=False).detect("x", (*SKILLS, secret)))[0] == "secret"
    answer = Scoped(WithExplicit(inner)).look("use skill secret", (*SKILLS, secret))
    assert answer.notes == ("`secret` is there for people alone: no model may load it",)


def test_notes_are_set_right_for_a_host_that_offers_only_some():
    secret = skill("secret", "x", **{"disable-model-invocation": True})
    notes = WithExplicit(Fixed("inner")).look("use skill secret. use skill nobody", SKILLS).notes
    assert set_right(notes, SKILLS, (*SKILLS, secret)) == (
        "`secret` is there for people alone: no model may load it",
        "There is no skill `nobody`",
    )


def test_a_scope_is_the_same_tuple_for_the_same_tuple():
    detector = Scoped(Fixed("inner"), exclude=("docx",))
    assert detector.scope(SKILLS) is detector.scope(SKILLS)
    assert Scoped(Fixed("inner")).scope(SKILLS) is SKILLS
    growing = [PDF]
    assert len(detector.scope(growing)) == 1
    growing.append(CHART)
    assert len(detector.scope(growing)) == 2


# --- what is passed on, and what fails ----------------------------------------------------


class Keeper(Fixed):
    """A detector that keeps an index and can place."""

    closed = False

    def look(self, goal_text, skills):
        return Answer(self.detect(goal_text, skills), [], 0.75, 0.4, "keeper", 1.0, ("a note",))

    def rank(self, goal_text, skills, limit=50):
        return self.detect(goal_text, skills)[:limit]

    def place(self, goal_text, skills, skill):
        return Place(7, len(skills), None, {"name": 1.0}, [], ("word",))

    def prepare(self, skills, progress=None, rebuild=False):
        return Prepared("memory", len(skills), 0, 0.0, "")

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    "compose",
    [WithExplicit, Scoped, Override, FirstHit, Union, lambda one: Union(Fixed("none"), one)],
)
def test_every_composition_passes_on_what_it_does_not_decide(compose):
    keeper = Keeper("keeper", PDF)
    detector = compose(keeper)
    answer = detector.look("x", SKILLS)
    assert (names(answer.matches), answer.fit, answer.threshold) == (["pdf-forms"], 0.75, 0.4)
    assert (answer.detector, answer.notes) == ("keeper", ("a note",))
    assert names(detector.rank("x", SKILLS, 5)) == ["pdf-forms"]
    assert detector.place("x", SKILLS, PDF).rank in {1, 7}
    assert detector.prepare(SKILLS).skills == 3
    detector.close()
    assert keeper.closed


def test_a_detector_without_an_index_prepares_nothing():
    assert WithExplicit(LexicalDetector()).prepare(SKILLS) is None


@pytest.mark.parametrize(
    ("detector", "expected"),
    [
        (FirstHit(Broken(), Fixed("good", PDF)), ["pdf-forms"]),
        (Union(Fixed("good", PDF), Broken()), ["pdf-forms"]),
        (FirstHit(Broken(), Fixed("none")), []),
    ],
)
def test_one_that_fails_leaves_the_others_answer_and_a_note(detector, expected):
    answer = detector.look("x", SKILLS)
    assert names(answer.matches) == expected
    assert answer.notes == (
        "The detector `broken` failed, and the others decide: RuntimeError: no such luck",
    )
    assert names(detector.detect("x", SKILLS)) == expected
    assert names(detector.rank("x", SKILLS)) == expected


@pytest.mark.parametrize("compose", [WithExplicit, Scoped, Override, FirstHit, Union])
def test_where_nothing_stands_a_look_is_empty_and_the_rest_raises(compose):
    detector = compose(Broken())
    answer = detector.look("x", SKILLS)
    assert answer.matches == []
    assert "The detector `broken` failed" in answer.notes[0]
    for ask in (detector.detect, detector.rank):
        with pytest.raises(RuntimeError, match="no such luck"):
            ask("x", SKILLS)
    with pytest.raises(RuntimeError, match="no such luck"):
        detector.place("x", SKILLS, PDF)


def test_who_is_called_by_name_is_chosen_although_the_rest_fails():
    detector = WithExplicit(Broken())
    assert names(detector.detect("use skill charts", SKILLS)) == ["charts"]
    assert names(detector.rank("use skill charts", SKILLS)) == ["charts"]


class Nonsense:
    name = "nonsense"

    def detect(self, goal_text, skills) -> Any:
        return None


class Deaf(Fixed):
    def heard(self, goal_text, skills):
        raise OSError("no ears")


def test_answers_that_are_none_and_ears_that_fail_are_told_too():
    answer = FirstHit(Nonsense(), Fixed("good", PDF)).look("x", SKILLS)
    assert names(answer.matches) == ["pdf-forms"]
    assert "`nonsense` failed" in answer.notes[0]
    answer = Union(Deaf("deaf", PDF)).look("x", SKILLS)
    assert names(answer.matches) == ["pdf-forms"]
    assert "OSError: no ears" in answer.notes[0]


def test_a_composition_of_nobody_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        FirstHit()


# --- the default --------------------------------------------------------------------------


@pytest.mark.req("C3")
@pytest.mark.req("C10")
def test_the_default_listens_first_and_ranks_else(tmp_path):
    settings = load_settings(project=str(tmp_path))
    detector = default_detector(settings)
    assert isinstance(detector, WithExplicit)
    assert isinstance(detector.members[0], HybridDetector)
    assert names(detector.detect("use skill charts on this letter", SKILLS)) == ["charts"]
    assert "docx" not in names(detector.detect("write letters, without docx", SKILLS))


@given(
    st.sampled_from(["", "use skill docx. ", "--skill charts ", "$pdf-forms ", "write forms "]),
    st.sampled_from(["don't use pdf-forms", "without docx", "不要用 charts", "instead of docx"]),
)
def test_no_composition_chooses_what_is_ruled_out(before, negation):
    goal = before + negation
    out = {one.skill.name for one in ExplicitDetector().heard(goal, SKILLS).unwanted}
    assert out
    everyone = Fixed("all", *SKILLS)
    for detector in (
        WithExplicit(everyone),
        FirstHit(ExplicitDetector(), everyone),
        Union(everyone, ExplicitDetector()),
        Scoped(WithExplicit(everyone)),
        Override(WithExplicit(everyone)),
        MinimalSkillDetector(),
    ):
        assert out.isdisjoint(names(detector.detect(goal, SKILLS)))


@pytest.mark.parametrize(
    "detector",
    [
        HybridDetector(),
        WithExplicit(HybridDetector()),
        Override(HybridDetector(), never=["docx"]),
        Scoped(WithExplicit(HybridDetector()), tags=["office"]),
        Union(HybridDetector(), LexicalDetector()),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("goal", ["forms", "use docx for my letters", "for"])
def test_an_order_is_the_ranking_without_what_it_took_to_explain_it(detector, goal):
    ranked, ordered = rank(detector, goal, SKILLS, 5), order(detector, goal, SKILLS, 5)
    assert [bare(one) for one in ordered] == [bare(one) for one in ranked]
    assert ordered


def bare(match: Match) -> Match:
    return match._replace(reason="", evidence=())


def test_who_ranks_and_knows_no_order_is_asked_for_its_ranking():
    class Ranks(Fixed):
        def rank(self, goal_text, skills, limit):
            return self.detect(goal_text, skills)[:limit]

    found = order(WithExplicit(Ranks("mine", CHART, PDF)), "numbers", SKILLS, 5)
    assert [one.name for one in found] == ["charts", "pdf-forms"]
    assert found[0].reason == "mine likes it"


def test_a_rank_of_its_own_counts_more_than_an_order_of_ours():
    class House(HybridDetector):
        def rank(self, goal_text, skills, limit=50):
            return super().rank(goal_text, skills, limit)[::-1]

    class Proxy:
        """Passes on what it does not know."""

        def __init__(self) -> None:
            self.whom = HybridDetector()

        def __getattr__(self, name):
            return getattr(self.whom, name)

        def detect(self, goal_text, skills):
            return []

        def rank(self, goal_text, skills, limit=50):
            return []

    class Number(Fixed):
        order = 3

        def rank(self, goal_text, skills, limit=50):
            return self.detect(goal_text, skills)[:limit]

    for detector in (House(), Proxy(), Number("mine", CHART)):
        assert order(detector, "forms", SKILLS, 5) == rank(detector, "forms", SKILLS, 5)
    assert order(House(), "forms", SKILLS, 5) != order(HybridDetector(), "forms", SKILLS, 5)
