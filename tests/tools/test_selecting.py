"""A choice is recorded: who, by which detector, how sure, and who came next."""

from __future__ import annotations

import pytest

from satchel import Satchel
from satchel.detect import Answer, BaseDetector, Match
from satchel.errors import InvalidInput
from satchel.testing import make_skill


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


def test_only_looking_leaves_no_trace(project):
    satchel = satchel_with(project, Given([("beta", 0.8, "given")]))
    satchel.list_skills()
    before = list(satchel.trace.events)
    assert satchel.which("beta", record=False).matches
    assert satchel.shortlist("beta", record=False).text
    assert list(satchel.trace.events) == before


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
