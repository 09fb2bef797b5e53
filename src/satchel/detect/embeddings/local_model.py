"""Embedding models in a local folder: ONNX with `tokenizer.json`, or a model2vec table.

ONNX: each text is run alone. An 8-bit model rounds the texts of a batch together, so a vector would
depend on its neighbours (cosine down to 0.97), and a batch is hardly faster on a CPU. The session
uses one thread, which finishes a sentence sooner than threads that wait for each other; many texts
are distributed over several sessions' threads.

model2vec: one vector per token; the vector of a text is the mean of its tokens. The table is read
directly: the package `model2vec` returns the same numbers and adds five dependencies.

Script coverage: an English tokenizer contains the single letters of many scripts. It splits Russian
into letters and maps most Chinese characters to the unknown token, and the resulting vectors are
meaningless. A script counts as covered when the vocabulary contains word pieces in it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.detect.embeddings.base import EXTRA, MAX_DIMENSIONS, first_line, normalised, unusable
from satchel.errors import ModelFailed
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.detect.embeddings.base import Matrix

MAX_TOKENS = 128
"""About 600 characters; longer inputs cost time and hardly improve results."""
_MIN_PARALLEL_TEXTS = 8
_KNOWN = ("model.int8.onnx", "model_quantized.onnx", "model_int8.onnx", "model.onnx")
"""Names of the file, the smallest kind first."""
_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids"))


def find_onnx(folder: str) -> str | None:
    """The ONNX file of a folder, or of its subfolder `onnx`; None when there is none.

    Raises:
        SettingsError: there are several, and none has a name that is known.
    """
    for place in (folder, os.path.join(folder, "onnx")):
        try:
            names = sorted(name for name in os.listdir(place) if name.endswith(".onnx"))
        except OSError:
            continue
        for name in _KNOWN:
            if name in names:
                return os.path.join(place, name)
        if len(names) == 1:
            return os.path.join(place, names[0])
        if names:
            raise unusable(folder, say("it has no `{name}`", name="model.onnx"))
    return None


class OnnxEmbedder:
    """Runs an ONNX model on the processor."""

    hurrying = None

    def __init__(self, folder: str, *, threads: int = 0) -> None:
        """Open a model and run it on one text, so that an unusable one fails here.

        Args:
            folder: Holds one `.onnx` file (or `onnx/`) and `tokenizer.json`.
            threads: How many texts run at once; 0 leaves one processor to others.

        Raises:
            SettingsError: the folder holds no usable model.
            MissingExtra: a package is missing.
        """
        self._runtime: Any = require("onnxruntime", EXTRA)
        self._np: Any = require("numpy", EXTRA)
        path = find_onnx(folder)
        if path is None:
            raise unusable(folder, say("it has no `{name}`", name="model.onnx"))
        self.folder = folder
        self._threads = threads or max(1, (os.cpu_count() or 1) - 1)
        self._tokenizer, unknown = open_tokenizer(folder)
        self._vocabulary = Vocabulary(self._tokenizer, unknown)
        self._session = self._open(path)
        self._takes = {one.name for one in self._session.get_inputs()}
        if not {"input_ids", "attention_mask"} <= self._takes <= _INPUTS:
            raise unusable(folder, say("it gives no usable vectors"))
        self._dimensions = self._try()
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        with open(os.path.join(folder, "tokenizer.json"), "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        self._id = f"onnx-{digest.hexdigest()[:24]}-{MAX_TOKENS}"

    @property
    def id(self) -> str:
        """By the bytes of the model and of its tokenizer, and where texts are cut."""
        return self._id

    @property
    def dimensions(self) -> int:
        """How long a vector is."""
        return self._dimensions

    def covers(self, text: str) -> bool:
        """Whether the vocabulary has the words of a text."""
        return self._vocabulary.covers(text)

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One vector for each text."""
        rows: list[Any]
        if self._threads > 1 and len(texts) > _MIN_PARALLEL_TEXTS:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(self._threads) as pool:
                rows = list(pool.map(self._one, texts))
        else:
            rows = [self._one(text) for text in texts]
        if any(len(row) != self._dimensions for row in rows):
            raise ModelFailed(say("it gives no usable vectors"))
        made = self._np.array(rows, self._np.float32).reshape(len(rows), self._dimensions)
        return normalised(made, len(rows), self._dimensions, os.path.basename(self.folder))

    def _open(self, path: str) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised; stderr is for the user
        try:
            return self._runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as exc:
            name = os.path.basename(path)
            reason = first_line(exc)
            raise unusable(
                self.folder, say("`{path}` cannot be read: {reason}", path=name, reason=reason)
            ) from exc

    def _try(self) -> int:
        """Return the vector length, from one text."""
        try:
            found = self._one("a trial")
        except ModelFailed as exc:
            raise unusable(self.folder, exc.message) from exc
        if not 0 < len(found) <= MAX_DIMENSIONS:
            raise unusable(self.folder, say("it gives no usable vectors"))
        if not found.any():
            raise unusable(self.folder, say("it gives no usable vectors"))
        return len(found)

    def _one(self, text: str) -> Any:
        """Return the vector of one text, pooled if the model does not."""
        np = self._np
        ids: list[int] = self._tokenizer.encode(text).ids or [0]
        table = np.array([ids], np.int64)
        given = {"input_ids": table, "attention_mask": np.ones_like(table)}
        if "token_type_ids" in self._takes:
            given["token_type_ids"] = np.zeros_like(table)
        try:
            outputs = self._session.run(None, given)
        except Exception as exc:
            name, reason = os.path.basename(self.folder), first_line(exc)
            raise ModelFailed(
                say("`{path}` cannot be used: {reason}", path=name, reason=reason),
                say("Name another model in the setting `embeddings`"),
            ) from exc
        # Exports name their outputs differently: what has two sides is pooled.
        for one in reversed(outputs):
            if one.ndim == 2 and one.shape[0] == 1:
                return one[0]
        if not outputs or outputs[0].ndim != 3 or outputs[0].shape[:2] != table.shape:
            raise ModelFailed(say("it gives no usable vectors"))
        return outputs[0][0].mean(axis=0)


_MAX_TOKENIZER_CHARS = 128 << 20


def open_tokenizer(folder: str, tokens: int = MAX_TOKENS) -> tuple[Any, int | None]:
    """The tokenizer of a folder, cut at `tokens` and without padding, and its unknown token.

    Raises:
        SettingsError: there is none, or it is damaged.
        MissingExtra: `tokenizers` is not installed.
    """
    module: Any = require("tokenizers", EXTRA)
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_TOKENIZER_CHARS)  # one that is longer is cut, and no JSON
        tokenizer = module.Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.enable_truncation(tokens)
        unknown = _unknown_token(tokenizer, json.loads(text))
    except FileNotFoundError as exc:
        raise unusable(folder, say("it has no `{name}`", name="tokenizer.json")) from exc
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as exc:  # a panic of the library's Rust is no Exception
        reason = first_line(exc)
        raise unusable(
            folder, say("`{path}` cannot be read: {reason}", path="tokenizer.json", reason=reason)
        ) from exc
    return tokenizer, unknown


def _unknown_token(tokenizer: Any, table: Any) -> int | None:
    model = table["model"]
    if isinstance(name := model.get("unk_token"), str):
        return tokenizer.token_to_id(name)
    number = model.get("unk_id")  # unigram
    return number if isinstance(number, int) else None


MAX_STATIC_TOKENS = 512
_MAX_STATIC_CHARS = 600
"""Only the beginning of a long text is averaged: the mean of everything resembles anything."""

_SAMPLED_ROW_COUNT = 256


class StaticEmbedder:
    """Averages the vectors of tokens."""

    hurrying = None

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
        self._tokenizer, self._unknown = open_tokenizer(folder, MAX_STATIC_TOKENS)
        self._vocabulary = Vocabulary(self._tokenizer, self._unknown)
        self._check(self._tokenizer.get_vocab_size())
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        with open(os.path.join(folder, "tokenizer.json"), "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        self._id = f"static-{digest.hexdigest()[:24]}"

    def _check(self, tokens: int) -> None:
        """Require a table row for every token of the tokenizer."""
        table, weights, mapping = self._table, self._weights, self._mapping
        if table is None or table.ndim != 2 or not 0 < table.shape[1] <= MAX_DIMENSIONS:
            raise unusable(self.folder, say("it gives no usable vectors"))
        rows = table.shape[0]
        step = max(1, rows // _SAMPLED_ROW_COUNT)
        if not table[::step].any():
            raise unusable(self.folder, say("it gives no usable vectors"))
        fits = rows >= tokens
        if mapping is not None:
            fits = mapping.ndim == 1 and mapping.dtype.kind == "i" and len(mapping) >= tokens
            fits = fits and int(mapping.min()) >= 0 and int(mapping.max()) < rows
        if weights is not None:
            fits = fits and weights.ndim == 1 and len(weights) >= tokens
        if not fits:
            raise unusable(self.folder, say("it gives no usable vectors"))

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
        """Return one vector per text; zeros when none of its tokens is in the vocabulary."""
        np = self._np
        made = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            found = self._tokenizer.encode(text[:_MAX_STATIC_CHARS], add_special_tokens=False).ids
            ids = [token for token in found if token != self._unknown]
            if not ids:
                continue
            vectors = self._table[ids if self._mapping is None else self._mapping[ids]]
            vectors = vectors.astype(np.float32)
            if self._weights is not None:
                vectors = vectors * self._weights[ids].astype(np.float32)[:, None]
            made[row] = vectors.mean(axis=0)
        return normalised(made, len(texts), self.dimensions, os.path.basename(self.folder))


_MAX_HEADER_BYTES = 64 << 20
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
            os.path.dirname(path), say("`{path}` cannot be read: {reason}", path=name, reason=exc)
        ) from exc


def _read_table(path: str) -> tuple[int, dict[str, Any]]:
    """Return the offset of the numbers, and the table before them."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER_BYTES, os.path.getsize(path) - 8):
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


_ONE_IS_A_WORD = frozenset(("CJK",))
"""Scripts whose characters are words or nearly so, and carry more meaning than a letter."""
_DENSE = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI"))
_LATIN_CHARS_PER_SIGN_RATIO = 2.5
_MAX_UNCOVERED_SHARE = 0.3
"""Uncovered letters or unknown words from which a text is not covered."""
_MIN_SCRIPT_PIECES = 1_000
_MIN_SCRIPT_SHARE = 0.2
"""A script is covered from this number of word pieces, or from this share of a small vocabulary."""
_MARKERS = ("##", "▁", "Ġ", "</w>")
_MAX_EXAMINED_CHARS = 2_000
_SAME = {"KATAKANA": "HIRAGANA", "KATAKANA-HIRAGANA": "HIRAGANA", "IDEOGRAPHIC": "CJK"}


@lru_cache(maxsize=8_192)
def script_of(char: str) -> str:
    """The script of a letter, as Unicode names it; empty for what is no letter."""
    if not char.isalpha():
        return ""
    script = unicodedata.name(char, "").partition(" ")[0]
    return _SAME.get(script, script)


def scripts_in(text: str) -> dict[str, float]:
    """How much of a text is written in each script, in Latin letters' worth."""
    found: dict[str, float] = {}
    # Full-width Latin is Latin, and an accent belongs to its letter.
    for char in unicodedata.normalize("NFKC", text[:_MAX_EXAMINED_CHARS]):
        if script := script_of(char):
            found[script] = found.get(script, 0.0) + (
                _LATIN_CHARS_PER_SIGN_RATIO if script in _DENSE else 1.0
            )
    return found


class Vocabulary:
    """The covered scripts of a tokenizer, counted on first use."""

    def __init__(self, tokenizer: Any, unknown: int | None) -> None:
        self._tokenizer = tokenizer
        self._unknown = unknown
        self._scripts: frozenset[str] | None = None

    def covers(self, text: str) -> bool:
        """Whether the script is one of the vocabulary's, and so are most of the words."""
        if not self._reads(text):
            return False
        if self._unknown is None:
            return True
        found = self._tokenizer.encode(text[:_MAX_EXAMINED_CHARS], add_special_tokens=False)
        known = unknown = 0
        for token, (begin, end) in zip(found.ids, found.offsets, strict=True):
            # Unknown symbols such as emoji are ignored.
            if any(map(str.isalpha, text[begin:end])):
                unknown += token == self._unknown
                known += token != self._unknown
        return unknown <= _MAX_UNCOVERED_SHARE * (known + unknown)

    def _reads(self, text: str) -> bool:
        """Whether nearly all letters of a text belong to covered scripts."""
        if self._scripts is None:
            pieces: Iterable[str] = self._tokenizer.get_vocab()
            self._scripts = covered_scripts(pieces)
        if text.isascii():
            return "LATIN" in self._scripts or not any(map(str.isalpha, text))
        found = scripts_in(text)
        foreign = sum(size for script, size in found.items() if script not in self._scripts)
        return foreign <= _MAX_UNCOVERED_SHARE * sum(found.values())


def covered_scripts(pieces: Iterable[str]) -> frozenset[str]:
    """The scripts in which a vocabulary has pieces of words."""
    counts: dict[str, int] = {}
    total = 0
    for piece in map(_plain, pieces):
        total += 1
        scripts = {script for char in piece if (script := script_of(char))}
        if len(scripts) != 1:
            continue
        (script,) = scripts
        if script in _ONE_IS_A_WORD or sum(map(str.isalpha, piece)) > 1:
            counts[script] = counts.get(script, 0) + 1
    enough = min(_MIN_SCRIPT_PIECES, _MIN_SCRIPT_SHARE * total)
    return frozenset(script for script, count in counts.items() if count >= enough)


def _plain(piece: str) -> str:
    """Return a vocabulary piece as it occurs in a text."""
    for marker in _MARKERS:
        piece = piece.removeprefix(marker).removesuffix(marker)
    if piece.isascii() or any(char not in _BYTES for char in piece):
        return piece
    # Byte-level vocabularies write each byte as one visible character.
    return bytes(_BYTES[char] for char in piece).decode("utf-8", "ignore")


def _byte_letters() -> dict[str, int]:
    """The visible character of each byte in byte-level vocabularies."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    letters.update({chr(256 + at): byte for at, byte in enumerate(hidden)})
    return letters


_BYTES = _byte_letters()
