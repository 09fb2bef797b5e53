"""Shared fixtures: a project, and examples that import much."""

from __future__ import annotations

import pytest

from satchel import Satchel
from satchel.testing import make_project


@pytest.fixture
def satchel(tmp_path) -> Satchel:
    """Two skills, trusted, and none that come along."""
    project = make_project(tmp_path, "code-review", "write-docs")
    return Satchel.for_project(project, trust="all", builtin=False, packaged=False)
