"""Advice is only what was tried: it makes prompts pass, breaks none, and can be checked."""

from __future__ import annotations

import pytest
from prompts import Counting, make_library, should, should_not

from satchel.authoring import wording
from satchel.authoring.advice import Change
from satchel.authoring.candidates import caught_by, lacking, tells
from satchel.authoring.rehearsal import Rehearsal, rehearsal
from satchel.authoring.triggers import Result, Row, run_prompts
from satchel.authoring.wording import advise
from satchel.detect import Match, terms

pytestmark = pytest.mark.req("C3")


def _run(satchel, name: str, prompts, detector):
    skills = satchel.library.snapshot().for_model
    skill = next(one for one in skills if one.name == name)
    return Result(skill, "", tuple(run_prompts(skill, prompts, skills, detector))), skills


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "counting"])
def test_words_that_are_missing_are_found_and_proven(ours, tmp_path):
    satchel = make_library(tmp_path)
    detector = satchel.detector if ours else Counting()
    prompts = should(
        "Find bugs in this source code",
        "Judge quokka modules",
        "Judge another quokka",
    )
    result, skills = _run(satchel, "code-review", prompts, detector)
    assert [row.ok for row in result.rows] == [True, False, False]
    if ours:
        with rehearsal(satchel, skills) as stage:
            advice = advise(result, skills, stage)
    else:
        advice = advise(result, skills, Rehearsal(detector))
    assert (advice[0].before, advice[0].after, advice[0].of) == (1, 3, 3)
    assert advice[0].prompts == ("Judge quokka modules", "Judge another quokka")
    assert advice[0].change.kind == "add"
    assert {*advice[0].change.words.split()} <= {"judge", "quokka"}
    assert advice[0].to_dict()["add"] == advice[0].change.words
    # What it says holds when the file is changed.
    path = result.skill.path
    text = result.skill.description
    with open(path, encoding="utf-8") as file:
        old = file.read()
    for one in advice:
        text = one.change.made_in(text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(old.replace(result.skill.description, text))
    satchel.refresh()
    again, _ = _run(satchel, "code-review", prompts, satchel.detector if ours else detector)
    assert all(row.ok for row in again.rows)


def test_a_phrase_that_others_use_is_said_whole(tmp_path):
    prompts = should("Judge this pull request before lunch")
    more = {"y-pull": "Sends a pull request.", "z-pull": "Lists each pull request."}
    satchel = make_library(tmp_path, more)
    result, skills = _run(satchel, "code-review", prompts, Counting())
    assert [one.name for one in result.rows[0].rivals] == ["git-helper", "y-pull"]
    (advice,) = advise(result, skills, Rehearsal(Counting()))
    assert advice.change == Change("add", "pull request")


def test_a_word_too_many_is_found(tmp_path):
    more = {"code-review": "Reviews source code, commits, lunch and release trains."}
    satchel = make_library(tmp_path, more)
    prompts = [
        *should("Reviews of source code"),
        *should_not("Book a table for lunch"),
        *should_not("Order lunch for everyone"),
    ]
    detector = Counting()
    result, skills = _run(satchel, "code-review", prompts, detector)
    assert [row.ok for row in result.rows] == [True, False, False]
    (advice,) = advise(result, skills, Rehearsal(detector))
    assert (advice.change, advice.before, advice.after) == (Change("drop", "lunch"), 1, 3)
    assert advice.change.made_in("Lunch, lunches and a LUNCH.") == ", lunches and a ."


def test_what_breaks_another_prompt_is_not_said(tmp_path):
    more = {"y-pull": "Sends a quokka.", "z-pull": "Lists each quokka."}
    satchel = make_library(tmp_path, more)
    prompts = [*should("Judge the quokka"), *should_not("Judge the weather")]
    detector = Counting()
    result, skills = _run(satchel, "code-review", prompts, detector)
    changes = [one.change.words for one in advise(result, skills, Rehearsal(detector))]
    assert changes == ["quokka"]  # `judge` would do as well, and catch the weather
    dropping, skills = _run(
        satchel,
        "code-review",
        [*should("Mind the style"), *should_not("Choose a style", "Dress in style")],
        detector,
    )
    assert [row.ok for row in dropping.rows] == [True, False, False]
    assert advise(dropping, skills, Rehearsal(detector)) == ()


def test_the_prompts_of_other_skills_are_guarded(tmp_path):
    more = {"y-pull": "Sends a quokka.", "z-pull": "Lists each quokka."}
    satchel = make_library(tmp_path, more)
    detector = Counting()
    result, skills = _run(satchel, "code-review", should("Hold the quokka"), detector)
    other, _ = _run(satchel, "z-pull", should("Where is that quokka?"), detector)
    assert all(row.ok for row in other.rows)
    free = advise(result, skills, Rehearsal(detector))
    assert free[0].change.words in {"quokka", "hold", "hold quokka", "hold, quokka"}
    guarded = advise(result, skills, Rehearsal(detector), [result, other])
    # With `quokka`, code-review would be second and push z-pull out.
    assert all("quokka" not in one.change.words for one in guarded)


def test_nothing_is_said_where_nothing_helps_or_nothing_is_wrong(tmp_path):
    satchel = make_library(tmp_path)
    detector = Counting()
    good, skills = _run(satchel, "pdf-forms", should("Fill in PDF forms"), detector)
    assert advise(good, skills, Rehearsal(detector)) == ()
    idle, skills = _run(satchel, "pdf-forms", should("Please help me with this"), detector)
    assert not idle.rows[0].ok
    assert advise(idle, skills, Rehearsal(detector)) == ()


def test_the_questions_are_counted(tmp_path, monkeypatch):
    satchel = make_library(tmp_path)
    detector = Counting()
    result, skills = _run(satchel, "pdf-forms", should("Judge the quokka"), detector)
    detector.asked = 0
    monkeypatch.setattr(wording, "LOOKS", 2)
    assert advise(result, skills, Rehearsal(detector)) == ()
    assert detector.asked == 2


@pytest.fixture(params=[True, False], ids=["cutter", "plain"])
def cutter(request, monkeypatch):
    """With a dictionary that cuts Chinese into words, and without one."""
    terms._cutter.cache_clear()  # noqa: SLF001 - what a process finds once
    if not request.param:
        monkeypatch.setattr(terms, "available", lambda _name: None)
    yield request.param
    terms._cutter.cache_clear()  # noqa: SLF001 - what a process finds once


def test_of_chinese_the_words_are_taken(cutter, tmp_path):
    more = {"shenyue": "审阅合同条款，指出风险。", "fanyi": "翻译文件。"}
    satchel = make_library(tmp_path, more)
    result, skills = _run(satchel, "shenyue", should("看看这份租赁协议"), satchel.detector)
    assert not result.rows[0].ok
    with rehearsal(satchel, skills) as stage:
        (advice,) = advise(result, skills, stage)
    assert (advice.before, advice.after) == (0, 1)
    assert set(advice.change.words.split("、")) <= {"租赁", "协议", "租赁协议"}
    assert not any(
        tells(word) for word in ("看看", "这份", "那些", "帮我", "试试", "please", "I’m")
    )


@pytest.mark.parametrize(
    ("prompt", "never"),
    [
        ("Inspect Haskell", {"inspect haskell", "inspect, haskell"}),
        ("租赁协议", {"租赁协议"}),
        ("Could you please check my lunch", {"please", "check", "could you please"}),
    ],
)
def test_no_prompt_is_said_whole_and_no_word_of_asking(prompt, never, cutter):
    row = Row(should(prompt)[0], False, 0, (), None, (), (0.0, 1.0))
    found = [change.words for change in lacking(row, "reviews code", lambda _words: 0)]
    assert found
    assert not never & set(found)


def test_what_caught_a_prompt_is_a_word_in_chinese_too(cutter):
    own = Match("x", 1.0, "", ("description: 合同",), None, "")  # pyright: ignore[reportArgumentType]
    row = Row(should_not("翻译这份合同")[0], True, 1, (), own, (), (1.0, 0.5))
    assert caught_by("审阅合同条款，指出风险。", row) == ["合同"]
    assert Change("drop", "合同").made_in("审阅合同条款") == "审阅 条款"
    assert Change("drop", "note").made_in("A note, notes") == "A , notes"
