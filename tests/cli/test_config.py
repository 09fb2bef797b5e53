"""The commands below `config`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from needs import needs
from satchel import Satchel
from satchel.settings import SETTINGS
from tiny_models import write_onnx


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
    (kept,) = empty.home.glob(".cache/satchel/search/*/vectors/*/*.npy")
    empty.run("config", "index", **on)
    assert kept.exists()
    told = json.loads(empty.run("config", "index", "--rebuild", "--json", **on).out)
    assert told["embedded"] == 2
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


@pytest.mark.timeout(60)
def test_a_large_library_without_tantivy_is_told_what_to_type(large, monkeypatch):
    satchel = Satchel.for_project(large, trust="all", builtin=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (problem,) = [one for one in satchel.problems(deep=True) if one.code.startswith("search-")]
    assert problem.severity == "note"
    assert problem.message == "2,001 skills are searched without `tantivy`"
    assert "satchel[search]" in problem.fix


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
        (("set", "shortlist", "many"), 2, "must be a whole number that is at least 0"),
        (("set", "form", "yaml"), 2, "`form`"),
        (("set", "model", "x:y", "--scope", "project"), 4, "A project may not set `model`"),
    ],
)
def test_settings_that_cannot_be(empty, words, status, message):
    done = empty.run("config", *words)
    assert done.status == status
    assert message in done.err
    assert not (empty.home / ".config/satchel/config.toml").exists()


# --- sandbox ------------------------------------------------------------------------------


def test_the_tiers_that_hold_are_named(empty):
    needs("bwrap")
    done = empty.run("config", "sandbox")
    assert done.status == 0, done.err
    assert done.err.splitlines()[0] == "✓ Tool skills run in the sandbox `bwrap`"
    assert "● bwrap" in done.err
    assert "● landlock" in done.err


def test_the_result_as_json(empty):
    needs("bwrap")
    done = empty.run("config", "sandbox", "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["chosen"] == "bwrap"
    tier = told["tiers"][0]
    assert tier["holds"] is True
    assert len(tier["attempts"]) >= 10
    assert "escaped" not in tier["attempts"].values()


_WITHOUT_BWRAP = (
    "import sys, satchel.runners.sandbox as bwrap\n"
    "bwrap._BWRAP_PLACES = ()\n"
    "import satchel.runners.tiers as tiers\n"
    "tiers.TIERS = ('bwrap',)\n"
    "from satchel.cli.main import run\n"
    "sys.exit(run(['config', 'sandbox']))\n"
)


def test_no_sandbox_is_the_first_thing_said(empty):
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_BWRAP],
        cwd=empty.project,
        env=empty.env(SATCHEL_SANDBOX="own"),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1
    first = "✗ No sandbox holds here; the setting `sandbox` is `own`"
    assert done.stderr.splitlines()[0] == first
    assert "bwrap: `bubblewrap` is not installed" in done.stderr
    assert "hint: Install bubblewrap" in done.stderr
