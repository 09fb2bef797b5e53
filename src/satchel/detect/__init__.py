"""Chooses skills for a request.

`base` has the `Detector` protocol and the records of an answer. `mentions` finds the skills that a
request names, `lexical` searches all texts without an index, `hybrid` ranks libraries of any size,
`model` asks a language model, and `pipeline` puts them in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.detect.base import Answer, BaseDetector, Detector, Match, Note, Place, SkillDetector
from satchel.detect.lexical import LexicalDetector, MinimalSkillDetector

if TYPE_CHECKING:
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.model import ModelDetector, Reply
    from satchel.detect.pipeline import SelectionPipeline

_HOMES = {
    "HybridDetector": "hybrid",
    "ModelDetector": "model",
    "Reply": "model",
    "SelectionPipeline": "pipeline",
}
"""Names that are imported when they are first used, with their modules."""

__all__ = [
    "Answer",
    "BaseDetector",
    "Detector",
    "HybridDetector",
    "LexicalDetector",
    "Match",
    "MinimalSkillDetector",
    "ModelDetector",
    "Note",
    "Place",
    "Reply",
    "SelectionPipeline",
    "SkillDetector",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `satchel.detect` has no attribute `{name}`")
    from importlib import import_module

    value = getattr(import_module(f"satchel.detect.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # What is loaded late is there all the same.
    return sorted({*globals(), *__all__})
