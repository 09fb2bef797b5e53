"""Embeddings: vectors of texts, for comparing a request with skills by meaning.

`base` defines the `Embedder` protocol, `open_embedder` opens the model that the setting
`embeddings` names, `local_model` and `endpoint` implement it. `store` persists the vectors of
skills. numpy is imported only in this package, and only on first use.
"""

from __future__ import annotations

import os

from satchel.detect.embeddings.base import Embedder, Matrix, unusable
from satchel.errors import NotFound, SettingsError
from satchel.i18n import say

__all__ = ["Embedder", "Matrix", "open_embedder"]

_KINDS = ("onnx", "model2vec")


def open_embedder(spec: str, *, threads: int = 0) -> Embedder:
    """Open the model that a setting names.

    Args:
        spec: A folder (absolute, or beginning with `~` or `.`), the same after `onnx:` or
            `model2vec:`; or the address of an embeddings endpoint with `#model=NAME`.
        threads: How many texts run at once; 0 leaves one processor to others.

    Raises:
        SettingsError: it names nothing that can be used.
        NotFound: there is no such folder.
        MissingExtra: a package is missing; the hint is the line that installs it.
    """
    spec = spec.strip()
    if spec.lower().startswith(("http://", "https://")):
        from satchel.detect.embeddings.endpoint import Endpoint

        return Endpoint(spec)
    kind, found, rest = spec.partition(":")
    if not found or kind not in _KINDS:
        kind, rest = "", spec
    folder = _folder(rest)
    if (kind or _kind_of(folder)) == "model2vec":
        from satchel.detect.embeddings.local_model import StaticEmbedder

        return StaticEmbedder(folder)
    from satchel.detect.embeddings.local_model import OnnxEmbedder

    return OnnxEmbedder(folder, threads=threads)


def _kind_of(folder: str) -> str:
    """What kind of model a folder holds, by its files.

    Raises:
        SettingsError: none.
    """
    from satchel.detect.embeddings.local_model import find_onnx

    if find_onnx(folder) is not None:
        return "onnx"
    if os.path.isfile(os.path.join(folder, "model.safetensors")):
        return "model2vec"
    raise unusable(folder, say("it has no `{name}`", name="model.onnx"))


def _folder(text: str) -> str:
    if not text.startswith(("~", ".")) and not os.path.isabs(text):
        raise SettingsError(
            say("`{path}` is not an absolute path", path=text),
            say("Name another model in the setting `embeddings`"),
        )
    folder = os.path.abspath(os.path.expanduser(text))
    if not os.path.isdir(folder):
        raise NotFound(
            say("There is no `{path}`", path=folder),
            say("Name another model in the setting `embeddings`"),
        )
    return folder
