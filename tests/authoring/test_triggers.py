"""A prompt passes when the skill is chosen for it, or not, as its author says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from prompts import Counting, make_library, should, should_not

from satchel import Satchel
from satchel.authoring.lineup import line_up, reworded, skill_at
from satchel.authoring.rehearsal import rehearsal
from satchel.authoring.triggers import Result, run_prompts
from satchel.detect import Answer
from satchel.detect.default import default_detector
from satchel.detect.hybrid import HybridDetector
from satchel.detect.semantic import Semantic
from satchel.errors import InvalidInput, NotFound, SatchelError, SkillBroken
from satchel.testing import make_skill, make_tool_skill

pytestmark = pytest.mark.req("C3")


@pytest.fixture
def satchel(tmp_path) -> Satchel:
    return make_library(tmp_path)


@pytest.fixture(params=["ours", "counting"])
def detector(request, satchel):
    return satchel.detector if request.param == "ours" else Counting()


def _result(satchel: Satchel, detector, name: str, prompts) -> Result:
    skills = satchel.library.snapshot().for_model
    skill = next(one for one in skills if one.name == name)
    return Result(skill, "", tuple(run_prompts(skill, prompts, skills, detector)))


def test_every_cell_of_the_table(satchel, detector):
    prompts = [
        *should("Look for bugs and security holes in this source code"),
        *should("Build a spreadsheet with charts and formulas"),
        *should_not("Reviews of source code: style and bugs"),
        *should_not("Translates German text into French and Spanish", instead="translation"),
    ]
    result = _result(satchel, detector, "code-review", prompts)
    hit, missed, fired, quiet = result.rows
    assert [row.chosen for row in result.rows] == [True, False, True, False]
    assert [row.ok for row in result.rows] == [True, False, False, True]
    assert (hit.rank, fired.rank) == (1, 1)
    assert missed.rivals[0].name == "spreadsheets"
    assert any("charts" in piece for piece in missed.rivals[0].evidence)
    assert fired.own is not None
    assert any("bugs" in piece for piece in fired.own.evidence)
    assert quiet.instead
    assert (result.recall, result.precision) == (0.5, 0.5)
    assert not result.passes()
    assert result.passes(0.5, 0.5)
    assert not result.passes(0.5, 0.6)
    told = result.to_dict()
    assert told["should"] == {"chosen": 1, "missed": 1}
    assert told["should_not"] == {"quiet": 1, "fired": 1}
    assert [row["ok"] for row in told["prompts"]] == [True, False, False, True]
    assert told["prompts"][3]["instead_chosen"] is True


def test_what_should_be_chosen_instead_is_looked_for(satchel, detector):
    prompts = should_not("Fill in the fields of this PDF form", instead="translation")
    result = _result(satchel, detector, "code-review", prompts)
    (row,) = result.rows
    assert not row.chosen
    assert not row.instead
    assert not row.ok
    assert not result.passes(0, 0)


@pytest.mark.parametrize(
    ("prompts", "measures"),
    [
        (should("Fill in a PDF form with fields"), (1.0, 1.0)),
        (should("Bake a xylophone"), (0.0, None)),
        (should_not("Bake a xylophone"), (None, None)),
    ],
)
def test_a_measure_of_nothing_is_none(prompts, measures, satchel, detector):
    result = _result(satchel, detector, "pdf-forms", prompts)
    assert (result.recall, result.precision) == measures
    assert result.passes() is (result.recall != 0.0)


def test_a_near_copy_that_stands_for_it_is_named(satchel):
    class Collapsing(Counting):
        def look(self, goal_text, skills, limit=None) -> Answer:
            found = [one for one in self.detect(goal_text, skills) if one.name != "pdf-forms"]
            return Answer(found, [], 1.0, 0.5, "x", 0.0, collapsed=(("pdf-forms", "translation"),))

    (row,) = _result(satchel, Collapsing(), "pdf-forms", should("Fill in PDF forms")).rows
    assert (row.chosen, row.stand_in) == (False, "translation")


def test_a_detector_that_is_not_sure_says_how_sure_it_is(satchel):
    class Unsure(Counting):
        def look(self, goal_text, skills, limit=None) -> Answer:
            return Answer([], self.detect(goal_text, skills), 0.2, 0.6, "x", 0.0)

    (row,) = _result(satchel, Unsure(), "pdf-forms", should("Fill in PDF forms")).rows
    assert (row.chosen, row.rank, row.rivals, row.sure) == (False, 1, (), (0.2, 0.6))


# --- the line-up --------------------------------------------------------------------------


def test_a_skill_that_nobody_trusts_stands_in_the_line_up(tmp_path):
    make_skill(tmp_path / "skills", "stranger", "Carves marble statues.")
    satchel = Satchel.for_project(tmp_path, trust="ask", builtin=False)
    (skill,) = satchel.library.find("stranger")
    assert skill.state == "untrusted"
    offered = satchel.library.snapshot().for_model
    assert skill.path not in {one.path for one in offered}
    skills = line_up(offered, skill)
    assert [one.state for one in skills if one.path == skill.path] == ["active"]
    (row,) = run_prompts(skill, should("Carve a marble statue"), skills, satchel.detector)
    assert row.ok


def test_a_folder_of_no_library_takes_the_place_of_its_name(satchel, tmp_path):
    other = tmp_path / "elsewhere"
    make_skill(other, "pdf-forms", "Carves marble statues.")
    skill = skill_at(str(other / "pdf-forms"))
    offered = satchel.library.snapshot().for_model
    skills = line_up(offered, skill)
    assert len(skills) == len(offered)
    assert [one.path for one in skills if one.name == "pdf-forms"] == [skill.path]
    (row,) = run_prompts(skill, should("Carve a marble statue"), skills, satchel.detector)
    assert row.ok


def test_an_offered_skill_leaves_the_line_up_as_it_is(satchel):
    offered = satchel.library.snapshot().for_model
    assert line_up(offered, offered[0]) == tuple(offered)


def test_what_words_never_choose_is_not_tested(satchel, tmp_path):
    make_tool_skill(tmp_path / ".agents/skills", "words", tool="words_count")
    make_skill(tmp_path / ".agents/skills", "by-hand", disable_model_invocation=True)
    satchel.refresh()
    library = satchel.library
    with pytest.raises(InvalidInput, match="tools and no instructions"):
        line_up((), library.tools(refresh=True).find("words")[0].skill)
    with pytest.raises(InvalidInput, match="people alone"):
        line_up((), library.find("by-hand")[0])


def test_a_folder_without_a_skill_says_so(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotFound, match=r"no SKILL\.md"):
            skill_at(str(folder))
    (tmp_path / "SKILL.md").write_text("# Only a heading\n")
    with pytest.raises(SkillBroken, match="not a skill yet"):
        skill_at(str(tmp_path))


# --- the stage ----------------------------------------------------------------------------


def test_what_is_only_tried_is_not_kept(satchel, tmp_path):
    installed = satchel.library.snapshot().for_model
    make_skill(tmp_path / "elsewhere", "sculpture", "Carves marble statues.")
    skill = skill_at(str(tmp_path / "elsewhere/sculpture"))
    skills = line_up(installed, skill)
    told: list[tuple[int, int]] = []
    before = _files(tmp_path)
    with rehearsal(satchel, skills, lambda *step: told.append(step)) as stage:
        assert stage.own
        assert _first(stage.detector, "Carve marble statues", skills) == "sculpture"
        assert _first(stage.detector, "Play a quokka waltz", skills) != "sculpture"
        again = (*installed, reworded(skill, "Plays the quokka waltz.", 1))
        stage.prepare(again)
        assert _first(stage.detector, "Play a quokka waltz", again) == "sculpture"
        assert _first(stage.detector, "Carve marble statues", again) != "sculpture"
        stage.prepare(skills)
        assert _first(stage.detector, "Play a quokka waltz", skills) != "sculpture"
    assert told[-1][0] <= told[-1][1] == len(skills)
    assert _files(tmp_path) == before


@pytest.mark.parametrize("busy", [False, True])
def test_a_large_index_is_copied_and_a_busy_one_is_built_anew(busy, tmp_path):
    from satchel._fs import locked

    more = {f"s{at}": f"Sorts parcels of colour{at} for town{at}." for at in range(260)}
    satchel = make_library(tmp_path, more)
    skills = satchel.library.snapshot().for_model
    default_detector(satchel.settings).prepare(skills)  # pyright: ignore[reportAttributeAccessIssue]
    satchel.close()
    before = _files(tmp_path)
    folders = [path.rpartition(os.sep)[0] for path in before if path.endswith("writer.lock")]
    with contextlib.ExitStack() as stack:
        if busy:  # as another process does while it indexes
            for folder in folders:
                stack.enter_context(locked(os.path.join(folder, "writer.lock")))
        with rehearsal(satchel, skills) as stage:
            new = reworded(skills[0], "Plays the quokka waltz.", 1)
            changed = (new, *skills[1:])
            stage.prepare(changed)
            assert _first(stage.detector, "Play a quokka waltz", changed) == new.name
            assert _first(stage.detector, "Sort parcels of colour77 for town77", skills) == "s77"
    after = _files(tmp_path)
    assert {path: after[path] for path in before} == before
    assert _first(satchel.detector, "Play a quokka waltz", skills) == ""


class Away:
    """A model behind a server that answers no more, or never did."""

    id = "away"
    dimensions = 2

    def covers(self, text: str) -> bool:
        return bool(text)

    def embed(self, texts):
        raise SatchelError("nobody answers there")


def test_a_model_that_is_away_is_noted(tmp_path):
    pytest.importorskip("numpy")
    made = make_library(tmp_path)
    own = HybridDetector(None, semantic=Semantic(Away()))
    satchel = Satchel(made.library, made.settings, detector=own)
    skills = satchel.library.snapshot().for_model
    with rehearsal(satchel, skills) as stage:
        assert stage.notes == ("Meanings are not compared: nobody answers there",)
        assert _first(stage.detector, "Fill in PDF forms", skills) == "pdf-forms"
    spec = Satchel.for_project(tmp_path, trust="all", builtin=False, vectors=str(tmp_path / "gone"))
    with rehearsal(spec, skills) as stage:
        assert stage.notes[0].startswith("Meanings are not compared: ")
        assert _first(stage.detector, "Fill in PDF forms", skills) == "pdf-forms"


class Letters:
    """A model that counts letters, and what it was given."""

    id = "letters"
    dimensions = 26

    def __init__(self) -> None:
        self.given: list[str] = []

    def covers(self, text: str) -> bool:
        return bool(text)

    def embed(self, texts):
        np = pytest.importorskip("numpy")
        self.given += texts
        rows = [[1.0 + text.lower().count(chr(97 + at)) for at in range(26)] for text in texts]
        made = np.array(rows, np.float32).reshape(len(rows), 26)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def test_vectors_are_copied_and_those_of_a_trial_are_not_kept(tmp_path, monkeypatch):
    pytest.importorskip("numpy")
    model = Letters()
    monkeypatch.setattr("satchel.detect.vectors.open.open_embedder", lambda *_, **__: model)
    make_library(tmp_path)
    satchel = Satchel.for_project(tmp_path, trust="all", builtin=False, vectors="letters")
    skills = satchel.library.snapshot().for_model
    default_detector(satchel.settings).prepare(skills)  # pyright: ignore[reportAttributeAccessIssue]
    before = _files(tmp_path)
    assert any("vectors" in path for path in before)
    model.given.clear()
    with rehearsal(satchel, skills) as stage:
        assert stage.notes == ()
        assert model.given == []
        changed = (reworded(skills[0], "Plays the quokka waltz.", 1), *skills[1:])
        stage.prepare(changed)
        assert [text for text in model.given if "quokka" in text]
        assert len(model.given) <= 2
    assert _files(tmp_path) == before


def test_a_detector_of_somebody_else_is_used_as_it_is(tmp_path):
    satchel = make_library(tmp_path)
    own = Satchel(satchel.library, satchel.settings, detector=Counting())
    with rehearsal(own, satchel.library.snapshot().for_model) as stage:
        assert stage.detector is own.detector
        assert not stage.own
        stage.prepare(())


def _files(folder) -> dict[str, bytes]:
    """All that is kept below a folder, and in the caches beside it."""
    return {
        os.path.join(where, name): Path(where, name).read_bytes()
        for top in (folder, os.environ["HOME"])
        for where, _, names in os.walk(top)
        for name in names
    }


def _first(detector, goal: str, skills) -> str:
    found = detector.detect(goal, skills)
    return found[0].name if found else ""
