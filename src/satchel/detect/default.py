"""The detector of a project that sets none: mentions, then words, and vectors with a model."""

from __future__ import annotations

import os
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.settings import Settings

_SEEN = (
    "project", "locations", "project_locations", "include", "exclude", "tags", "builtin",
    "ecosystem", "ancestors", "trust", "max_depth", "max_folders",
)  # fmt: skip
"""Settings that decide which skills are seen."""


def default_detector(settings: Settings, patience: float = 0.0) -> SelectionPipeline:
    """The detector for these settings; it reads and builds nothing before its first look.

    Args:
        settings: What was set.
        patience: Seconds that a look may wait for an index that is being built.
    """
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.pipeline import SelectionPipeline

    kept = index_folder(settings)
    semantic = None
    if settings.vectors:
        from satchel.detect.semantic import Semantic
        from satchel.detect.vectors.open import open_embedder

        folder = os.path.join(kept, "vectors") if kept else None
        semantic = Semantic(partial(open_embedder, settings.vectors), folder)
    limit = settings.shortlist or 3
    hybrid = HybridDetector(kept, semantic=semantic, limit=limit, patience=patience)
    return SelectionPipeline(hybrid)


def index_folder(settings: Settings) -> str | None:
    """Where the index of the skills that these settings show is kept; None keeps it in memory."""
    if not settings.use_index or not settings.paths.cache:
        return None
    # Who sees other skills has an index of its own: how rare a word is depends on all of them.
    seen = repr([(name, getattr(settings, name)) for name in _SEEN] + [settings.paths.config])
    name = sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return os.path.join(settings.paths.cache, "search", name)
