"""Word index: BM25 scores of skills for the terms of a goal, field by field."""

from __future__ import annotations

from satchel.detect.index.base import FIELDS, FieldIndex, IndexRow, Stamp

__all__ = ["FIELDS", "FieldIndex", "IndexRow", "Stamp"]
