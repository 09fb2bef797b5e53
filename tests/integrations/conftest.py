"""What the tests of the integrations share: examples are programs that import much."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_starts: None) -> None:
    """Each framework is compiled once a run."""
