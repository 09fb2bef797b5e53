"""The commands below `config`, and the diagnosis of a missing index."""

from __future__ import annotations

import json

import pytest

from satchel import Satchel
from satchel.detect.base import BaseDetector
from satchel.detect.pipeline import SelectionPipeline
from satchel.settings import SETTINGS
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
    done = terminal.run("config", "index", "--json")
    assert done.status == 0, done.err
    first = json.loads(done.out)
    assert first["skills"] == 4
    assert first["engine"] in {"memory", "tantivy"}
    again = json.loads(terminal.run("config", "index", "--json").out)
    assert again["skills"] == 4
    found = json.loads(terminal.run("search", "review", "--json").out)
    assert found["skills"][0]["name"] == "code-review"


@pytest.mark.req("C10")
@pytest.mark.timeout(60)
def test_vectors_are_counted_and_made_anew(empty):
    write_onnx(empty.home / "tiny")
    texts = {"cat": "the cat merge files", "files": "merge the files", "notes": "把文件合并起来"}
    for name, text in texts.items():
        empty.skill(f"skills/{name}", f"---\nname: {name}\ndescription: {text}\n---\nBody\n")
    on = {"SATCHEL_EMBEDDINGS": "~/tiny", "SATCHEL_TRUST": "all"}
    done = empty.run("config", "index", **on)
    assert done.status == 0, done.err
    assert done.out.startswith("3 skills")
    # The model does not read the third one: that is left to words.
    assert "embeddings: 2 skills (~/tiny)" in done.out
    lacking = "No embedding for `notes`: the model does not know this script"
    assert lacking in " ".join(done.err.split())
    (kept,) = empty.home.glob(".cache/satchel/search/*/vectors/*/*.npy")
    empty.run("config", "index", **on)
    assert kept.exists()
    told = json.loads(empty.run("config", "index", "--rebuild", "--json", **on).out)
    assert told["embedded"] == 2
    assert [one["name"] for one in told["without_vectors"]] == ["notes"]
    (again,) = empty.home.glob(".cache/satchel/search/*/vectors/*/*.npy")
    assert again != kept


def test_a_model_that_cannot_be_opened_is_no_silence(terminal):
    done = terminal.run("config", "index", SATCHEL_EMBEDDINGS="~/no-such-model")
    assert done.status == 3
    assert "There is no" in done.err
    assert "/no-such-model`" in done.err


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
    assert "`satchel config index`" in problem.fix
    assert _doctor(large, Scripted(held=2_001)) == {}
    assert _doctor(large, Plain()) == {}
    # One that is made of others is asked about the one that keeps the index.
    assert list(_doctor(large, SelectionPipeline(Scripted(held=12)))) == ["search-unindexed"]


# --- settings -----------------------------------------------------------------------------


def _settings(empty, **env) -> dict[str, dict[str, object]]:
    rows = json.loads(empty.run("config", "list", "--json", **env).out)
    return {row["name"]: row for row in rows}


def test_a_setting_is_shown_with_its_origin_and_changed(empty):
    assert set(_settings(empty)) == {setting.name for setting in SETTINGS}
    assert _settings(empty)["model"]["from"] == ""
    assert empty.run("config", "set", "model", "test:one").status == 0
    assert _settings(empty)["model"] == {
        "name": "model", "value": "test:one", "from": "config.toml",
    }  # fmt: skip
    assert empty.run("config", "get", "model").out == "test:one\n"
    assert _settings(empty, SATCHEL_MODEL="test:two")["model"]["from"] == "SATCHEL_MODEL"
    done = empty.run("config", "set", "exclude", "a-*", "b", "--scope", "project")
    assert done.status == 0, done.err
    assert (empty.project / "satchel.toml").read_text() == 'exclude = ["a-*", "b"]\n'
    assert _settings(empty)["exclude"]["from"] == "satchel.toml"
    assert empty.run("config", "get", "exclude").out == "a-*, b\n"
    assert empty.run("config", "set", "model").status == 0
    assert _settings(empty)["model"]["from"] == ""


@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        ("", ("shortlist", "5"), "shortlist = 5\n"),
        ("# mine\n", ("shortlist", "5"), "# mine\nshortlist = 5\n"),
        ("form = 'xml'  # so", ("shortlist", "5"), "form = 'xml'  # so\nshortlist = 5\n"),
        ("shortlist = 3\nform = 'xml'\n", ("shortlist", "5"), "shortlist = 5\nform = 'xml'\n"),
        ("tags = [\n  'a',\n]\nshortlist = 3\n", ("tags", "b"), 'tags = ["b"]\nshortlist = 3\n'),
        ("shortlist = 3\nform = 'xml'\n", ("shortlist",), "form = 'xml'\n"),
        ("# a\n\n# b\n[servers.x]\ncommand = 'x'\n", ("shortlist", "5"),
         "# a\n\nshortlist = 5\n# b\n[servers.x]\ncommand = 'x'\n"),
    ],
)  # fmt: skip
def test_a_setting_is_written_and_the_rest_of_the_file_stays(empty, before, words, after):
    path = empty.home / ".config/satchel/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(before)
    done = empty.run("config", "set", *words)
    assert done.status == 0, done.err
    assert path.read_text() == after


@pytest.mark.parametrize("before", ['"shortlist" = 3\n', "[shortlist]\n"])
def test_a_file_that_cannot_be_changed_safely_stays(empty, before):
    path = empty.home / ".config/satchel/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(before)
    done = empty.run("config", "set", "shortlist", "5", COLUMNS="")
    assert (done.status, path.read_text()) == (4, before)
    assert "Change it by hand: shortlist = 5" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("set", "modell", "x"), 3, "Did you mean `model`?"),
        (("get", "frobnicate"), 3, "There is no setting `frobnicate`"),
        (("set", "shortlist", "many"), 2, "must be a whole number"),
        (("set", "form", "yaml"), 2, "`form`"),
        (("set", "model", "x:y", "--scope", "project"), 4, "A project may not set `model`"),
    ],
)
def test_settings_that_cannot_be(empty, words, status, message):
    done = empty.run("config", *words)
    assert done.status == status
    assert message in done.err
    assert not (empty.home / ".config/satchel/config.toml").exists()
