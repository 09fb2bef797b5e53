"""A table of vectors: the mean of the words, with weights and a mapping where there are some."""

from __future__ import annotations

import numpy as np
import pytest

from satchel.detect.embeddings import open_embedder
from satchel.detect.embeddings.local_model import StaticEmbedder, read_tensors
from satchel.errors import SettingsError
from tiny_models import VOCAB, write_tensors, write_tokenizer


@pytest.fixture
def table(tmp_path):
    """A folder of model2vec."""
    folder = tmp_path / "table"
    folder.mkdir()
    values = np.random.default_rng(3).standard_normal((len(VOCAB), 24)).astype(np.float32)
    write_tensors(folder / "model.safetensors", {"embeddings": values})
    write_tokenizer(folder)
    return folder


def _ids(*words: str) -> list[int]:
    return [VOCAB.index(word) for word in words]


def _unit(vector):
    return vector / np.linalg.norm(vector)


def test_a_text_is_the_mean_of_its_words(table):
    rows = read_tensors(str(table / "model.safetensors"))["embeddings"]
    model = open_embedder(f"model2vec:{table}")
    assert model.dimensions == 24
    found = model.embed(["merge files", "cat [UNK]", "", "qqq"])
    assert np.allclose(found[0], _unit(rows[_ids("merge", "files")].mean(0)), atol=1e-6)
    assert np.allclose(found[1], _unit(rows[_ids("cat")].mean(0)), atol=1e-6)
    assert not found[2:].any()


def test_weights_and_a_mapping_are_used(table):
    random = np.random.default_rng(8)
    rows = random.standard_normal((9, 24)).astype(np.float16)
    mapping = random.integers(0, 9, len(VOCAB))
    weights = random.random(len(VOCAB)).astype(np.float32)
    write_tensors(
        table / "model.safetensors", {"embeddings": rows, "mapping": mapping, "weights": weights}
    )
    ids = _ids("cat", "dog", "garden")
    expected = (rows[mapping[ids]].astype(np.float32) * weights[ids][:, None]).mean(0)
    found = StaticEmbedder(str(table)).embed(["cat dog garden"])[0]
    assert np.allclose(found, _unit(expected), atol=1e-5)


def test_the_id_follows_the_bytes(table):
    before = StaticEmbedder(str(table)).id
    write_tensors(
        table / "model.safetensors", {"embeddings": np.ones((len(VOCAB), 24), np.float32)}
    )
    assert StaticEmbedder(str(table)).id != before


@pytest.mark.parametrize(
    "tensors",
    [
        {"something": np.ones((9, 9), np.float32)},
        {"embeddings": np.ones(len(VOCAB), np.float32)},
        {"embeddings": np.ones((3, 24), np.float32)},
        {"embeddings": np.ones((3, 24), np.float32), "mapping": np.full(len(VOCAB), 3)},
        {"embeddings": np.ones((3, 24), np.float32), "mapping": np.full(len(VOCAB), -1)},
        {"embeddings": np.ones((len(VOCAB), 24), np.float32), "weights": np.ones(2, np.float32)},
    ],
)
def test_a_table_that_does_not_fit_is_refused(table, tensors):
    write_tensors(table / "model.safetensors", tensors)
    with pytest.raises(SettingsError, match="no usable vectors"):
        StaticEmbedder(str(table))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        b"\x02\0\0\0\0\0\0\0[]",
        b"\x02\0\0\0\0\0\0\0{",
        b'\x31\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}',
        b'\x31\0\0\0\0\0\0\0{"a":{"dtype":"Q99","shape":[1],"data_offsets":[0,4]}} 1234',
        b'\x32\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}1234',
        b'\x30\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":7,"data_offsets":[0,4]}}  1234',
    ],
)
def test_a_damaged_file_is_told_apart(table, data):
    (table / "model.safetensors").write_bytes(data)
    with pytest.raises(SettingsError, match=r"model.safetensors"):
        StaticEmbedder(str(table))


def test_a_huge_table_of_contents_is_not_read(table):
    (table / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(SettingsError, match="longer than the file"):
        StaticEmbedder(str(table))


def test_a_table_of_zeros_is_refused(table):
    zeros = np.zeros((len(VOCAB), 24), np.float32)
    write_tensors(table / "model.safetensors", {"embeddings": zeros})
    with pytest.raises(SettingsError, match="no usable vectors"):
        StaticEmbedder(str(table))
