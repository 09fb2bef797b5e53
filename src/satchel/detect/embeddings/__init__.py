"""Embeddings: vectors of texts, for comparing a request with skills by meaning.

`Embedder` is the protocol, `endpoint` implements it for the address in the setting `embeddings`.
`store` persists the vectors of skills. numpy is imported only in this package, and only on first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from satchel._optional import require
from satchel.errors import ModelFailed
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager


Matrix = Any
"""A float32 matrix of numpy, one row a text. numpy is an extra, so that its types are not named."""

MAX_DIMENSIONS = 16_384
EXTRA = "semantic"
"""The extra that brings numpy."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def hurrying(self) -> Callable[[float], AbstractContextManager[None]] | None:
        """Limits requests to one attempt and some seconds; None when no server is asked."""
        ...

    @property
    def id(self) -> str:
        """Which model this is, by its bytes where they are at hand.

        Vectors of two models mean nothing to each other: whatever changes a vector changes the id.
        """
        ...

    @property
    def dimensions(self) -> int:
        """How long a vector is."""
        ...

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return one vector of length one for each text.

        Raises:
            ModelFailed: the model cannot be run or reached, or gave no numbers.
        """
        ...


def normalise(matrix: Matrix, rows: int, dimensions: int, model: str) -> Matrix:
    """Return the matrix of a model as float32 with rows of length one.

    Raises:
        ModelFailed: the shape is another, or there are values that are no numbers.
    """
    np = require("numpy", EXTRA)
    vectors = np.asarray(matrix, dtype=np.float32)
    if vectors.shape != (rows, dimensions) or not np.isfinite(vectors).all():
        raise ModelFailed(
            say("`{model}` gave no usable vectors", model=model),
            say("Name another model in the setting `embeddings`"),
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


def read_first_line(error: BaseException) -> str:
    """Return the message of a library's error, shortened."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
