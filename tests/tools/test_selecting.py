"""A choice is recorded: who, by which detector, how sure, and who came next."""

from __future__ import annotations

import json

import pytest

from satchel import Satchel
from satchel.detect import Answer, BaseDetector, Match
from satchel.errors import InvalidInput
from satchel.library import Library
from satchel.testing import make_skill
from satchel.tools.selecting import search, select
from satchel.trace import Trace


class Given(BaseDetector):
    """A detector that answers what it was told to."""

    name = "given"

    def __init__(self, chosen=(), next_ones=(), **more):
        self.chosen, self.next_ones, self.more = chosen, next_ones, more

    def detect(self, goal_text, skills):
        return self.look(goal_text, skills).matches

    def look(self, goal_text, skills, limit=None):
        known = {skill.name: skill for skill in skills}

        def matches(rows):
            return [
                Match(name, score, f"because of {name}", (), known[name], by)
                for name, score, by in rows
            ]

        values = {"fit": 0.9, "threshold": 0.4, "detector": self.name, "took_ms": 1.25}
        chosen, next_ones = matches(self.chosen), matches(self.next_ones)
        return Answer(chosen, next_ones, **{**values, **self.more})


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    for name in ("alpha", "beta", "gamma"):
        make_skill(tmp_path / "skills", name, f"Does {name} work.")
    make_skill(tmp_path / "skills", "secret", "Does alpha.", disable_model_invocation=True)
    return tmp_path


def satchel_with(project, detector) -> Satchel:
    made = Satchel.for_project(project, builtin=False, trust="all")
    return Satchel(made.library, made.settings, detector=detector, explicit=False)


@pytest.mark.req("C7")
def test_the_trace_says_which_were_selected_by_which_detector_and_why(project):
    detector = Given(
        [("beta", 0.8, "given"), ("alpha", 0.5, "")],
        [("gamma", 0.25, "given")],
        notes=("vectors are off",),
        cost={"input_tokens": 12},
        collapsed=(("copy", "beta"),),
    )
    satchel = satchel_with(project, detector)
    goal = "do the beta work " * 30
    assert [match.name for match in satchel.which(goal).matches] == ["beta", "alpha"]
    event = satchel.trace.events[-1]
    assert event.kind == "selected"
    assert list(event.skills) == ["beta", "alpha"]
    assert event.values == {
        "detector": "given",
        "by": ["given", "given"],
        "scores": [0.8, 0.5],
        "reasons": ["because of beta", "because of alpha"],
        "fit": 0.9,
        "threshold": 0.4,
        "runners_up": [["gamma", 0.25]],
        "goal": goal[:200],
        "notes": ["vectors are off"],
        "took_ms": 1.25,
        "collapsed": [["copy", "beta"]],
        "cost": {"input_tokens": 12.0},
    }


@pytest.mark.req("C7")
def test_the_next_process_knows_what_was_selected(project):
    satchel_with(project, Given([("beta", 0.8, "given")])).which("beta please")
    later = Satchel.for_project(project, builtin=False, trust="all")
    (row,) = [row for row in later.trace.history() if row["kind"] == "selected"]
    assert row["skills"] == ["beta"]
    assert row["detector"] == "given"
    assert row["goal"] == "beta please"


@pytest.mark.req("C7")
def test_that_nothing_fits_is_recorded_too(project):
    satchel = satchel_with(project, Given([], [("alpha", 0.1, "")], fit=0.2))
    assert satchel.which("cook a soup").matches == []
    event = satchel.trace.events[-1]
    assert (event.kind, list(event.skills), event.values["fit"]) == ("selected", [], 0.2)


def test_only_looking_leaves_no_trace(project):
    satchel = satchel_with(project, Given([("beta", 0.8, "given")]))
    satchel.list_skills()
    before = list(satchel.trace.events)
    assert satchel.which("beta", record=False).matches
    assert satchel.shortlist("beta", record=False).text
    assert list(satchel.trace.events) == before


def test_numbers_of_any_kind_can_be_written(project):
    class Odd(float):
        """Not what json knows: a stand-in for the numbers of numerical libraries."""

        def __repr__(self):
            return "Odd"

    detector = Given([("beta", Odd(0.5), "given")], fit=Odd(0.75), took_ms=Odd(2))
    satchel = satchel_with(project, detector)
    satchel.which("beta")
    lines = (project / "home/state/trace.jsonl").read_text().splitlines()
    row = json.loads(lines[-1])
    assert (row["scores"], row["fit"], row["took_ms"]) == ([0.5], 0.75, 2.0)


def test_skills_kept_from_models_are_not_chosen_from(project):
    class First:
        def detect(self, goal_text, skills):
            return [Match(one.name, 1.0, "there", (), one) for one in skills]

    answer = satchel_with(project, First()).which("anything")
    assert [match.name for match in answer.matches] == ["alpha", "beta", "gamma"]
    assert answer.detector == "First"


def test_whoever_is_called_comes_first_whatever_the_detector_thinks(project):
    library = Library([str(project / "skills")])
    look = library.snapshot()

    class Rank(BaseDetector):
        def __init__(self, *names):
            self.names = names

        def detect(self, goal_text, skills):
            raise AssertionError("a search ranks")

        def rank(self, goal_text, skills, limit=50, *, reasons=True):
            known = {skill.name: skill for skill in skills}
            return [Match(name, 2.0, "r", (), known[name]) for name in self.names][:limit]

    for names in (("alpha", "beta", "gamma"), ("alpha", "gamma"), ()):
        found = search(Rank(*names), "beta", look.skills, 10, look.get("beta"))
        assert found[0].name == "beta"
        assert found[0].score == max(match.score for match in found)
        assert sorted(match.name for match in found) == sorted({*names, "beta"})
    assert search(Rank(), "beta", look.skills, 10)[:1] == []


def test_a_detector_that_fails_is_not_hidden_where_its_answer_is_asked_for(project):
    class Broken(BaseDetector):
        def detect(self, goal_text, skills):
            raise RuntimeError("no")

    library = Library([str(project / "skills")])
    with pytest.raises(RuntimeError):
        select(Broken(), "x", library.snapshot().skills, Trace())


@pytest.mark.parametrize("text", [None, 3, b"review", ["review"]])
def test_what_is_no_text_is_told_so(project, text):
    satchel = Satchel.for_project(project, builtin=False, trust="all")
    for ask in (satchel.which, satchel.search):
        with pytest.raises(InvalidInput, match=f"A `{type(text).__name__}` is no request") as told:
            ask(text)
        assert told.value.hint == "Give what is wanted as a `str`"
    made = satchel.shortlist(text)
    assert (made.text, made.reason) == (
        "",
        f"InvalidInput: A `{type(text).__name__}` is no request",
    )


@pytest.mark.parametrize("limit", ["3", 2.5, 0, -1, True])
def test_what_is_no_number_of_skills_is_told_so(project, limit):
    satchel = Satchel.for_project(project, builtin=False, trust="all")
    for ask in (satchel.which, satchel.search):
        with pytest.raises(InvalidInput, match="`limit` is ") as told:
            ask("do alpha work", limit=limit)
        assert told.value.hint == "Give a whole number that is at least 1"


def test_a_wider_look_shares_all_but_its_limit(project, monkeypatch):
    from satchel.detect import default

    for at in range(6):
        make_skill(project / "skills", f"delta-{at}", f"Does delta work number {at * 'x'}.")
    made = []
    whole = default.default_detector
    monkeypatch.setattr(
        default, "default_detector", lambda *given: made.append(given) or whole(*given)
    )
    satchel = Satchel.for_project(project, builtin=False, trust="all")
    assert len(satchel.which("do delta work").matches) == 3
    for limit in (4, 5, 6):
        answer = satchel.which("do delta work", limit=limit)
        assert len(answer.matches) + len(answer.collapsed) >= 4
        assert len(answer.matches) <= limit
    assert len(satchel.which("do delta work").matches) == 3
    assert len(made) == 1
