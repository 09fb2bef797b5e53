"""How does a sentence-transformers BERT become a small ONNX folder? Without torch, and checked.

The weights are read from `model.safetensors`, the graph is written by `bert_graph`. What comes out
is compared with the same model in 32 bits before anybody gets it: a conversion that says something
else is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import write_atomic
from satchel._language import say
from satchel._optional import require
from satchel.detect.vectors.base import EXTRA, first_line, unusable
from satchel.detect.vectors.bert_graph import BertGraph, Shape
from satchel.detect.vectors.onnx_model import OnnxEmbedder
from satchel.detect.vectors.tokens import read_json, read_table
from satchel.detect.vectors.weights import read_tensors
from satchel.errors import ModelFailed

if TYPE_CHECKING:
    from collections.abc import Callable

ALIKE = 0.97
"""The least cosine between a text's vector in 8 bits and in 32."""
_LIMITS = (127, 63)
"""Weights use all of a byte; on processors whose sums of bytes overflow, half of it."""
_COPIED = ("tokenizer.json", "sentence_bert_config.json")
_ABOUT = "satchel.json"
_SENTENCES = (
    "Fill in the fields of a PDF form and flatten it.",
    "review",
    "When the tests fail on one machine only, find out what differs between the two.",
    "Write the minutes of a meeting: who was there, what was decided, who does what by when.",
    "kubectl get pods -A | grep -v Running",
    "Plan a week of vegetarian dinners for four, with a shopping list.",
    "Why is this SQL query slow? Look at the plan and suggest an index.",
)


class Converted(NamedTuple):
    """What a conversion gave."""

    folder: str
    bytes: int
    """Size of the ONNX file."""
    alike: float
    """The least cosine against the model in 32 bits, over the sentences of the check."""
    dimensions: int


def is_convertible(folder: str) -> bool:
    """Whether a folder looks like a BERT of sentence-transformers."""
    names = ("config.json", "model.safetensors", "tokenizer.json", "modules.json")
    return all(os.path.isfile(os.path.join(folder, name)) for name in names)


def convert(
    source: str, target: str, *, name: str = "", tell: Callable[[str], None] | None = None
) -> Converted:
    """Write the ONNX folder `target` from a BERT's folder; an older one is replaced.

    Args:
        source: Holds `config.json`, `model.safetensors`, `tokenizer.json`, `modules.json`.
        target: Where the result goes. It appears whole or not at all.
        name: What the source is called; kept in `satchel.json`.
        tell: Told what is being done.

    Raises:
        SettingsError: the source is no BERT whose vectors are means of length one.
        ModelFailed: what came out says something else than the source.
        MissingExtra: a package is missing.
    """
    tell = tell or (lambda _words: None)
    onnx, np = require("onnx", "convert"), require("numpy", EXTRA)
    require("onnxruntime", EXTRA)
    tell(say("Reading the weights"))
    shape = _read_shape(source)
    _check_modules(source)
    tensors = {
        key.removeprefix("bert."): value
        for key, value in read_tensors(os.path.join(source, "model.safetensors")).items()
    }
    graph = BertGraph((onnx, np), shape, tensors)
    work = f"{target}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        alike, size = _make(graph, source, work, tell)
        dimensions = OnnxEmbedder(work).dimensions
        about = {"name": name or os.path.basename(source), "alike": alike, "bits": 8}
        write_atomic(os.path.join(work, _ABOUT), json.dumps(about, indent=2).encode() + b"\n")
        _replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Converted(target, size, alike, dimensions)


def _make(
    graph: BertGraph, source: str, work: str, tell: Callable[[str], None]
) -> tuple[float, int]:
    """Write the folder and check it; returns the least cosine and the file's size."""
    exact = os.path.join(work, "exact")
    for place in (work, exact):
        os.makedirs(place)
        for name in _COPIED:
            if os.path.isfile(path := os.path.join(source, name)):
                shutil.copyfile(path, os.path.join(place, name))
    tell(say("Writing the graph"))
    _write(graph, source, exact, 0)
    wanted = OnnxEmbedder(exact, threads=1).embed(_SENTENCES)
    alike, size = 0.0, 0
    for limit in _LIMITS:
        size = _write(graph, source, work, limit)
        tell(say("Comparing it with the original"))
        found = OnnxEmbedder(work, threads=1).embed(_SENTENCES)
        alike = float((found * wanted).sum(1).min())
        if alike >= ALIKE:
            break
    else:
        raise ModelFailed(
            say("In 8 bits `{name}` says something else", name=os.path.basename(source))
            + f" ({alike:.3f} < {ALIKE})",
            say("Use it through `sentence-transformers:{folder}`", folder=source),
        )
    shutil.rmtree(exact)
    return round(alike, 4), size


def _write(graph: BertGraph, source: str, folder: str, limit: int) -> int:
    try:
        data = graph.build(limit)
    except KeyError as exc:
        reason = say("it lacks the tensor `{name}`", name=exc.args[0])
        raise unusable(source, reason) from exc
    except Exception as exc:
        raise unusable(source, first_line(exc)) from exc
    write_atomic(os.path.join(folder, "model.onnx"), data, durable=False)
    return len(data)


def _replace(work: str, target: str) -> None:
    """Let the new folder take the old one's place."""
    old = f"{work}.old"
    if os.path.isdir(target):
        os.rename(target, old)
    os.rename(work, target)
    shutil.rmtree(old, ignore_errors=True)


def _read_shape(folder: str) -> Shape:
    """The sizes of a BERT.

    Raises:
        SettingsError: it is another kind of model, or a variant that the graph does not have.
    """
    config = read_table(folder, "config.json")
    kind = config.get("model_type")
    if kind != "bert":
        raise unusable(
            folder,
            say("it is a model of the kind `{kind}`, and only `bert` is converted", kind=kind),
            say("Use it through `sentence-transformers:{folder}`", folder=folder),
        )
    usual = {"hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in usual.items():
        if config.get(key, value) != value:
            raise unusable(folder, say("its `{name}` is not `{value}`", name=key, value=value))
    try:
        shape = Shape(
            int(config["num_hidden_layers"]),
            int(config["num_attention_heads"]),
            int(config["hidden_size"]),
            float(config.get("layer_norm_eps", 1e-12)),
        )
    except (KeyError, TypeError, ValueError) as exc:
        reason = first_line(exc)
        raise unusable(
            folder, say("`{name}` cannot be read ({reason})", name="config.json", reason=reason)
        ) from exc
    if min(shape.layers, shape.heads) < 1 or shape.hidden % shape.heads or shape.layers > 200:
        raise unusable(folder, say("its `{name}` has impossible sizes", name="config.json"))
    return shape


def _check_modules(folder: str) -> None:
    """The graph ends in a mean and a length of one: so must the model.

    Raises:
        SettingsError: it ends otherwise.
    """
    modules = read_json(folder, "modules.json")
    rows = cast("list[Any]", modules) if isinstance(modules, list) else []
    tables = [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]
    kinds = [str(row.get("type", "")).rpartition(".")[2] for row in tables]
    if kinds != ["Transformer", "Pooling", "Normalize"]:
        raise unusable(
            folder,
            say("its `{name}` is not transformer, pooling, normalising", name="modules.json"),
            say("Use it through `sentence-transformers:{folder}`", folder=folder),
        )
    place = str(tables[1].get("path", ""))
    if os.path.isabs(place) or ".." in place.split("/"):
        raise unusable(folder, say("its pooling is not the mean"))
    pooling = read_table(folder, place, "config.json")
    modes = {key for key, value in pooling.items() if key.startswith("pooling_mode_") and value}
    if modes != {"pooling_mode_mean_tokens"} and pooling.get("pooling_mode") != "mean":
        raise unusable(
            folder,
            say("its pooling is not the mean"),
            say("Use it through `sentence-transformers:{folder}`", folder=folder),
        )
