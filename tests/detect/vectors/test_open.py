"""What a setting means, and what is said when it means nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from satchel.detect.vectors.models import kept_models, models_folder, packaged_model
from satchel.detect.vectors.open import open_embedder
from satchel.errors import NotFound, SettingsError
from tiny_models import write_bert

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def _run(code: str) -> str:
    """What a fresh Python prints."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def cache(bert, tmp_path):
    from satchel.detect.vectors.convert import convert

    folder = str(tmp_path / "cache")
    convert(str(bert), os.path.join(models_folder(folder), "tiny"), name="tiny")
    return folder


def test_a_converted_model_is_opened_by_its_name(cache):
    assert open_embedder("tiny", cache=cache).dimensions == 48
    assert [one.name for one in kept_models(cache)] == ["tiny"]


def test_a_name_is_never_a_folder_of_the_project(cache, tmp_path, monkeypatch):
    shutil.copytree(os.path.join(models_folder(cache), "tiny"), tmp_path / "project/planted")
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(NotFound, match="planted") as caught:
        open_embedder("planted", cache=cache)
    assert "vectors list" in caught.value.hint
    for spec in ("project/planted", "onnx:planted", "model2vec:planted"):
        with pytest.raises(SettingsError, match="no whole path"):
            open_embedder(spec, cache=cache)
    assert open_embedder("./planted").dimensions == 48


def test_a_home_may_be_written_short(cache, monkeypatch):
    monkeypatch.setenv("HOME", cache)
    assert open_embedder("~/vectors/models/tiny").dimensions == 48


@pytest.mark.parametrize("spec", ["/nowhere/at/all", "model2vec:/nowhere", "~/nowhere", "no-such"])
def test_what_is_not_there_is_said(spec, tmp_path):
    with pytest.raises(NotFound) as caught:
        open_embedder(spec, cache=str(tmp_path))
    assert caught.value.hint


@pytest.mark.parametrize("spec", ["", "a b", "x" * 300, "na\0me"])
def test_nonsense_is_refused(spec, tmp_path):
    with pytest.raises(SettingsError):
        open_embedder(spec, cache=str(tmp_path))


def test_a_folder_that_has_to_be_converted_says_how(bert):
    with pytest.raises(SettingsError) as caught:
        open_embedder(str(bert))
    assert caught.value.hint == f"Run `satchel vectors add {bert}`"
    with pytest.raises(SettingsError, match=r"no `model.onnx`"):
        open_embedder(str(bert.parent))


def test_packages_are_looked_into_without_being_imported(tmp_path, monkeypatch):
    write_bert(tmp_path / "some_model/weights")
    (tmp_path / "some_model/__init__.py").write_text("raise SystemExit('imported')")
    info = tmp_path / "some_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-model\nVersion: 1.0\n")
    files = ["some_model/__init__.py", "some_model/weights/model.safetensors"]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    monkeypatch.syspath_prepend(tmp_path)
    assert packaged_model("some-model") == str(tmp_path / "some_model/weights")
    with pytest.raises(NotFound) as caught:
        open_embedder("some-model", cache=str(tmp_path / "cache"))
    assert caught.value.hint == "Run `satchel vectors add some-model`"
    assert packaged_model("pytest") is None
    assert packaged_model("no-such-package") is None


def test_no_cache_folder_is_no_folder_of_the_project():
    with pytest.raises(SettingsError, match="no cache folder"):
        models_folder("")


@pytest.mark.parametrize(
    ("module", "statement", "line"),
    [
        ("numpy", "open_embedder('model2vec:{table}')", 'pip install "satchel[semantic]"'),
        ("tokenizers", "open_embedder('model2vec:{table}')", 'pip install "satchel[semantic]"'),
        ("onnxruntime", "open_embedder('onnx:{table}')", 'pip install "satchel[semantic]"'),
        ("onnx", "convert('{bert}', '{bert}-out')", 'pip install "satchel[convert]"'),
        (
            "sentence_transformers",
            "open_embedder('sentence-transformers:{bert}')",
            "pip install sentence-transformers",
        ),
    ],
)
def test_a_missing_package_says_its_line(module, statement, line, table, bert):
    code = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        "from satchel.detect.vectors.convert import convert\n"
        "from satchel.detect.vectors.open import open_embedder\n"
        "from satchel.errors import MissingExtra\n"
        f"try: {statement.format(table=table, bert=bert)}\n"
        "except MissingExtra as exc: print(exc.hint)\n"
    )
    assert line in _run(code)


def test_nothing_heavy_is_imported_before_a_model_is_opened():
    code = (
        "import sys, satchel.detect.vectors, satchel.detect.vectors.open\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'urllib.request', 'json'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert _run(code).strip() == "[]"
