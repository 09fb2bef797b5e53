"""The commands below `config`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from http_answers import answering, reply
from needs import needs
from satchel import Satchel
from satchel.settings import SETTINGS


def test_the_index_is_built_once_and_then_updated(terminal):
    done = terminal.run("search", "--build-index", "--json")
    assert done.status == 0, done.err
    first = json.loads(done.out)
    assert first["skills"] == 4
    assert first["engine"] in {"memory", "tantivy"}
    again = json.loads(terminal.run("search", "--build-index", "--json").out)
    assert again["skills"] == 4
    found = json.loads(terminal.run("search", "review", "--json").out)
    assert found["skills"][0]["name"] == "code-review"


@pytest.mark.req("C10")
@pytest.mark.timeout(60)
def test_embeddings_are_counted_and_kept(empty):
    def embed(handler) -> None:
        texts = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))["input"]
        data = [{"index": at, "embedding": [len(one), 1]} for at, one in enumerate(texts)]
        reply(handler, 200, json.dumps({"data": data}).encode())

    for name in ("cat", "files"):
        empty.skill(f"skills/{name}", f"---\nname: {name}\ndescription: of {name}\n---\nBody\n")
    with answering(embed) as host:
        address = f"http://{host}/v1/embeddings#model=m"
        on = {"SATCHEL_EMBEDDINGS": address, "SATCHEL_TRUST": "all"}
        done = empty.run("search", "--build-index", **on)
        assert done.status == 0, done.err
        assert done.out.startswith("2 skills")
        assert f"embeddings: 2 skills ({address})" in done.out
        (kept,) = empty.home.glob(".cache/satchel/search/*/vectors/*/*.npy")
        empty.run("search", "--build-index", **on)
        assert kept.exists()
        result = json.loads(empty.run("search", "--build-index", "--json", **on).out)
    assert result["embedded"] == 2


def test_a_model_that_cannot_be_opened_is_an_error(terminal):
    done = terminal.run("search", "--build-index", SATCHEL_EMBEDDINGS="~/no-such-model")
    assert done.status == 2
    assert "`~/no-such-model` is not valid" in done.err


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
def test_doctor_names_the_extra_for_a_large_library_without_tantivy(large, monkeypatch):
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
    files = empty.run("config", "list", COLUMNS="").err
    assert re.search(r"^user: .*config\.toml\nproject: satchel\.toml$", files, re.MULTILINE)
    assert _settings(empty)["model"]["from"] == ""
    assert empty.run("config", "set", "model", "test:one").status == 0
    assert _settings(empty)["model"] == {
        "name": "model", "value": "test:one", "from": "config.toml",
    }  # fmt: skip
    assert empty.run("config", "list", "model").out == "test:one\n"
    assert _settings(empty, SATCHEL_MODEL="test:two")["model"]["from"] == "SATCHEL_MODEL"
    done = empty.run("config", "set", "exclude", "a-*", "b", "--scope", "project")
    assert done.status == 0, done.err
    assert (empty.project / "satchel.toml").read_text() == 'exclude = ["a-*", "b"]\n'
    assert _settings(empty)["exclude"]["from"] == "satchel.toml"
    assert empty.run("config", "list", "exclude").out == "a-*, b\n"
    assert (
        empty.run("config", "set", "exclude", "a-*,c", "--scope", "project").status == 0
    )  # as in SATCHEL_EXCLUDE
    assert empty.run("config", "list", "exclude").out == "a-*, c\n"
    assert empty.run("config", "set", "model").status == 0
    assert _settings(empty)["model"]["from"] == ""


@pytest.mark.parametrize(
    ("variable", "own", "project", "trust", "origin"),
    [
        ("all", "", "locked", "locked", "satchel.toml"),
        ("ask", "", "all", "ask", "SATCHEL_TRUST"),
        ("ask", "locked", "ask", "ask", "SATCHEL_TRUST"),
        ("", "locked", "all", "locked", "config.toml"),
        ("", "", "all", "ask", ""),
    ],
)
def test_the_origin_of_trust_is_the_stricter_value(empty, variable, own, project, trust, origin):
    if own:
        empty.run("config", "set", "trust", own)
    (empty.project / "satchel.toml").write_text(f'trust = "{project}"\n')
    assert _settings(empty, SATCHEL_TRUST=variable)["trust"] == {
        "name": "trust", "value": trust, "from": origin,
    }  # fmt: skip


def test_the_origin_of_a_value_in_both_files_of_a_project_is_the_one_in_force(empty):
    (empty.project / "satchel.toml").write_text(
        'exclude = ["a"]\ntrust = "locked"\nstrict = false\n'
    )
    (empty.project / "pyproject.toml").write_text(
        '[tool.satchel]\nexclude = ["b"]\ntrust = "ask"\n'
    )
    empty.run("config", "set", "strict", "true")
    settings = _settings(empty)
    assert (settings["exclude"]["value"], settings["exclude"]["from"]) == (["b"], "pyproject.toml")
    assert settings["trust"]["from"] == "satchel.toml"
    assert (settings["strict"]["value"], settings["strict"]["from"]) == (True, "config.toml")


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
        (("list", "frobnicate"), 3, "There is no setting `frobnicate`"),
        (("set", "shortlist", "many"), 2, "must be a whole number that is at least 0"),
        (("set", "budget", "--", "-1"), 2, "must be a whole number that is at least 0"),
        (("set", "form", "yaml"), 2, "`form`"),
        (("set", "model", "x:y", "--scope", "project"), 4, "A project may not set `model`"),
    ],
)
def test_invalid_settings_are_refused(empty, words, status, message):
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
    "bwrap._BWRAP_FOLDERS = ()\n"
    "import satchel.runners.tiers as tiers\n"
    "tiers.TIERS = ('bwrap',)\n"
    "from satchel.cli.main import run\n"
    "sys.exit(run(['config', 'sandbox']))\n"
)


def test_a_missing_sandbox_is_the_first_line(empty):
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


_WITHOUT_OVERLAYS = (
    "import sys, satchel.runners.overlay as overlay\n"
    "missing = overlay.OverlaySupport(None, 'Operation not permitted')\n"
    "overlay.probe_overlay = lambda tier, state: missing\n"
    "from satchel.cli.main import run\n"
    "sys.exit(run(['config', 'sandbox']))\n"
)


def test_where_no_overlay_can_be_mounted_the_answer_names_what_to_install(empty):
    needs("bwrap")
    command, env = [sys.executable, "-c", _WITHOUT_OVERLAYS], empty.env(COLUMNS="200")
    done = subprocess.run(
        command, cwd=empty.project, env=env, capture_output=True, encoding="utf-8", check=False
    )
    assert "programs that may write are refused: Operation not permitted" in done.stderr
    assert "hint: Install bubblewrap 0.11 or newer, or permit user namespaces" in done.stderr
