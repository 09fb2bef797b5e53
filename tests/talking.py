"""Conversations and frames for tests."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from satchel import Satchel
from satchel.detect.pipeline import as_pipeline, default_detector
from satchel.session.loaded_skills import LoadedSkills
from satchel.session.permissions import PermissionGate
from satchel.session.session import Session
from satchel.testing import make_skill

if TYPE_CHECKING:
    from pathlib import Path

    from satchel.detect import Detector
    from satchel.library import Library
    from satchel.settings import Settings
    from satchel.tools.program_runner import ProgramRunner


def session_over(
    library: Library,
    settings: Settings,
    *,
    detector: Detector | None = None,
    runner: ProgramRunner | None = None,
) -> Session:
    """A conversation in which everything is approved, and each load hands the text over."""
    chosen = default_detector(settings) if detector is None else as_pipeline(detector)
    return Session(
        library,
        settings,
        detector=lambda: chosen,
        runner=runner,
        gate=PermissionGate(library.trace, approve=True),
        loaded=LoadedSkills(library, deduplicate=False),
    )


def plain(text: str) -> str:
    """A text without the nonces of its frames."""
    return re.sub(r' nonce="\w{12}"', "", text)


class Talks(NamedTuple):
    """A project for tests of conversations."""

    project: Path

    @property
    def place(self) -> Path:
        """Where its skills lie."""
        return self.project / ".agents" / "skills"

    def add(self, name: str, description: str = "", **fields: Any) -> str:
        """Write a skill, newer than whatever was there."""
        path = make_skill(self.place, name, description, **fields)
        later = time.time_ns() + 1_000_000_000
        os.utime(path, ns=(later, later))
        return path

    def satchel(self, **settings: Any) -> Satchel:
        """All skills of it."""
        given = {"trust": "all", "builtin": False, "packaged": False, **settings}
        return Satchel.for_project(self.project, **given)

    def begin(self, *, approve: Any = None, ask: Any = (), **settings: Any) -> Session:
        """A conversation with them."""
        return self.satchel(**settings).session(approve=approve, ask=ask)


@pytest.fixture
def talks(tmp_path: Path) -> Talks:
    """A project with two skills, `code-review` and `write-docs`."""
    made = Talks(tmp_path / "project")
    make_skill(made.place, "code-review", "Reviews code for faults.", body="Look at each line.\n")
    make_skill(made.place, "write-docs", "Writes documentation.", body="Write plainly.\n")
    return made
