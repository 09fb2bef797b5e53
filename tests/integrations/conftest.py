"""What the tests of the integrations share: a project, and examples that import much."""

from __future__ import annotations

import pytest

from satchel import Satchel
from satchel.testing import make_project


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_starts: None) -> None:
    """Each framework is compiled once a run."""


@pytest.fixture
def satchel(tmp_path) -> Satchel:
    """Two skills, trusted, and none that come along."""
    project = make_project(tmp_path, "code-review", "write-docs")
    return Satchel.for_project(project, trust="all", builtin=False, packaged=False)
