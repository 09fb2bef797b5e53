"""WHICH SKILL FITS: from what somebody wants to the skills that serve it.

`base` says what a detector is, and what an answer holds. `explicit` hears a skill called by its
name, `minimal` compares keywords, `lexical` searches every text without an index, `hybrid` ranks at
any size, `model` asks a language model; `compose` puts them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.detect.base import Answer, Detector, Match, Place, SkillDetector
from satchel.detect.lexical import LexicalDetector

if TYPE_CHECKING:
    from satchel.detect.compose import FirstHit, Override, Scoped, Union, WithExplicit
    from satchel.detect.explicit import ExplicitDetector, Heard
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.minimal import MinimalSkillDetector
    from satchel.detect.model import ModelDetector, Reply

_HOMES = {
    "ExplicitDetector": "explicit",
    "FirstHit": "compose",
    "Heard": "explicit",
    "HybridDetector": "hybrid",
    "MinimalSkillDetector": "minimal",
    "ModelDetector": "model",
    "Override": "compose",
    "Reply": "model",
    "Scoped": "compose",
    "Union": "compose",
    "WithExplicit": "compose",
}
"""What is loaded when it is first used."""

__all__ = [
    "Answer",
    "Detector",
    "ExplicitDetector",
    "FirstHit",
    "Heard",
    "HybridDetector",
    "LexicalDetector",
    "Match",
    "MinimalSkillDetector",
    "ModelDetector",
    "Override",
    "Place",
    "Reply",
    "Scoped",
    "SkillDetector",
    "Union",
    "WithExplicit",
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
