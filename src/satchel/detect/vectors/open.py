"""Which model does the setting `vectors` mean?

A word alone is a converted model: never a folder that happens to be called so where somebody
works, since a project could bring one. A folder is written as a path.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import NotFound, SettingsError

if TYPE_CHECKING:
    from satchel.detect.vectors.base import Embedder

_KINDS = ("onnx", "model2vec", "sentence-transformers")


def open_embedder(spec: str, *, cache: str = "", threads: int = 0) -> Embedder:
    """Open the model that a setting names.

    Args:
        spec: A folder (absolute, or beginning with `~` or `.`), the same after `onnx:`,
            `model2vec:` or `sentence-transformers:`; the address of an embeddings endpoint with
            `#model=NAME`; or the name of a converted model.
        cache: Satchel's cache folder, where converted models are; that of the settings when empty.
        threads: How many texts run at once; 0 leaves one processor to others.

    Raises:
        SettingsError: it names nothing that can be used.
        NotFound: there is no such folder or model.
        MissingExtra: a package is missing; the hint is the line that installs it.
    """
    spec = spec.strip()
    if spec.lower().startswith(("http://", "https://")):
        from satchel.detect.vectors.endpoint import Endpoint

        return Endpoint(spec)
    kind, found, rest = spec.partition(":")
    if found and kind in _KINDS:
        return _open(kind, _folder(rest), threads)
    if is_path(spec):
        folder = _folder(spec)
        return _open(kind_of(folder), folder, threads)
    return _open("onnx", _converted(spec, cache), threads)


def is_path(text: str) -> bool:
    """Whether a text is a path and not a name: it says so by how it begins."""
    return text.startswith(("~", ".")) or os.path.isabs(text)


def kind_of(folder: str) -> str:
    """What kind of model a folder holds, by its files.

    Raises:
        SettingsError: none that can be used as it is.
    """
    from satchel.detect.vectors.base import unusable
    from satchel.detect.vectors.convert import is_convertible
    from satchel.detect.vectors.onnx_model import find_onnx

    if find_onnx(folder) is not None:
        return "onnx"
    if is_convertible(folder):
        raise unusable(
            folder,
            say("it has no `{name}`", name="model.onnx"),
            say("Run `satchel vectors add {source}`", source=folder),
        )
    if os.path.isfile(os.path.join(folder, "model.safetensors")):
        return "model2vec"
    raise unusable(folder, say("it has no `{name}`", name="model.onnx"))


def _folder(text: str) -> str:
    folder = os.path.abspath(os.path.expanduser(text))
    if not is_path(text):
        raise SettingsError(
            say("`{path}` is no whole path", path=text), say("Write `{value}`", value=folder)
        )
    if not os.path.isdir(folder):
        raise NotFound(
            say("There is no folder `{path}`", path=folder),
            say("Name another model in the setting `vectors`"),
        )
    return folder


def _converted(name: str, cache: str) -> str:
    """The folder of a converted model."""
    from satchel.detect.vectors.models import is_name, models_folder, packaged_model
    from satchel.settings import find_paths

    if not is_name(name):
        raise SettingsError(
            say("`{path}` is no whole path", path=name),
            say("Write a whole path, a name or an address"),
        )
    cache = cache or find_paths(os.environ).cache
    folder = os.path.join(models_folder(cache), name)
    if os.path.isdir(folder):
        return folder
    hint = say("Run `satchel vectors list` to see what there is")
    if packaged_model(name) is not None:
        hint = say("Run `satchel vectors add {source}`", source=name)
    raise NotFound(say("There is no converted model `{name}`", name=name), hint)


def _open(kind: str, folder: str, threads: int) -> Embedder:
    if kind == "model2vec":
        from satchel.detect.vectors.static_model import StaticEmbedder

        return StaticEmbedder(folder)
    if kind == "sentence-transformers":
        from satchel.detect.vectors.sentence_model import SentenceEmbedder

        return SentenceEmbedder(folder)
    from satchel.detect.vectors.onnx_model import OnnxEmbedder

    return OnnxEmbedder(folder, threads=threads)
