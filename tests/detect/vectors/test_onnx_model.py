"""A folder with an ONNX file: several shapes of model, and folders that are none."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest

from satchel.detect.embeddings import open_embedder
from satchel.detect.embeddings.local_model import OnnxEmbedder
from satchel.errors import ModelFailed, SettingsError
from tiny_models import SIZE, VOCAB, write_onnx, write_tokenizer


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
    assert OnnxEmbedder(str(tmp_path / "m"), tokens=16).id != first.id
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
        (lambda folder: (folder / "sentence_bert_config.json").write_text("{"), "sentence_bert"),
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
