"""Skill selection for a request.

`base` defines the `Detector` protocol and the result records. `mentions` parses skill names out of
a request, `keyword` searches without an index, `hybrid` ranks libraries of any size, `llm` lets a
language model choose, and `pipeline` combines them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from satchel.detect.base import (
    BaseDetector,
    Detection,
    Detector,
    DetectorNote,
    Match,
    RankExplanation,
    SkillDetector,
)
from satchel.detect.keyword import LexicalDetector, MinimalSkillDetector

if TYPE_CHECKING:
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.llm import ModelDetector, ModelReply
    from satchel.detect.pipeline import SelectionPipeline

_HOMES = {
    "HybridDetector": "hybrid",
    "ModelDetector": "llm",
    "ModelReply": "llm",
    "SelectionPipeline": "pipeline",
}
"""Names that are imported when they are first used, with their modules."""

__all__ = [
    "BaseDetector",
    "Detection",
    "Detector",
    "DetectorNote",
    "HybridDetector",
    "LexicalDetector",
    "Match",
    "MinimalSkillDetector",
    "ModelDetector",
    "ModelReply",
    "RankExplanation",
    "SelectionPipeline",
    "SkillDetector",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    value = getattr(import_module(f"satchel.detect.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # Includes the names that are imported lazily.
    return sorted({*globals(), *__all__})
