"""WHICH SKILL FITS: from what somebody wants to the skills that serve it.

`base` says what a detector is; `lexical` is the one that needs nothing but the words.
"""

from __future__ import annotations

from satchel.detect.base import Detector, Match
from satchel.detect.lexical import LexicalDetector

__all__ = ["Detector", "LexicalDetector", "Match"]
