"""A folder of sentence-transformers, run by that package itself. Nothing is downloaded.

The package imports whatever class a folder's `modules.json` names, also from Python files in that
folder. A model is data: a folder that brings code, or weights in pickles, is refused.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel._optional import require
from satchel.detect.vectors.base import (
    MAX_DIMENSIONS,
    first_line,
    normalised,
    unusable,
)
from satchel.detect.vectors.coverage import Trial, Vocabulary, is_covered
from satchel.detect.vectors.tokens import open_tokenizer, read_json, read_table
from satchel.errors import MissingExtra, ModelFailed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from satchel.detect.vectors.base import Matrix

_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_TOKENS = 128
_PLAIN = frozenset(("Transformer", "Pooling", "Normalize"))


class SentenceEmbedder:
    """Runs a model through the package `sentence-transformers`."""

    def __init__(self, folder: str) -> None:
        """Open a model.

        Raises:
            SettingsError: the folder holds no usable model, or it brings code.
            MissingExtra: the package is missing.
        """
        self.folder = folder
        check_is_data(folder)
        with _offline():
            try:
                module: Any = require("sentence_transformers", "")
            except MissingExtra as exc:
                raise MissingExtra(
                    exc.message, say("Run `{command}`", command="pip install sentence-transformers")
                ) from exc
            try:
                self._model = module.SentenceTransformer(
                    folder,
                    device="cpu",
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True},
                )
                found = self._encode(["a trial"])
            except Exception as exc:
                raise unusable(folder, first_line(exc)) from exc
        if found.ndim != 2 or not 0 < found.shape[1] <= MAX_DIMENSIONS:
            raise unusable(folder, say("its output is no vector"))
        if not found.any():
            raise unusable(folder, say("its vectors are nothing but zeros"))
        self._dimensions: int = found.shape[1]
        self._vocabulary = self._find_vocabulary()
        self._trial = Trial(self.embed)
        self._id = f"sentence-{digest_of(folder)}"

    def _find_vocabulary(self) -> Vocabulary | None:
        if not os.path.isfile(os.path.join(self.folder, "tokenizer.json")):
            return None
        return Vocabulary(*open_tokenizer(self.folder, _TOKENS))

    @property
    def id(self) -> str:
        """By the bytes of the folder's files."""
        return self._id

    @property
    def dimensions(self) -> int:
        """How long a vector is."""
        return self._dimensions

    def covers(self, text: str) -> bool:
        """By the vocabulary, or by a trial when the folder shows none."""
        if self._vocabulary is not None:
            return self._vocabulary.covers(text)
        return is_covered(text, self._trial.reads)

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One vector for each text."""
        try:
            found = self._encode(list(texts))
        except Exception as exc:
            name, reason = os.path.basename(self.folder), first_line(exc)
            raise ModelFailed(
                say("The model `{name}` cannot be run: {reason}", name=name, reason=reason),
                say("Name another model in the setting `vectors`"),
            ) from exc
        return normalised(found, len(texts), self._dimensions, os.path.basename(self.folder))

    def _encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts, convert_to_numpy=True, show_progress_bar=False)


def check_is_data(folder: str) -> None:
    """Make sure that opening a folder cannot run code from it.

    Raises:
        SettingsError: it names classes of its own, or has weights in pickles alone.
    """
    modules = read_json(folder, "modules.json")
    if not isinstance(modules, list):
        raise unusable(folder, say("it has no `{name}`", name="modules.json"))
    for row in cast("list[Any]", modules):
        kind = cast("dict[str, Any]", row).get("type") if isinstance(row, dict) else None
        if not _is_plain(kind):
            raise unusable(folder, say("it brings code of its own, which is never run"))
        place = cast("dict[str, Any]", row).get("path", "")
        # Each part has a configuration, and a way out of the folder is none.
        if not isinstance(place, str) or os.path.isabs(place) or ".." in place.split("/"):
            raise unusable(folder, say("it brings code of its own, which is never run"))
        if "auto_map" in read_table(folder, place, "config.json"):
            raise unusable(folder, say("it brings code of its own, which is never run"))
    for _, _, files in os.walk(folder):
        if any(name.endswith((".py", ".pkl", ".so")) for name in files):
            raise unusable(folder, say("it brings code of its own, which is never run"))


def _is_plain(kind: Any) -> bool:
    """Whether a module is one of the package's own that run nothing a configuration names."""
    if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
        return False
    return kind.rpartition(".")[2] in _PLAIN


def digest_of(folder: str) -> str:
    """One word for all files of a folder."""
    digest = hashlib.sha256()
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(here, name)
            digest.update(os.path.relpath(path, folder).encode("utf-8", "surrogateescape") + b"\0")
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:24]


@contextmanager
def _offline() -> Generator[None]:
    """Nothing is asked of another machine meanwhile; the environment is then as it was."""
    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(_OFFLINE)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
