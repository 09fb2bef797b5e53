"""Small models made on the spot: an ONNX lookup, a table of words, and a plain embedder."""

from __future__ import annotations

import json
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

# fmt: off
WORDS = (
    "a", "an", "the", "of", "to", "in", "on", "for", "and", "or", "is", "are", "with", "me", "my",
    "you", "your", "it", "this", "that", "merge", "join", "split", "fill", "form", "forms", "file",
    "files", "pdf", "page", "pages", "write", "read", "review", "code", "test", "tests", "draw",
    "chart", "plan", "dinner", "week", "translate", "letter", "server", "update", "slow", "query",
    "index", "meeting", "notes", "table", "image", "photo", "music", "trial", "cat", "dog", "mat",
    "rug", "house", "garden", "water", "fire", "summer", "winter",
)
# fmt: on
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *(f"##{end}" for end in ("s", "ed", "ing"))]
SIZE = 12


def write_tensors(path, tensors: dict[str, np.ndarray]) -> None:
    """A `.safetensors` file, byte by byte."""
    kinds = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32"}
    table, data = {}, b""
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value).tobytes()
        table[name] = {
            "dtype": kinds[str(value.dtype)],
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    head = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def write_tokenizer(folder, vocab=VOCAB) -> None:
    ids = {word: at for at, word in enumerate(vocab)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(folder / "tokenizer.json"))


def write_onnx(
    folder, *, inputs=("input_ids", "attention_mask"), pooled=False, rows=0
) -> np.ndarray:
    """A folder with a model that looks up one vector of 12 numbers a token; its table."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(5).standard_normal((rows or len(VOCAB), SIZE)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["tokens"])]
    output, sides = "tokens", ["b", "t", SIZE]
    if pooled:
        nodes.append(helper.make_node("ReduceMax", ["tokens", "axis"], ["pooled"], keepdims=0))
        output, sides = "pooled", ["b", SIZE]
    constants = [onnx.numpy_helper.from_array(table, "table")]
    constants.append(onnx.numpy_helper.from_array(np.array([1]), "axis"))
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "t"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, sides)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    write_tokenizer(folder)
    return table


class Letters:
    """An embedder that counts letters; it reads Latin alone, and says what it was asked."""

    hurrying = None

    def __init__(self, name: str = "letters-1", dimensions: int = 64) -> None:
        self.id = name
        self.dimensions = dimensions
        self.asked: list[str] = []
        self.broken: Exception | None = None

    def covers(self, text: str) -> bool:
        return text.isascii()

    def embed(self, texts):
        if self.broken is not None:
            raise self.broken
        self.asked += texts
        made = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for at in range(len(text) - 1):
                made[row, (ord(text[at]) * 31 + ord(text[at + 1])) % self.dimensions] += 1
            made[row] -= made[row].mean()
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)
