"""A model as a folder with an ONNX file and its `tokenizer.json`.

Every text is run alone. In 8 bits the texts of a batch are rounded together, so that a vector would
depend on its neighbours (down to a cosine of 0.97); and on a processor a batch is hardly faster.
The session has one thread: a sentence is done sooner so than when threads wait for each other, and
many texts are shared out to several.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel._optional import require
from satchel.detect.vectors.base import (
    EXTRA,
    MAX_DIMENSIONS,
    first_line,
    normalised,
    unusable,
)
from satchel.detect.vectors.coverage import Vocabulary
from satchel.errors import ModelFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.vectors.base import Matrix

TOKENS = 128
"""Where texts are cut: about 600 characters. More costs time and hardly finds more."""
_FEW = 8
"""So many texts are not worth a second thread."""
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
            raise unusable(
                folder,
                say("it has several ONNX files"),
                say("Call the one to use `{name}`", name="model.onnx"),
            )
    return None


class OnnxEmbedder:
    """Runs an ONNX model on the processor."""

    def __init__(self, folder: str, *, tokens: int = TOKENS, threads: int = 0) -> None:
        """Open a model; it is tried on one text, so that a wrong one is known now.

        Args:
            folder: Holds one `.onnx` file (or `onnx/`) and `tokenizer.json`.
            tokens: Where texts are cut; the model's own limit may be lower.
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
        limit = read_table(folder, "sentence_bert_config.json").get("max_seq_length")
        if isinstance(limit, int) and limit >= 8:
            tokens = min(tokens, limit)
        self._tokenizer, unknown = open_tokenizer(folder, tokens)
        self._vocabulary = Vocabulary(self._tokenizer, unknown)
        self._session = self._open(path)
        self._takes = {one.name for one in self._session.get_inputs()}
        if not {"input_ids", "attention_mask"} <= self._takes <= _INPUTS:
            raise unusable(folder, say("its inputs are not those of a text model"))
        self._dimensions = self._try()
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        with open(os.path.join(folder, "tokenizer.json"), "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        self._id = f"onnx-{digest.hexdigest()[:24]}-{tokens}"

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
        if self._threads > 1 and len(texts) > _FEW:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(self._threads) as pool:
                rows = list(pool.map(self._one, texts))
        else:
            rows = [self._one(text) for text in texts]
        if any(len(row) != self._dimensions for row in rows):
            raise ModelFailed(say("its output is no vector"))
        made = self._np.array(rows, self._np.float32).reshape(len(rows), self._dimensions)
        return normalised(made, len(rows), self._dimensions, os.path.basename(self.folder))

    def _open(self, path: str) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised; stderr is for people
        try:
            return self._runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as exc:
            name = os.path.basename(path)
            reason = first_line(exc)
            raise unusable(
                self.folder, say("`{name}` cannot be read ({reason})", name=name, reason=reason)
            ) from exc

    def _try(self) -> int:
        """The length of a vector, by one text."""
        try:
            found = self._one("a trial")
        except ModelFailed as exc:
            raise unusable(self.folder, exc.message) from exc
        if not 0 < len(found) <= MAX_DIMENSIONS:
            raise unusable(self.folder, say("its output is no vector"))
        if not found.any():
            raise unusable(self.folder, say("its vectors are nothing but zeros"))
        return len(found)

    def _one(self, text: str) -> Any:
        """The vector of one text; pooled here when the model does not."""
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
                say("The model `{name}` cannot be run: {reason}", name=name, reason=reason),
                say("Name another model in the setting `vectors`"),
            ) from exc
        # Exports name their outputs differently: what has two sides is pooled.
        for one in reversed(outputs):
            if one.ndim == 2 and one.shape[0] == 1:
                return one[0]
        if not outputs or outputs[0].ndim != 3 or outputs[0].shape[:2] != table.shape:
            raise ModelFailed(say("its output is no vector"))
        return outputs[0][0].mean(axis=0)


_MAX_FILE = 128 << 20


def open_tokenizer(folder: str, limit: int) -> tuple[Any, int | None]:
    """The tokenizer of a folder, cut at `limit` tokens and without padding, and its unknown token.

    Raises:
        SettingsError: there is none, or it is damaged.
        MissingExtra: `tokenizers` is not installed.
    """
    module: Any = require("tokenizers", EXTRA)
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_FILE)  # one that is longer is cut, and no JSON
        tokenizer = module.Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.enable_truncation(limit)
        unknown = _unknown_token(tokenizer, json.loads(text))
    except FileNotFoundError as exc:
        raise unusable(folder, say("it has no `{name}`", name="tokenizer.json")) from exc
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as exc:  # a panic of the library's Rust is no Exception
        reason = first_line(exc)
        raise unusable(
            folder, say("`{name}` cannot be read ({reason})", name="tokenizer.json", reason=reason)
        ) from exc
    return tokenizer, unknown


def _unknown_token(tokenizer: Any, table: Any) -> int | None:
    model = table["model"]
    if isinstance(name := model.get("unk_token"), str):
        return tokenizer.token_to_id(name)
    number = model.get("unk_id")  # unigram
    return number if isinstance(number, int) else None


def read_table(folder: str, name: str) -> dict[str, Any]:
    """What a JSON file of a folder holds; empty when there is none, or it holds no object.

    Raises:
        SettingsError: it is no JSON.
    """
    try:
        with open(os.path.join(folder, name), "rb") as file:
            found = json.loads(file.read(1 << 20))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        reason = first_line(exc)
        raise unusable(
            folder, say("`{name}` cannot be read ({reason})", name=name, reason=reason)
        ) from exc
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
