"""Two sizes for one test: a sample in `.ci/run`, everything in `.ci/soak`.

`SATCHEL_SOAK=1` chooses the full size. Samples depend on `ROUND`, not on the date or on chance:
raise it now and then, so that CI looks at other parts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_SOAK = os.environ.get("SATCHEL_SOAK", "") == "1"
ROUND = 1

_T = TypeVar("_T")


def sized(in_ci: _T, in_soak: _T) -> _T:
    """Return the first value in CI and the second in `.ci/soak`."""
    return in_soak if IN_SOAK else in_ci


def sample(items: Sequence[_T], one_of: int) -> Sequence[_T]:
    """Return every `one_of`th item in CI and all of them in `.ci/soak`."""
    return items if IN_SOAK else items[ROUND % one_of :: one_of]
