"""Embeddings: vectors of texts, for comparing a request with skills by meaning.

`base` defines the `Embedder` protocol, `registry` opens the model that a setting names,
`local_model` and `endpoint` implement it. `coverage` detects which scripts a model supports, and
`store` persists the vectors of skills. numpy is imported only in this package, and only on first
use.
"""

from __future__ import annotations

from satchel.detect.embeddings.base import Embedder, Matrix

__all__ = ["Embedder", "Matrix"]
