"""A model2vec folder: one vector a token, and a text is the mean of its tokens.

It is a table and a tokenizer, so it is read here directly: the package `model2vec` gives the same
numbers and would bring five more.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel._optional import require
from satchel.detect.vectors.base import EXTRA, MAX_DIMENSIONS, normalised, unusable
from satchel.detect.vectors.coverage import Vocabulary
from satchel.detect.vectors.onnx_model import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.vectors.base import Matrix

TOKENS = 512
_CHARACTERS = 600
"""Of a long text only the beginning is averaged: the mean of everything is near to anything."""

_LOOKED_AT = 256
"""Rows of the table that are looked at when it is opened."""


class StaticEmbedder:
    """Averages the vectors of tokens."""

    def __init__(self, folder: str) -> None:
        """Open a model.

        Args:
            folder: Holds `model.safetensors` with `embeddings`, and `tokenizer.json`.

        Raises:
            SettingsError: the folder holds no usable model.
            MissingExtra: a package is missing.
        """
        self._np: Any = require("numpy", EXTRA)
        path = os.path.join(folder, "model.safetensors")
        if not os.path.isfile(path):
            raise unusable(folder, say("it has no `{name}`", name="model.safetensors"))
        self.folder = folder
        tensors = read_tensors(path)
        self._table: Any = tensors.get("embeddings", tensors.get("embedding.weight"))
        self._weights = tensors.get("weights")
        self._mapping = tensors.get("mapping")
        self._tokenizer, self._unknown = open_tokenizer(folder, TOKENS)
        self._vocabulary = Vocabulary(self._tokenizer, self._unknown)
        self._check(self._tokenizer.get_vocab_size())
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        with open(os.path.join(folder, "tokenizer.json"), "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        self._id = f"static-{digest.hexdigest()[:24]}"

    def _check(self, tokens: int) -> None:
        """Every token must have a row: a file that says otherwise is not this tokenizer's."""
        table, weights, mapping = self._table, self._weights, self._mapping
        if table is None or table.ndim != 2 or not 0 < table.shape[1] <= MAX_DIMENSIONS:
            raise unusable(self.folder, say("it has no table of vectors"))
        rows = table.shape[0]
        step = max(1, rows // _LOOKED_AT)
        if not table[::step].any():
            raise unusable(self.folder, say("its vectors are nothing but zeros"))
        fits = rows >= tokens
        if mapping is not None:
            fits = mapping.ndim == 1 and mapping.dtype.kind == "i" and len(mapping) >= tokens
            fits = fits and int(mapping.min()) >= 0 and int(mapping.max()) < rows
        if weights is not None:
            fits = fits and weights.ndim == 1 and len(weights) >= tokens
        if not fits:
            raise unusable(self.folder, say("its table and its tokenizer do not fit together"))

    @property
    def id(self) -> str:
        """By the bytes of the table and of the tokenizer."""
        return self._id

    @property
    def dimensions(self) -> int:
        """How long a vector is."""
        return self._table.shape[1]

    def covers(self, text: str) -> bool:
        """Whether the vocabulary has the words of a text."""
        return self._vocabulary.covers(text)

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One vector for each text; zeros when none of its tokens is known."""
        np = self._np
        made = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            found = self._tokenizer.encode(text[:_CHARACTERS], add_special_tokens=False).ids
            ids = [token for token in found if token != self._unknown]
            if not ids:
                continue
            vectors = self._table[ids if self._mapping is None else self._mapping[ids]]
            vectors = vectors.astype(np.float32)
            if self._weights is not None:
                vectors = vectors * self._weights[ids].astype(np.float32)[:, None]
            made[row] = vectors.mean(axis=0)
        return normalised(made, len(texts), self.dimensions, os.path.basename(self.folder))


_MAX_TABLE = 64 << 20
_KINDS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "i1",
    "U8": "u1",
}


def read_tensors(path: str) -> dict[str, Any]:
    """Every tensor of a file by name, mapped from disk where its numbers can stay as they are.

    Raises:
        SettingsError: it is no such file, or a damaged one.
    """
    np = require("numpy", EXTRA)
    try:
        begin, table = _read_table(path)
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=begin)
        return {
            name: _tensor(np, data, row) for name, row in table.items() if name != "__metadata__"
        }
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
        name = os.path.basename(path)
        raise unusable(
            os.path.dirname(path),
            say("`{name}` cannot be read ({reason})", name=name, reason=exc),
        ) from exc


def _read_table(path: str) -> tuple[int, dict[str, Any]]:
    """Where the numbers begin, and the table before them."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MAX_TABLE, os.path.getsize(path) - 8):
            raise ValueError("its table is longer than the file")
        table: Any = json.loads(file.read(length))
    if not isinstance(table, dict):
        raise TypeError("its table is none")
    return 8 + length, cast("dict[str, Any]", table)


def _tensor(np: Any, data: Any, row: dict[str, Any]) -> Any:
    begin, end = row["data_offsets"]
    kind, shape = row["dtype"], tuple(row["shape"])
    if kind not in _KINDS:
        raise ValueError(f"it has numbers of the kind {kind!s:.10}")
    dtype = np.dtype(_KINDS[kind])
    if any(not isinstance(side, int) or side < 0 for side in shape):
        raise ValueError("a tensor has an impossible shape")
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("a tensor lies outside the file")
    made = data[begin:end].view(dtype).reshape(shape)
    if kind == "BF16":  # the upper half of a float32
        made = (made.astype(np.uint32) << 16).view(np.float32)
    return made
