"""VECTORS: texts as points, so that the same wish in other words is found near its skill.

`base` says what a model of embeddings is, `open` finds the one that a setting names; `local_model`
and `endpoint` are the kinds there are. `coverage` says which scripts a model can read, and `store`
keeps the vectors of skills on disk. numpy and its like are loaded here and nowhere else, and only
when asked for.
"""

from __future__ import annotations

from satchel.detect.vectors.base import Embedder, Matrix

__all__ = ["Embedder", "Matrix"]
