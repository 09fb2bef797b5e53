"""The commands `index` and `vectors`, and the diagnosis of a missing index."""

from __future__ import annotations

import json

import pytest

from satchel import Satchel
from satchel.detect.base import BaseDetector
from satchel.detect.pipeline import SelectionPipeline
from tiny_models import write_onnx


class Scripted(BaseDetector):
    """A detector whose index holds `held` skills."""

    def __init__(self, held) -> None:
        self.held = held

    def detect(self, goal_text, skills):
        return []

    def indexed(self):
        return self.held


class Plain:
    """A detector without an index."""

    def detect(self, goal_text, skills):
        return []


def test_the_one_that_ships_builds_and_then_has_little_to_do(terminal):
    done = terminal.run("index", "--json")
    assert done.status == 0, done.err
    first = json.loads(done.out)
    assert first["skills"] == 4
    assert first["engine"] in {"memory", "tantivy"}
    again = json.loads(terminal.run("index", "--json").out)
    assert again["skills"] == 4
    assert json.loads(terminal.run("search", "review", "--json").out)[0]["name"] == "code-review"


@pytest.mark.req("C10")
@pytest.mark.timeout(60)
def test_vectors_are_counted_and_made_anew(empty):
    write_onnx(empty.home / "tiny")
    texts = {"cat": "the cat merge files", "files": "merge the files", "notes": "把文件合并起来"}
    for name, text in texts.items():
        empty.skill(f"skills/{name}", f"---\nname: {name}\ndescription: {text}\n---\nBody\n")
    on = {"SATCHEL_VECTORS": "~/tiny", "SATCHEL_TRUST": "all"}
    done = empty.run("index", **on)
    assert done.status == 0, done.err
    assert done.out.startswith("3 skills")
    # The model does not read the third one: that is left to words.
    assert "vectors: 2 skills (~/tiny)" in done.out
    lacking = "No vector for `notes`: the model does not know the script of its description"
    assert lacking in " ".join(done.err.split())
    (kept,) = empty.home.glob(".cache/satchel/search/*/vectors/*/*.npy")
    empty.run("index", **on)
    assert kept.exists()
    told = json.loads(empty.run("index", "--rebuild", "--json", **on).out)
    assert told["embedded"] == 2
    assert [one["name"] for one in told["without_vectors"]] == ["notes"]
    (again,) = empty.home.glob(".cache/satchel/search/*/vectors/*/*.npy")
    assert again != kept


def test_a_model_that_cannot_be_opened_is_no_silence(terminal):
    done = terminal.run("index", SATCHEL_VECTORS="~/no-such-model")
    assert done.status == 3
    assert "There is no folder" in done.err


# --- doctor -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A library that is worth an engine."""
    project = tmp_path_factory.mktemp("large") / "project"
    for number in range(2_001):
        folder = project / f"skills/part-{number:04}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: part-{number:04}\ndescription: Number {number}. Use for it.\n---\nx\n"
        )
    return project


def _doctor(project, detector):
    made = Satchel.for_project(project, trust="all", builtin=False)
    found = Satchel(made.library, made.settings, detector=detector).problems(deep=True)
    return {problem.code: problem for problem in found if problem.code.startswith("search-")}


@pytest.mark.timeout(60)
def test_a_large_library_without_an_index_is_told_what_to_type(large):
    found = _doctor(large, Scripted(held=12))
    assert list(found) == ["search-unindexed"]
    problem = found["search-unindexed"]
    assert problem.severity == "note"
    assert problem.message == "2,001 skills are offered, and the search index holds 12"
    assert "`satchel index`" in problem.fix
    assert _doctor(large, Scripted(held=2_001)) == {}
    assert _doctor(large, Plain()) == {}
    # One that is made of others is asked about the one that keeps the index.
    assert list(_doctor(large, SelectionPipeline(Scripted(held=12)))) == ["search-unindexed"]


# --- vectors -----------------------------------------------------------------------------


@pytest.fixture
def model(empty):
    folder = empty.home / "tiny"
    write_onnx(folder)
    return folder


@pytest.mark.req("C10")
def test_a_model_is_shown_and_tried(empty, model):
    (empty.home / ".config/satchel").mkdir(parents=True)
    (empty.home / ".config/satchel/config.toml").write_text('vectors = "~/tiny"\n')
    assert empty.run("vectors").out == "~/tiny\n"
    assert json.loads(empty.run("vectors", "--json").out) == {"setting": "~/tiny"}
    tried = empty.run("vectors", "check", "merge the files", "merge the files")
    assert (tried.status, tried.out) == (0, "1.000\n")
    assert "12 numbers a text" in tried.err


def test_without_a_model_words_alone_are_compared(empty):
    done = empty.run("vectors")
    assert (done.status, done.out) == (0, "")
    assert "words alone" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("check",), 2, "`TEXT` is missing"),
        (("check", "one"), 2, "The second text is missing: two are compared"),
        (("check", "one", "two"), 2, "No model is set"),
        (("check", "one", "two", "three", "--model", "m"), 2, "does not take `three`"),
        (("check", "one", "two", "--model", "unknown"), 2, "no whole path"),
        (("check", "one", "two", "--model", "~/unknown"), 3, "There is no folder"),
        (("show", "\x1b[31mmore"), 2, "does not take `"),
        (("frobnicate",), 2, "`frobnicate`"),
    ],
)
def test_invalid_arguments_of_vectors(empty, words, status, message):
    done = empty.run("vectors", *words)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "hint: " in done.err
    assert "\x1b" not in done.err
