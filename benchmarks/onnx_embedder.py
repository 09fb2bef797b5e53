"""Embedding models in a local folder, for the benchmarks: one `.onnx` file and `tokenizer.json`.

Each text is run alone. An 8-bit model rounds the texts of a batch together, so a vector would
depend on its neighbours (cosine down to 0.97), and a batch is hardly faster on a CPU. The session
uses one thread, which finishes a sentence sooner than threads that wait for each other; many texts
are distributed over several sessions' threads.

Script coverage: an English tokenizer contains the single letters of many scripts. It splits Russian
into letters and maps most Chinese characters to the unknown token, and the resulting vectors are
meaningless. A script counts as covered when the vocabulary contains word pieces in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.detect.embeddings import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.detect.embeddings import Matrix

MAX_TOKENS = 128
"""About 600 characters; longer inputs cost time and hardly improve results."""


class OnnxEmbedder:
    """Runs an ONNX model on the processor."""

    hurrying = None

    def __init__(self, folder: str) -> None:
        import numpy as np
        import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
        import tokenizers

        self._np: Any = np
        runtime: Any = onnxruntime
        (model,) = Path(folder).glob("*.onnx")
        table = (Path(folder) / "tokenizer.json").read_bytes()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session: Any = runtime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {spec.name for spec in self._session.get_inputs()}
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(table.decode())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        unknown = json.loads(table)["model"].get("unk_token")
        self._vocabulary = Vocabulary(
            self._tokenizer, self._tokenizer.token_to_id(unknown) if unknown else None
        )
        digest = hashlib.sha256(model.read_bytes())
        digest.update(hashlib.sha256(table).digest())
        self.id = f"onnx-{digest.hexdigest()[:24]}-{MAX_TOKENS}"
        self.dimensions = len(self._vector("a trial"))

    def covers(self, text: str) -> bool:
        """Whether the vocabulary has the words of a text."""
        return self._vocabulary.covers(text)

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One vector for each text."""
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1)) as pool:
            rows = list(pool.map(self._vector, texts))
        matrix = self._np.array(rows, self._np.float32).reshape(len(rows), self.dimensions)
        return normalise(matrix, len(rows), self.dimensions, self.id)

    def _vector(self, text: str) -> Any:
        """Return the vector of one text, pooled if the model does not."""
        np = self._np
        table = np.array([self._tokenizer.encode(text).ids or [0]], np.int64)
        inputs = {"input_ids": table, "attention_mask": np.ones_like(table)}
        if "token_type_ids" in self._inputs:
            inputs["token_type_ids"] = np.zeros_like(table)
        outputs = self._session.run(None, inputs)
        # Exports name their outputs differently: what has two sides is pooled.
        for output in reversed(outputs):
            if output.ndim == 2 and output.shape[0] == 1:
                return output[0]
        return outputs[0][0].mean(axis=0)


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
