"""Small models made on the spot: a BERT of two layers, a table of words, and a plain embedder."""

from __future__ import annotations

import json
import struct

import numpy as np
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
SIZE, HEADS, LAYERS, WIDE, PLACES = 48, 4, 2, 96, 64


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


def bert_weights(seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.15).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": some(len(VOCAB), SIZE) * 4,
        "embeddings.position_embeddings.weight": some(PLACES, SIZE),
        "embeddings.token_type_embeddings.weight": some(2, SIZE),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        for part in ("attention.self.query", "attention.self.key", "attention.self.value",
                     "attention.output.dense"):  # fmt: skip
            weights[f"{name}{part}.weight"] = some(SIZE, SIZE)
            weights[f"{name}{part}.bias"] = some(SIZE)
        weights[f"{name}intermediate.dense.weight"] = some(WIDE, SIZE)
        weights[f"{name}intermediate.dense.bias"] = some(WIDE)
        weights[f"{name}output.dense.weight"] = some(SIZE, WIDE)
        weights[f"{name}output.dense.bias"] = some(SIZE)
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
    for name in norms:
        weights[f"{name}.weight"] = 1 + some(SIZE)
        weights[f"{name}.bias"] = some(SIZE)
    return weights


def write_bert(folder, weights=None, **config) -> None:
    """A folder as sentence-transformers keeps it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", weights or bert_weights())
    write_tokenizer(folder)
    about = {
        "model_type": "bert",
        "hidden_size": SIZE,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        **config,
    }
    (folder / "config.json").write_text(json.dumps(about))
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"path": f"{at}_{kind}" if at else "", "type": f"sentence_transformers.models.{kind}"}
        for at, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')


class Letters:
    """An embedder that counts letters; it reads Latin alone, and says what it was asked."""

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
