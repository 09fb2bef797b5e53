"""The shortlist of one turn: its skills, its text, and its record in the trace."""

from __future__ import annotations

import pytest

from satchel import Satchel
from satchel.detect import BaseDetector, Detection, Match, SelectionPipeline
from satchel.errors import InvalidInput
from satchel.session.shortlist import CLOSE_SCORE_RATIO
from satchel.testing import make_skill

NAMES = ("code-review", "write-tests", "pdf-forms", "release-notes", "sql-tuning", "deploy-it")


class Scripted(BaseDetector):
    """Answers with the scores it was given: chosen ones, then runners-up."""

    name = "scripted"

    def __init__(self, chosen, next_ones=(), *, asked=(), fit=0.9, **more):
        self.chosen, self.next_ones, self.asked = dict(chosen), dict(next_ones), asked
        self.fit, self.more, self.calls = fit, more, 0

    def detect(self, goal_text, skills):
        return self.look(goal_text, skills).matches

    def look(self, goal_text, skills, limit=None):
        self.calls += 1
        known = {skill.name: skill for skill in skills}

        def matches(rows):
            return [
                Match(name, score, f"because of {name}", (), known.get(name, skills[0]),
                      "explicit" if name in self.asked else "")
                for name, score in rows.items()
            ]  # fmt: skip

        chosen, next_ones = matches(self.chosen), matches(self.next_ones)
        return Detection(chosen, next_ones, self.fit, 0.5, self.name, 1.25, **self.more)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    for name in NAMES:
        make_skill(tmp_path / "project/skills", name, f"Helps with {name.replace('-', ' ')}.")
    return tmp_path / "project"


@pytest.fixture
def make(project):
    def make(detector=None, **settings) -> Satchel:
        made = Satchel.for_project(project, builtin=False, trust="all", packaged=False, **settings)
        return Satchel(made.library, made.settings, detector=detector, explicit=False)

    return make


# --- its skills ---------------------------------------------------------------------


def test_the_chosen_ones_are_listed(make):
    satchel = make(Scripted({"pdf-forms": 0.9, "sql-tuning": 0.6}))
    made = satchel.shortlist("fill in this form")
    assert made.listed == ("pdf-forms", "sql-tuning")
    assert made.reason == ""
    assert made.answer.fit == 0.9
    assert '<skill name="pdf-forms">Helps with pdf forms.</skill>' in made.text
    assert str(made) == made.text
    event = satchel.trace.events[-1]
    assert event.kind == "selected"
    assert event.values["listed"] == ["pdf-forms", "sql-tuning"]


def test_no_more_than_the_setting_are_listed(make):
    detector = Scripted(dict.fromkeys(NAMES, 1.0))
    assert len(make(detector).shortlist("x").listed) == 3
    assert len(make(detector, shortlist=2).shortlist("x").listed) == 2
    assert len(make(detector, shortlist=5).shortlist("x").listed) == 5


def test_zero_turns_it_off(make):
    detector = Scripted({"pdf-forms": 1.0})
    satchel = make(detector, shortlist=0)
    made = satchel.shortlist("fill in this form")
    assert (made.text, made.listed) == ("", ())
    assert made.reason == "the setting `shortlist` is 0"
    assert detector.calls == 0
    assert satchel.with_shortlist("fill in this form") == "fill in this form"


def test_when_no_skill_fits_the_shortlist_is_empty(make):
    satchel = make(Scripted({}, {"pdf-forms": 0.4}, fit=0.2))
    made = satchel.shortlist("cook a soup")
    assert (made.text, made.listed) == ("", ())
    assert made.reason == "no skill fits: the best is 0.20 sure, below 0.50"
    assert satchel.trace.events[-1].kind == "selected"
    assert satchel.with_shortlist("cook a soup") == "cook a soup"


def test_all_mentioned_skills_are_listed_without_others(make):
    asked = NAMES[:4]
    detector = Scripted(dict.fromkeys(asked, 1.0), {"deploy-it": 1.0}, asked=asked)
    made = make(detector, shortlist=2).shortlist("use these")
    assert made.listed == asked
    assert made.text.count('note="asked for by name"') == 4


def test_many_mentioned_skills_are_listed_or_recorded(make, project):
    names = [f"tool-{at:02}" for at in range(12)]
    for name in names:
        make_skill(project / "skills", name, "Helps.")
    satchel = make(Scripted(dict.fromkeys(names, 1.0), asked=names))
    made = satchel.shortlist("use them all")
    assert list(made.listed) == names[:8]
    assert made.reason == "no room for `tool-08`, `tool-09`, `tool-10`, `tool-11`"
    assert satchel.trace.events[-1].values["no_room"] == names[8:]


def test_names_that_do_not_fit_into_the_block_are_recorded(make, project):
    names = [f"{letter * 200}" for letter in "abcdefgh"]
    for name in names:
        make_skill(project / "skills", name, "Helps.")
    satchel = make(Scripted(dict.fromkeys(names, 1.0), asked=names))
    made = satchel.shortlist("use them all")
    left_out = names[len(made.listed) :]
    assert left_out
    assert satchel.trace.events[-1].values["no_room"] == left_out


def test_a_skill_for_people_only_is_not_listed(make, project):
    make_skill(project / "skills", "by-hand", "For people.", disable_model_invocation=True)
    made = make(Scripted({"by-hand": 1.0, "nobody": 0.9, "pdf-forms": 0.8})).shortlist("x")
    assert made.listed == ("pdf-forms",)
    made = make(Scripted({"by-hand": 1.0})).shortlist("x")
    assert made.text == ""
    assert made.reason == "the chosen skills are not offered to models"


# --- the place for one that came close ----------------------------------------------------


@pytest.mark.parametrize(
    ("close", "copies", "extra"),
    [
        ({"deploy-it": 0.49, "sql-tuning": 0.45}, (), ("deploy-it",)),
        ({"deploy-it": 0.5 * CLOSE_SCORE_RATIO}, (), ("deploy-it",)),
        ({"deploy-it": 0.5 * CLOSE_SCORE_RATIO - 0.01}, (), ()),
        ({"deploy-it": 0.5}, (("deploy-it", "pdf-forms"),), ()),
    ],
)
def test_the_best_runner_up_gets_one_more_place(make, close, copies, extra):
    detector = Scripted({"pdf-forms": 1.0, "code-review": 0.5}, close, collapsed=copies)
    assert make(detector).shortlist("x").listed == ("pdf-forms", "code-review", *extra)


def test_an_excluded_skill_is_not_suggested(make):
    detector = Scripted({"pdf-forms": 1.0}, {"deploy-it": 1.0, "sql-tuning": 0.9})
    made = make(SelectionPipeline(detector)).shortlist("Fill it in, but do not use deploy-it")
    assert made.listed == ("pdf-forms", "sql-tuning")


# --- what it leaves alone -----------------------------------------------------------------


def test_content_blocks_get_one_more(make):
    satchel = make(Scripted({"pdf-forms": 1.0}))
    picture = {"type": "image", "source": {"data": "…"}}
    message = [picture, {"type": "text", "text": "Fill in this form."}]
    sent = satchel.with_shortlist(message)
    block = satchel.shortlist("Fill in this form.").text
    assert sent == [*message, {"type": "text", "text": block}]
    assert len(message) == 2  # a new list
    spoken = [{"type": "input_text", "text": "Fill in this form."}]
    assert satchel.with_shortlist(spoken)[-1]["type"] == "input_text"
    assert make(Scripted({})).with_shortlist(message) == message
    assert satchel.with_shortlist([picture]) == [picture]  # nothing that could be searched


@pytest.mark.parametrize("message", [None, 7, b"x", {"role": "user"}, ["x"], [None]])
def test_an_invalid_message_is_refused(make, message):
    with pytest.raises(InvalidInput, match="is no message"):
        make(Scripted({"pdf-forms": 1.0})).with_shortlist(message)


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [(("text", "document"), "text"), (("input_text", "input_file"), "input_text"),
     (("document",), None), (("tool_result", "text"), "text")],
)  # fmt: skip
def test_only_text_blocks_are_searched_and_the_block_has_their_type(make, kinds, kind):
    satchel = make(Scripted({"pdf-forms": 0.9}))
    message = [{"type": one, "text": f"Fill in the {one}"} for one in kinds]
    sent = satchel.with_shortlist(message)
    if kind is None:
        assert sent == message
    else:
        assert sent[:-1] == message
        assert sent[-1]["type"] == kind


# --- what is recorded -----------------------------------------------------------------------


@pytest.mark.req("C7")
def test_the_trace_says_which_were_selected_by_which_detector_and_why(make):
    more = {"notes": ("vectors are off",), "cost": {"input_tokens": 12}}
    copies = (("copy", "sql-tuning"),)
    detector = Scripted({"sql-tuning": 0.8, "pdf-forms": 0.5}, {"deploy-it": 0.25},
                        collapsed=copies, **more)  # fmt: skip
    satchel = make(detector)
    goal = "tune the query " * 30
    assert satchel.which(goal).names == ["sql-tuning", "pdf-forms"]
    event = satchel.trace.events[-1]
    assert (event.kind, list(event.skills)) == ("selected", ["sql-tuning", "pdf-forms"])
    assert event.values == {
        "detector": "scripted",
        "by": ["scripted", "scripted"],
        "scores": [0.8, 0.5],
        "reasons": ["because of sql-tuning", "because of pdf-forms"],
        "fit": 0.9,
        "threshold": 0.5,
        "runners_up": [["deploy-it", 0.25]],
        "goal": goal[:200],
        "notes": ["vectors are off"],
        "took_ms": 1.25,
        "collapsed": [["copy", "sql-tuning"]],
        "cost": {"input_tokens": 12.0},
    }


def test_record_false_leaves_no_trace(make):
    satchel = make(Scripted({"pdf-forms": 0.8}))
    satchel.list_skills()
    before = list(satchel.trace.events)
    assert satchel.which("forms", record=False).matches
    assert satchel.shortlist("forms", record=False).text
    assert list(satchel.trace.events) == before


@pytest.mark.parametrize("text", [None, 3, b"review", ["review"]])
def test_a_request_that_is_no_text_is_refused(make, text):
    satchel = make()
    for ask in (satchel.which, satchel.search):
        with pytest.raises(InvalidInput, match=f"`{type(text).__name__}` is not valid") as told:
            ask(text)
        assert told.value.hint == "Give what is wanted as a `str`"
    made = satchel.shortlist(text)
    assert (made.text, made.reason) == ("", f"InvalidInput: `{type(text).__name__}` is not valid")


@pytest.mark.parametrize("limit", ["3", 2.5, 0, -1, True])
def test_an_invalid_limit_is_refused(make, limit):
    satchel = make()
    for ask in (satchel.which, satchel.search):
        with pytest.raises(InvalidInput, match="is not valid") as told:
            ask("fill in forms", limit=limit)
        assert told.value.hint == "Give a whole number that is at least 1"
