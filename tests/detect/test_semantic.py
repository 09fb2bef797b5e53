"""Meanings: what a model adds, where it keeps out, and that it never stops a look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from in_memory import skill
from satchel import Satchel
from satchel.detect import semantic as module
from satchel.detect.hybrid import HybridDetector
from satchel.detect.semantic import Semantic
from satchel.detect.skill_texts import make_header_row
from satchel.errors import ModelFailed, Refused
from satchel.skill import Skill, SkillHeader, SkillOrigin
from satchel.testing import make_skill

CONCEPTS = (
    {"car", "automobile", "vehicle", "engine"},
    {"bill", "invoice", "receipt", "payment"},
    {"song", "music", "melody", "tune"},
    {"doctor", "physician", "medicine", "health"},
    {"bread", "bake", "oven", "flour"},
)


SKILLS = (
    skill("automobile-care", "Looks after an automobile."),
    skill("invoices", "Reads an invoice."),
    skill("music-maker", "Writes music."),
    skill("physician", "Explains what a physician said."),
    skill("baker", "Plans what the oven does."),
)


class Concepts:
    """A model that knows five things."""

    id = "concepts"
    hurrying: Any = None
    dimensions = len(CONCEPTS) + 1

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False

    def embed(self, texts):
        if self.broken:
            raise ModelFailed("The server is away", "Try again later")
        self.asked += texts
        made = np.full((len(texts), self.dimensions), 0.05, np.float32)
        for row, text in enumerate(texts):
            words = set(text.lower().replace(".", " ").replace(":", " ").split())
            for column, concept in enumerate(CONCEPTS):
                made[row, column] += len(words & concept)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def with_meaning(model: Concepts | None = None) -> HybridDetector:
    detector = HybridDetector(semantic=Semantic(model or Concepts()), rows=make_header_row)
    detector.prepare(SKILLS)
    return detector


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("goal", "name"),
    [
        ("my vehicle is loud", "automobile-care"),
        ("how much was that receipt", "invoices"),
        ("hum a melody", "music-maker"),
        ("is this medicine right", "physician"),
        ("flour everywhere", "baker"),
    ],
)
def test_other_words_for_the_same_thing(goal, name):
    by_words = HybridDetector(rows=make_header_row).rank(goal, SKILLS)
    assert name not in {match.name for match in by_words}
    found = with_meaning().rank(goal, SKILLS)
    assert found[0].name == name
    assert "its meaning is near" in found[0].reason


def test_a_model_that_fails_leaves_the_words():
    model = Concepts()
    detector = with_meaning(model)
    model.broken = True
    answer = detector.look("reads an invoice", SKILLS)
    assert answer.matches[0].name == "invoices"
    assert answer.notes == ("Embeddings are not used: The server is away",)


def test_an_unusable_setting_is_noted(tmp_path):
    make_skill(tmp_path / "skills", "invoices", "Reads an invoice.")
    found = Satchel.for_project(
        tmp_path, trust="all", builtin=False, embeddings=str(tmp_path / "nothing")
    )
    answer = found.which("reads an invoice")
    assert [match.name for match in answer.matches] == ["invoices"]
    assert any(note.startswith("Embeddings are not used") for note in answer.notes)


# --- while vectors are made ---------------------------------------------------------------


def _legs(semantic, goal, skills, known=()):
    by_key = {one.path: one for one in skills}
    return semantic.signals(goal, skills, {one.path for one in known}, by_key, 100)


def _many(count: int) -> tuple[Skill, ...]:
    return tuple(skill(f"s{number}", f"Does thing {number}.") for number in range(count))


@pytest.mark.req("C10")
def test_skills_with_a_vector_do_not_beat_those_that_have_none_yet(monkeypatch):
    monkeypatch.setattr(module, "MAX_INLINE_SKILLS", 9)
    semantic = Semantic(Concepts())
    half = (*SKILLS, *_many(15))
    semantic.prepare(half)
    late = (*half, *(skill(f"vehicle-{number}", "For a vehicle.") for number in range(10)))
    signals, notes = _legs(semantic, "my vehicle", late, late)
    assert signals == {}
    assert notes == ["10 of 30 skills have no embedding; run `satchel search --build-index`"]
    semantic.prepare(late)
    signals, notes = _legs(semantic, "my vehicle", late, late)
    assert notes == []
    scores = signals["name"].scores
    assert scores[late[-1].path] == max(scores.values()) > scores[SKILLS[1].path]


def test_many_edited_skills_are_noted(monkeypatch):
    monkeypatch.setattr(module, "MAX_INLINE_SKILLS", 9)
    semantic = Semantic(Concepts())
    semantic.prepare((*SKILLS, *_many(15)))
    edited = tuple(skill(f"s{number}", "For a vehicle.") for number in range(15))
    for skills in ((*SKILLS, *edited), (*SKILLS, *edited, skill("new", "New."))):
        assert "have no embedding" in _legs(semantic, "my vehicle", skills, skills)[1][0]


def test_a_few_skills_without_a_vector_are_noted_and_keep_their_rank(monkeypatch):
    monkeypatch.setattr(module, "MAX_INLINE_SKILLS", 0)
    semantic = Semantic(Concepts())
    many = (*SKILLS, *_many(95))
    semantic.prepare(many)
    late = (*many, skill("lorry", "For a lorry."))
    signals, notes = _legs(semantic, "my vehicle", late, late)
    assert notes == ["1 of 101 skills have no embedding; run `satchel search --build-index`"]
    scores = signals["about"].scores
    assert scores[late[-1].path] == pytest.approx(
        np.median([scores.get(one.path, 0) for one in many])
    )
    # Few of the library, but many of those that words found.
    assert _legs(semantic, "my vehicle", late, [*SKILLS, late[-1]])[0] == {}
    monkeypatch.setattr(module, "MAX_INLINE_SKILLS", 64)
    assert _legs(semantic, "my vehicle", late, late)[1] == []


def test_new_and_changed_skills_are_embedded_by_the_request():
    model = Concepts()
    semantic = Semantic(model)
    assert _legs(semantic, "vehicle", SKILLS)[0]
    changed = (skill("automobile-care", "Repairs an engine."), *SKILLS[1:])
    model.asked.clear()
    assert _legs(semantic, "vehicle", changed)[1] == []
    assert model.asked[:2] == ["automobile care", "automobile care: Repairs an engine."]


# --- the same answer anywhere -------------------------------------------------------------


def test_skills_that_are_gone_are_forgotten(tmp_path):
    here = SkillOrigin(str(tmp_path), "project", "skills")
    for name in ("stays", "leaves", "wide"):
        make_skill(tmp_path, name, "Repairs an engine.")
    made = [
        Skill(SkillHeader(name, "Repairs an engine.", name, "SKILL.md", 0, 0, 0), here)
        for name in ("stays", "leaves", "wide")
    ]
    semantic = Semantic(Concepts(), str(tmp_path / "cache"))
    semantic.prepare(tuple(made))
    (tmp_path / "leaves/SKILL.md").unlink()
    narrow = (made[0],)
    _legs(semantic, "vehicle", narrow)
    assert sorted(semantic._store.stored_keys()) == sorted([made[0].path, made[2].path])  # noqa: SLF001
    (tmp_path / "wide/SKILL.md").unlink()
    semantic.prepare(narrow)
    assert semantic._store.stored_keys() == [made[0].path]  # noqa: SLF001


def test_the_same_library_gives_the_same_scores(tmp_path):
    texts = [f"{sorted(one)[number % 4]} of {number}" for number in range(30) for one in CONCEPTS]
    every = tuple(skill(f"k{at}", text) for at, text in enumerate(texts))
    folder = str(tmp_path)
    grown = Semantic(Concepts(), folder)
    for size in (25, 60, 110, 150):
        grown.prepare(every[:size])
        _legs(grown, "vehicle", every[:size])
    there = _legs(grown, "my vehicle is loud", every)
    other = Semantic(Concepts(), folder)
    assert _legs(other, "my vehicle is loud", every) == there
    alone = Semantic(Concepts())
    alone.prepare(every[::-1])
    assert _legs(alone, "my vehicle is loud", every[::-1]) == there


def test_vectors_that_cannot_be_written_are_noted(tmp_path):
    (tmp_path / "file").write_text("in the way")
    semantic = Semantic(Concepts(), str(tmp_path / "file"))
    with pytest.raises(Refused, match="cannot be written"):
        semantic.prepare(SKILLS)
    signals, notes = _legs(semantic, "vehicle", SKILLS)
    assert signals
    assert notes[0].startswith("The index cannot be written: ")


# --- opened when it is needed -------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelFailed("There is no such model", "Name another"), "There is no such model"),
        (ValueError("odd\nlines"), "ValueError: odd"),
    ],
)
def test_a_model_that_cannot_be_opened_is_tried_once_and_noted_each_time(error, said):
    tries: list[int] = []

    def fail() -> Concepts:
        tries.append(1)
        raise error

    lazy = Semantic(fail)
    for _ in range(3):
        assert _legs(lazy, "vehicle", SKILLS) == ({}, [f"Embeddings are not used: {said}"])
    with pytest.raises(ModelFailed, match=said):
        lazy.prepare(SKILLS)
    assert (tries, lazy.made) == ([1], 0)


def test_the_nearest_of_a_few_skills_may_not_fit():
    """One of a handful is always the nearest, and far ahead of the others."""

    class Far(Concepts):
        def embed(self, texts):
            made = super().embed(texts)
            for row, text in enumerate(texts):
                if "xylophone" in text:
                    made[row] = np.array([-0.5, -0.5, 0.25, -0.5, -0.5, 0]) / 1.031
            return made

    detector = with_meaning(Far())
    answer = detector.look("xylophone lessons", SKILLS)
    assert not answer.matches
    assert detector.look("a new melody", SKILLS).matches[0].name == "music-maker"
