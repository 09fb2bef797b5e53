"""Models in a folder: what the setting may name, several shapes of model, and covered scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from satchel.detect.embeddings import open_embedder
from satchel.detect.embeddings.local_model import OnnxEmbedder, covered_scripts
from satchel.errors import ModelFailed, NotFound, SettingsError
from tiny_models import SIZE, VOCAB, write_onnx, write_tokenizer


@pytest.fixture
def model(tmp_path):
    """A folder with an ONNX model."""
    write_onnx(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("more", [(), ("token_type_ids",)])
def test_vectors_of_tokens_are_averaged(tmp_path, more):
    table = write_onnx(tmp_path / "m", inputs=("input_ids", "attention_mask", *more))
    found = OnnxEmbedder(str(tmp_path / "m")).embed(["cat dog"])[0]
    ids = [2, VOCAB.index("cat"), VOCAB.index("dog"), 3]
    mean = table[ids].mean(0)
    assert np.allclose(found, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_pooled_output_is_taken_as_it_is(tmp_path):
    table = write_onnx(tmp_path / "m", pooled=True)
    found = OnnxEmbedder(str(tmp_path / "m")).embed(["cat dog"])[0]
    most = table[[2, VOCAB.index("cat"), VOCAB.index("dog"), 3]].max(0)
    assert np.allclose(found, most / np.linalg.norm(most), atol=1e-5)


def test_a_vector_does_not_depend_on_its_neighbours_or_on_threads(tmp_path):
    folder = str(tmp_path / "m")
    write_onnx(tmp_path / "m")
    texts = ["cat", "merge the pdf files", "draw a chart of the garden in summer and winter"] * 7
    alone = np.array([OnnxEmbedder(folder).embed([text])[0] for text in texts[:3]] * 7)
    assert np.array_equal(OnnxEmbedder(folder, threads=1).embed(texts), alone)
    assert np.array_equal(OnnxEmbedder(folder, threads=3).embed(texts), alone)


def test_the_id_follows_the_bytes(tmp_path):
    write_onnx(tmp_path / "m")
    first = OnnxEmbedder(str(tmp_path / "m"))
    assert OnnxEmbedder(str(tmp_path / "m")).id == first.id
    write_tokenizer(tmp_path / "m", [*VOCAB[:-1], "##er"])
    assert OnnxEmbedder(str(tmp_path / "m")).id != first.id


def test_the_usual_places_and_names_are_found(tmp_path):
    write_onnx(tmp_path / "m")
    expected = OnnxEmbedder(str(tmp_path / "m")).id
    (tmp_path / "m/onnx").mkdir()
    shutil.move(tmp_path / "m/model.onnx", tmp_path / "m/onnx/model_quantized.onnx")
    assert open_embedder(str(tmp_path / "m")).id == expected
    assert open_embedder(f"onnx:{tmp_path}/m").id == expected
    shutil.move(tmp_path / "m/onnx/model_quantized.onnx", tmp_path / "m/onnx/one.onnx")
    shutil.copy(tmp_path / "m/onnx/one.onnx", tmp_path / "m/onnx/two.onnx")
    with pytest.raises(SettingsError, match=r"no `model.onnx`"):
        open_embedder(str(tmp_path / "m"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b""), "model.onnx"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"\x08\x09" * 900), "model.onnx"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("[1"), "tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_bytes(b"\xff\xfe"), "tokenizer.json"),
        (
            lambda folder: write_onnx(folder, inputs=("input_ids", "pixel_values")),
            "no usable vectors",
        ),
        (lambda folder: write_onnx(folder, rows=3), "cannot be used"),
    ],
)
def test_a_folder_that_is_no_model_is_told_apart(tmp_path, spoil, words):
    folder = tmp_path / "m"
    write_onnx(folder)
    spoil(folder)
    with pytest.raises(SettingsError, match=words) as caught:
        OnnxEmbedder(str(folder))
    assert caught.value.hint


def test_a_model_that_gives_no_numbers_fails_when_it_does(tmp_path):
    table = write_onnx(tmp_path / "m")
    table[VOCAB.index("fire")] = np.nan
    model = onnx.load(tmp_path / "m/model.onnx")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(model, tmp_path / "m/model.onnx")
    opened = OnnxEmbedder(str(tmp_path / "m"))
    assert opened.embed(["cat"]).shape == (1, SIZE)
    with pytest.raises(ModelFailed, match="no usable vectors"):
        opened.embed(["fire"])


# --- the setting --------------------------------------------------------------------------


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _run(code: str) -> str:
    """What a fresh Python prints."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_a_name_is_never_a_folder_of_the_project(tmp_path, monkeypatch):
    write_onnx(tmp_path / "project/planted")
    monkeypatch.chdir(tmp_path / "project")
    for spec in ("planted", "project/planted", "onnx:planted"):
        with pytest.raises(SettingsError, match="not an absolute path"):
            open_embedder(spec)
    assert open_embedder("./planted").dimensions == 12
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_embedder("~/project/planted").dimensions == 12


@pytest.mark.parametrize("spec", ["/nowhere/at/all", "onnx:/nowhere", "~/nowhere"])
def test_what_is_not_there_is_said(spec):
    with pytest.raises(NotFound) as caught:
        open_embedder(spec)
    assert caught.value.hint


@pytest.mark.parametrize("spec", ["", "a b", "x" * 300, "na\0me", "sentence-transformers:/tmp"])
def test_nonsense_is_refused(spec):
    with pytest.raises(SettingsError):
        open_embedder(spec)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"no `model.onnx`"):
        open_embedder(str(tmp_path))


@pytest.mark.parametrize("module", ["numpy", "tokenizers", "onnxruntime"])
def test_a_missing_package_says_its_line(module, model):
    code = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        "from satchel.detect.embeddings import open_embedder\n"
        "from satchel.errors import MissingExtra\n"
        f"try: open_embedder({str(model)!r})\n"
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


# --- scripts ------------------------------------------------------------------------------


CHINESE = "把几个 PDF 合并成一个文件"
JAPANESE = "複数のPDFをひとつにまとめる"
KOREAN = "여러 PDF 파일을 하나로 합치기"
RUSSIAN = "Объединить несколько файлов PDF в один"


@pytest.mark.req("C10")
@pytest.mark.parametrize("text", [CHINESE, JAPANESE, KOREAN, RUSSIAN, "ελληνικά", "العربية"])
def test_an_english_model_is_off_for_other_scripts(model, text):
    assert not open_embedder(str(model)).covers(text)


@pytest.mark.parametrize(
    "text",
    [
        "merge the files",
        "merge the pdf files 😀 — “now”",
        "merge the files of the house in the garden, 合并",
        "",
        "12345 !!",
    ],
)
def test_english_with_a_little_of_something_else_is_covered(model, text):
    assert open_embedder(str(model)).covers(text)


def test_words_that_are_all_unknown_are_not_covered(model):
    assert not open_embedder(str(model)).covers("zqx vvvq kkkj wwwz")


def test_single_letters_of_a_script_do_not_make_it_covered():
    english = [f"word{at}" for at in range(5_000)] + [chr(at) for at in range(0x430, 0x450)]
    english += [chr(0x4E00 + at) for at in range(400)]
    assert covered_scripts(english) == {"LATIN"}


def test_byte_level_vocabularies_are_read_as_text():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {byte: chr(byte) for byte in visible} | {
        byte: chr(256 + at) for at, byte in enumerate(hidden)
    }
    words = [f"при{chr(0x430 + at % 32)}{chr(0x430 + at // 32)}" for at in range(1_000)]
    pieces = ["Ġ" + "".join(letters[byte] for byte in word.encode()) for word in words]
    assert "CYRILLIC" in covered_scripts([*pieces, *(f"word{at}" for at in range(2_000))])
