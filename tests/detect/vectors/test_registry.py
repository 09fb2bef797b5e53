"""What the setting `embeddings` means, and what is said when it means nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from satchel.detect.embeddings import open_embedder
from satchel.errors import NotFound, SettingsError
from tiny_models import write_onnx

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def _run(code: str) -> str:
    """What a fresh Python prints."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_a_name_is_never_a_folder_of_the_project(tmp_path, monkeypatch):
    write_onnx(tmp_path / "project/planted")
    monkeypatch.chdir(tmp_path / "project")
    for spec in ("planted", "project/planted", "onnx:planted", "model2vec:planted"):
        with pytest.raises(SettingsError, match="not an absolute path"):
            open_embedder(spec)
    assert open_embedder("./planted").dimensions == 12
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_embedder("~/project/planted").dimensions == 12


@pytest.mark.parametrize("spec", ["/nowhere/at/all", "model2vec:/nowhere", "~/nowhere"])
def test_what_is_not_there_is_said(spec):
    with pytest.raises(NotFound) as caught:
        open_embedder(spec)
    assert caught.value.hint


@pytest.mark.parametrize("spec", ["", "a b", "x" * 300, "na\0me", "sentence-transformers:/tmp"])
def test_nonsense_is_refused(spec):
    with pytest.raises(SettingsError):
        open_embedder(spec)


def test_a_folder_without_a_model_is_refused(tmp_path, table):
    with pytest.raises(SettingsError, match=r"no `model.onnx`"):
        open_embedder(str(tmp_path))
    shutil.copy(table / "tokenizer.json", tmp_path)
    with pytest.raises(SettingsError, match=r"no `model.onnx`"):
        open_embedder(f"onnx:{tmp_path}")


@pytest.mark.parametrize(
    ("module", "kind"),
    [("numpy", "model2vec"), ("tokenizers", "model2vec"), ("onnxruntime", "onnx")],
)
def test_a_missing_package_says_its_line(module, kind, table):
    code = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        "from satchel.detect.embeddings import open_embedder\n"
        "from satchel.errors import MissingExtra\n"
        f"try: open_embedder('{kind}:{table}')\n"
        "except MissingExtra as exc: print(exc.hint)\n"
    )
    assert 'pip install "satchel[semantic]"' in _run(code)


def test_nothing_heavy_is_imported_before_a_model_is_opened():
    code = (
        "import sys, satchel.detect.embeddings\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'urllib.request', 'json'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert _run(code).strip() == "[]"
