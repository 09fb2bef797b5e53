"""Small models on disk, and an embedder that needs none."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_models import VOCAB, Letters, write_tensors, write_tokenizer


@pytest.fixture
def table(tmp_path):
    """A folder of model2vec."""
    folder = tmp_path / "table"
    folder.mkdir()
    values = np.random.default_rng(3).standard_normal((len(VOCAB), 24)).astype(np.float32)
    write_tensors(folder / "model.safetensors", {"embeddings": values})
    write_tokenizer(folder)
    return folder


@pytest.fixture
def letters():
    return Letters()
