"""A BERT as an ONNX graph says what the same BERT says in plain arithmetic."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from tokenizers import Tokenizer

from satchel.detect.vectors.convert import ALIKE, convert, is_convertible
from satchel.detect.vectors.onnx_model import OnnxEmbedder
from satchel.errors import ModelFailed, SettingsError
from tiny_models import HEADS, LAYERS, SIZE, bert_weights, write_bert, write_tensors

TEXTS = ["merge the pdf files", "draw a chart of the garden in summer", "cat", "the " * 60]


def _by_hand(weights, ids) -> np.ndarray:
    """One text through a BERT, with nothing but numpy."""

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        parts = [
            linear(x, f"{name}attention.self.{part}").reshape(len(ids), HEADS, -1)
            for part in ("query", "key", "value")
        ]
        heads = []
        for head in range(HEADS):
            query, key, value = (part[:, head] for part in parts)
            near = query @ key.T / math.sqrt(SIZE // HEADS)
            near = np.exp(near - near.max(-1, keepdims=True))
            heads.append(near / near.sum(-1, keepdims=True) @ value)
        seen = linear(np.concatenate(heads, -1), f"{name}attention.output.dense")
        x = norm(x + seen, f"{name}attention.output.LayerNorm")
        wide = linear(x, f"{name}intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = norm(x + linear(wide, f"{name}output.dense"), f"{name}output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def _expected(folder, texts) -> np.ndarray:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(40)
    weights = bert_weights()
    return np.array([_by_hand(weights, tokenizer.encode(text).ids) for text in texts])


@pytest.mark.req("C10")
def test_the_converted_model_says_what_the_arithmetic_says(bert, tmp_path):
    told: list[str] = []
    done = convert(str(bert), str(tmp_path / "out"), name="tiny", tell=told.append)
    assert done.dimensions == SIZE
    assert done.alike >= ALIKE
    assert len(told) >= 3
    found = OnnxEmbedder(done.folder).embed(TEXTS)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert (found * _expected(bert, TEXTS)).sum(1).min() > 0.97
    assert sorted(os.listdir(done.folder)) == [
        "model.onnx", "satchel.json", "sentence_bert_config.json", "tokenizer.json",
    ]  # fmt: skip
    assert json.loads((tmp_path / "out/satchel.json").read_text())["name"] == "tiny"
    assert sorted(os.listdir(tmp_path)) == ["out", "tiny-bert"]


def test_in_32_bits_the_graph_is_exact(bert, tmp_path):
    import onnx

    from satchel.detect.vectors.bert_graph import BertGraph, Shape

    graph = BertGraph((onnx, np), Shape(LAYERS, HEADS, SIZE, 1e-12), bert_weights())
    (bert / "model.onnx").write_bytes(graph.build())
    found = OnnxEmbedder(str(bert)).embed(TEXTS)
    assert np.abs(found - _expected(bert, TEXTS)).max() < 1e-4


def test_a_name_that_is_taken_is_replaced(bert, tmp_path):
    target = tmp_path / "out"
    convert(str(bert), str(target))
    (target / "left-over").write_text("x")
    convert(str(bert), str(target))
    assert "left-over" not in os.listdir(target)


def test_prefixed_tensors_are_understood(bert, tmp_path):
    weights = {f"bert.{name}": value for name, value in bert_weights().items()}
    write_tensors(bert / "model.safetensors", weights)
    assert convert(str(bert), str(tmp_path / "out")).alike >= ALIKE


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", '{"model_type": "mpnet"}', "only `bert` is converted"),
        ("config.json", '{"model_type": "bert"}', "cannot be read"),
        ("config.json", "{", "cannot be read"),
        ("config.json", '{"model_type": "bert", "hidden_act": "relu"}', "`hidden_act`"),
        (
            "config.json",
            '{"model_type":"bert","hidden_size":7,"num_attention_heads":2,"num_hidden_layers":1}',
            "impossible sizes",
        ),
        (
            "config.json",
            '{"model_type":"bert","hidden_size":48,"num_attention_heads":4,"num_hidden_layers":9}',
            "lacks the tensor",
        ),
        ("modules.json", "[]", "modules.json"),
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": true}', "not the mean"),
        ("model.safetensors", "nonsense", "model.safetensors"),
        ("tokenizer.json", "{}", "tokenizer.json"),
    ],
)
def test_another_kind_of_model_is_refused_and_leaves_nothing(bert, tmp_path, file, text, words):
    (bert / file).write_text(text)
    with pytest.raises(SettingsError, match=words) as caught:
        convert(str(bert), str(tmp_path / "out"))
    assert caught.value.hint
    assert os.listdir(tmp_path) == ["tiny-bert"]


def test_a_conversion_that_says_something_else_is_refused(tmp_path):
    # One huge weight a column leaves a single step of the byte for all the others.
    weights = bert_weights()
    for name, value in weights.items():
        if name.endswith("dense.weight") or (".self." in name and name.endswith("weight")):
            value[:, 0] = 60.0
    write_bert(tmp_path / "odd", weights)
    with pytest.raises(ModelFailed, match="says something else") as caught:
        convert(str(tmp_path / "odd"), str(tmp_path / "out"))
    assert "sentence-transformers:" in caught.value.hint
    assert os.listdir(tmp_path) == ["odd"]


def test_what_can_be_converted_is_seen_by_its_files(bert, table):
    assert is_convertible(str(bert))
    assert not is_convertible(str(table))
