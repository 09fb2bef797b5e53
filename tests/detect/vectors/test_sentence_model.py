"""A folder of sentence-transformers: no code from it is run, and nothing is fetched."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from satchel.detect.vectors.sentence_model import SentenceEmbedder, check_is_data
from satchel.errors import ModelFailed, SettingsError

STAND_IN = """
import os
import numpy as np

class SentenceTransformer:
    def __init__(self, folder, **options):
        self.options = {**options, "offline": os.environ["HF_HUB_OFFLINE"]}
    def encode(self, texts, **options):
        if texts == ["break"]:
            raise RuntimeError("out of memory")
        return np.array([[len(text), 1.0] for text in texts])
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of that name which keeps what it was given: the real one would bring torch."""
    import sys

    (tmp_path / "lib/sentence_transformers").mkdir(parents=True)
    (tmp_path / "lib/sentence_transformers/__init__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    yield
    sys.modules.pop("sentence_transformers", None)


def test_the_package_is_asked_to_stay_offline_and_to_run_nothing(bert, package):
    model = SentenceEmbedder(str(bert))
    options = model._model.options  # noqa: SLF001
    assert options["local_files_only"] is True
    assert options["trust_remote_code"] is False
    assert options["model_kwargs"] == {"use_safetensors": True}
    assert options["offline"] == "1"
    assert "HF_HUB_OFFLINE" not in os.environ
    assert model.dimensions == 2
    assert np.allclose(np.linalg.norm(model.embed(["abc", "d"]), axis=1), 1)
    assert model.covers("merge the files")
    assert not model.covers("合并文件")
    with pytest.raises(ModelFailed, match="out of memory"):
        model.embed(["break"])


def test_the_id_follows_the_files(bert, package):
    before = SentenceEmbedder(str(bert)).id
    (bert / "config.json").write_text("{}")
    assert SentenceEmbedder(str(bert)).id != before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("modules.json", '[{"type": "my_module.Thing", "path": ""}]'),
        ("modules.json", '[{"type": "os.system"}]'),
        ("modules.json", '[{"type": "sentence_transformers.models.Dense", "path": ""}]'),
        ("modules.json", '[{"type": "sentence_transformers.models.Pooling", "path": "../up"}]'),
        ("modules.json", "[7]"),
        ("config.json", '{"auto_map": {"AutoModel": "modeling.Model"}}'),
        ("modeling.py", "print('hello')"),
        ("1_Pooling/weights.pkl", "x"),
    ],
)
def test_a_folder_that_brings_code_is_refused(bert, file, text, package):
    (bert / file).write_text(text)
    with pytest.raises(SettingsError, match="code of its own"):
        SentenceEmbedder(str(bert))


def test_a_folder_of_another_kind_is_refused(table):
    with pytest.raises(SettingsError, match=r"modules.json"):
        check_is_data(str(table))
    (table / "modules.json").write_text(json.dumps({}))
    with pytest.raises(SettingsError, match=r"modules.json"):
        check_is_data(str(table))
