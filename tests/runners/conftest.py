"""A program that fails on purpose, built once, and a launcher."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from needs import needs
from satchel.runners.launcher import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULTY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faulty")


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the faulty program."""
    program = str(tmp_path_factory.mktemp("faulty") / "program")
    source = os.path.join(FAULTY, "program.c")
    subprocess.run([needs("cc"), "-O1", "-o", program, source], check=True, timeout=60)
    return program


@pytest.fixture(scope="session")
def starter() -> Iterator[Launcher]:
    """One launcher for all tests that do not harm it."""
    launcher = Launcher()
    yield launcher
    launcher.close()
