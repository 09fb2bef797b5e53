"""The `Embedder` protocol: texts in, normalised vectors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from satchel._optional import require
from satchel.errors import ModelFailed, SettingsError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

Matrix = Any
"""A float32 matrix of numpy, one row a text. numpy is an extra, so that its types are not named."""

MAX_DIMENSIONS = 16_384
EXTRA = "semantic"
"""The extra that brings numpy, onnxruntime and tokenizers."""


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

    def covers(self, text: str) -> bool:
        """Whether the model was made for the script of a text.

        For any other script its vectors are noise, and noise ranks worse than no vectors at all.
        """
        ...

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One vector of length one for each text; an empty text may get zeros.

        Raises:
            ModelFailed: the model cannot be run or reached, or gave no numbers.
        """
        ...


def normalised(matrix: Matrix, rows: int, dimensions: int, who: str) -> Matrix:
    """`matrix` as float32 with rows of length one, if it is what a model should give.

    Raises:
        ModelFailed: the shape is another, or there are values that are no numbers.
    """
    np = require("numpy", EXTRA)
    made = np.asarray(matrix, dtype=np.float32)
    if made.shape != (rows, dimensions) or not np.isfinite(made).all():
        raise ModelFailed(
            say("`{model}` gave no usable vectors", model=who),
            say("Name another model in the setting `embeddings`"),
        )
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    return made / np.maximum(lengths, 1e-12)


def unusable(folder: str, reason: str) -> SettingsError:
    """The error for a folder that holds no model, or a damaged one."""
    return SettingsError(
        say("`{path}` cannot be used: {reason}", path=folder, reason=reason),
        say("Name another model in the setting `embeddings`"),
    )


def first_line(error: BaseException) -> str:
    """Return the message of a library's error, shortened."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
