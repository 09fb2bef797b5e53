"""Conversations and frames for tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.detect.pipeline import as_pipeline, default_detector
from satchel.tools.gate import Gate
from satchel.tools.loaded import LoadedSkills
from satchel.tools.session import Session

if TYPE_CHECKING:
    from satchel.detect import Detector
    from satchel.library import Library
    from satchel.settings import Settings
    from satchel.tools.engine import LocalEngine


def session_over(
    library: Library,
    settings: Settings,
    *,
    detector: Detector | None = None,
    engine: LocalEngine | None = None,
) -> Session:
    """A conversation in which everything is approved, and each load hands the text over."""
    chosen = default_detector(settings) if detector is None else as_pipeline(detector)
    return Session(
        library,
        settings,
        detector=lambda: chosen,
        engine=engine,
        gate=Gate(library.trace, approve=True),
        loaded=LoadedSkills(library, points=False),
    )


def plain(text: str) -> str:
    """A text without the nonces of its frames."""
    return re.sub(r' nonce="\w{12}"', "", text)
