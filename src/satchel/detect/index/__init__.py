"""AN INDEX OF WORDS: which skills have the terms of a goal, field by field."""

from __future__ import annotations

from satchel.detect.index.base import FIELDS, FieldIndex, Row, Stamp

__all__ = ["FIELDS", "FieldIndex", "Row", "Stamp"]
